#!/usr/bin/env bash
# MCP servers of others for the tests, each in its own surroundings: they need other versions than the project.
# Into build/mcp-servers, once for each set of versions; nothing of it is shipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/page_node.sh
python=(mcp-server-time==2026.10.19 mcp-server-git==2026.10.19)
node=(@modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31)
folder=build/mcp-servers
stamp="${python[*]} ${node[*]}"
if [ "$(cat "$folder/.ready" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
printf '\033[2m%s\033[0m\n' "installing the MCP servers that the tests use" >&2
mkdir -p "$folder"
uv=$(command -v uv || echo "python3 -m uv")
$uv venv --quiet --clear "$folder/venv"
$uv pip install --quiet --python "$folder/venv/bin/python" --only-binary :all: "${python[@]}"
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "${node[@]}"
printf '%s' "$stamp" > "$folder/.ready"
