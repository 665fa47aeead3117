#!/usr/bin/env bash
# Every benchmark, one after the other. The peer's SDK goes into a venv of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
ulimit -n 8192 2>/dev/null || true
[ -x .venv-bench/bin/python ] || { uv venv --quiet .venv-bench; uv pip install --quiet --python .venv-bench/bin/python openai; }
.venv/bin/python bench/startup.py
.venv/bin/python bench/turns.py --raw-python .venv-bench/bin/python
.venv/bin/python bench/store.py
.venv/bin/python bench/sandbox.py
.venv/bin/python bench/knowledge.py
.venv/bin/python bench/web_pages.py
.venv/bin/python bench/page.py
.venv/bin/python bench/delegation_pays.py
.venv/bin/python bench/big_store.py --runs 20000
