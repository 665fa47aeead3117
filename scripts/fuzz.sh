#!/usr/bin/env bash
# Fuzz at length: scripts/fuzz.sh [SECONDS] [TARGET…], all targets one after the other for 60 seconds each by default.
# What was learnt and what failed is kept in .fuzz; try a kept input again with
#   .venv/bin/python tests/fuzz/driver.py TARGET --input .fuzz/FILE
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
if [ $# -eq 0 ]; then
  mapfile -t targets < <(cd tests && ../.venv/bin/python -c 'from fuzz.driver import TARGETS; print(*TARGETS, sep="\n")')
  set -- "${targets[@]}"
fi
mkdir -p .fuzz
failed=()
for target in "$@"; do
  .venv/bin/python tests/fuzz/driver.py "$target" --seconds "$seconds" --keep .fuzz 2>.fuzz/log ||
    { failed+=("$target"); tail -30 .fuzz/log >&2; }
done
[ ${#failed[@]} -eq 0 ] || { echo "fuzz: failed: ${failed[*]}; the inputs are in .fuzz" >&2; exit 1; }
