#!/usr/bin/env bash
# Build what a release consists of into dist/: the wheel, the source archive, the list of what it needs when it runs
# (sbom.cdx.json, CycloneDX, from the lock) and the digests of the three. Nothing is fetched and nothing is sent.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
.venv/bin/python -m hatchling build -d "$out"
.venv/bin/python scripts/runtime_lock.py >"$out/runtime.txt"
.venv/bin/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible \
  --output-format JSON --output-file "$out/sbom.cdx.json" "$out/runtime.txt"
rm "$out/runtime.txt"
(cd "$out" && sha256sum -- * >SHA256SUMS)
