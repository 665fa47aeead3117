#!/usr/bin/env bash
# Every check and every test. What a test needs from the system is installed here, once.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/system.sh
bash scripts/mcp_servers.sh
bash scripts/test_servers.sh
# Beside the checks, since it mostly waits. Where no index can be reached it says so and passes.
.venv/bin/python scripts/audit.py --seconds 30 &
audit=$!
.venv/bin/ruff format --check .
.venv/bin/ruff check .
# The slowest of the checks, beside the others.
.venv/bin/pyright &
types=$!
.venv/bin/lint-imports
.venv/bin/deptry src
scripts/page_check.sh
wait "$types"
wait "$audit"
# Tests wait for processes, servers and databases about half of their time: two more workers than cores keep the cores at work.
workers=$(($(nproc) + 2))
# The browser's driver keeps an event loop of its own running, so its tests get processes of their own.
scripts/offline.py .venv/bin/pytest -n "$workers" --dist worksteal -m "not browser" "$@"
scripts/offline.py .venv/bin/pytest -n auto --dist loadfile -m browser "$@"
