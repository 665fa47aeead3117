#!/usr/bin/env bash
# Make the project's venv with exactly the locked dependencies. Needs Python 3.11 or newer and pip.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "setup: there is no $python; install Python 3.11 or newer" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "setup: $("$python" --version) is too old; Retinue needs 3.11 or newer (set PYTHON=…)" >&2; exit 1; }
if ! command -v uv >/dev/null; then
  say "installing uv"
  # A venv of its own for uv where pip may not touch the system's packages.
  "$python" -m pip install --quiet uv 2>/dev/null ||
    { "$python" -m venv .venv-uv && .venv-uv/bin/pip install --quiet uv && PATH="$PWD/.venv-uv/bin:$PATH"; }
fi
uv=$(command -v uv || echo "$python -m uv")
[ -x .venv/bin/python ] || { say "making .venv"; $uv venv --quiet --python "$python" .venv; }
say "installing the locked dependencies"
# Whatever the index answers, only files whose hash stands in the lock are installed.
$uv pip install --quiet --python .venv/bin/python --only-binary :all: --require-hashes -r requirements.lock
# The build backend comes from the lock too: an isolated build would fetch one that nobody has checked.
$uv pip install --quiet --python .venv/bin/python --no-build-isolation --no-deps -e .
touch .venv/.ready
