#!/usr/bin/env bash
# Server software that tests start: fetched here, once, since the tests themselves have no network.
# What cannot be had on this system is said; the tests that need it are skipped or fail and say so too.
set -uo pipefail
cd "$(dirname "$0")/.."
get() { .venv/bin/python "$@" >/dev/null || echo "could not set up: $1" >&2; }
get scripts/real_model_server.py --setup-only
get scripts/mediawiki.py --setup-only
get tests/knowledge/servers.py
