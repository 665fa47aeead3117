# Everything is in a venv of the project; the first target that needs it sets it up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test setup check fast coverage bench clean lock audit page

help:
	@echo "make demo    set up, then ask a question about this code base (no key needed)"
	@echo "make test    set up, then run every check and every test"
	@echo "make fast    the checks and the tests that start no server software"
	@echo "make page    the types and the mistakes of the page's JavaScript alone"
	@echo "make coverage  the tests again, and which lines they run"
	@echo "make bench   measure, beside peers and lower bounds"
	@echo "make audit   hold requirements.lock against the package index: hashes, yanked files, quarantine"
	@echo "make lock    write requirements.lock anew from pyproject.toml (UPGRADE=1 takes newer versions)"

.venv/.ready: requirements.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh

# Apart from the venv: only the checks need these, not the demo.
node_modules/.ready: package-lock.json package.json scripts/page_tools.sh | .venv/.ready
	@bash scripts/page_tools.sh

setup: .venv/.ready

page: node_modules/.ready
	scripts/page_check.sh

demo: .venv/.ready
	@bash scripts/demo.sh

check: .venv/.ready node_modules/.ready
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports
	.venv/bin/deptry src
	scripts/page_check.sh

fast: check
	scripts/offline.py .venv/bin/pytest -n auto -m "not slow and not browser"

test: .venv/.ready node_modules/.ready
	@bash scripts/test.sh

# Apart from `test`: counting lines makes everything half as slow again.
coverage: .venv/.ready
	scripts/offline.py .venv/bin/pytest -n auto --dist worksteal -m "not browser" --cov=retinue --cov-report=
	scripts/offline.py .venv/bin/pytest -n auto --dist loadfile -m browser --cov=retinue --cov-append --cov-report=term:skip-covered

bench: .venv/.ready
	@bash scripts/bench.sh

audit: .venv/.ready
	.venv/bin/python scripts/audit.py

lock:
	@bash scripts/lock.sh

clean:
	rm -rf .venv node_modules .pytest_cache .ruff_cache .hypothesis .coverage* dist build
