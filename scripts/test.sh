#!/usr/bin/env bash
# Every check and every test. What a test needs from the system is installed here, once.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/system.sh
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/pyright
.venv/bin/lint-imports
.venv/bin/pytest -n auto --dist worksteal --cov=retinue --cov-report=term:skip-covered "$@"
