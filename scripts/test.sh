#!/usr/bin/env bash
# Every check and every test. What a test needs from the system is installed here, once.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/system.sh
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/pyright
.venv/bin/lint-imports
.venv/bin/deptry src
# The browser's driver keeps an event loop of its own running, so its tests get processes of their own.
scripts/offline.py .venv/bin/pytest -n auto --dist worksteal -m "not browser" --cov=retinue --cov-report= "$@"
scripts/offline.py .venv/bin/pytest -n auto --dist loadfile -m browser --cov=retinue --cov-append --cov-report=term:skip-covered "$@"
