#!/usr/bin/env bash
# The main job, on this code base. No key needed: without one the offline model answers by rules.
set -euo pipefail
cd "$(dirname "$0")/.."
question=${QUESTION:-where are retries of model calls decided?}
echo "\$ retinue ask \"$question\""
exec .venv/bin/retinue ask "$question"
