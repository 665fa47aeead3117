#!/usr/bin/env bash
# Write requirements.lock anew from pyproject.toml: every version, with the hash of every file of it.
# Versions already locked stay, unless UPGRADE=1 or UPGRADE=PACKAGE asks for newer ones.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "lock: this needs uv (pip install uv)" >&2; exit 1; }
upgrade=()
case ${UPGRADE:-} in
  "") ;;
  1) upgrade=(--upgrade) ;;
  *) upgrade=(--upgrade-package "$UPGRADE") ;;
esac
# No header and no index: the file must be the same whichever index and whichever machine made it.
uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --all-extras --group dev \
  --only-binary :all: --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
  "${upgrade[@]}" --output-file requirements.lock
