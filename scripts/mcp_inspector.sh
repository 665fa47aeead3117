#!/usr/bin/env bash
# Tries `retinue mcp serve` with the reference inspector's command line, in both eras of the protocol, over
# stdin and over HTTP. Installs the inspector into build/inspector, which needs npm and the network once.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/page_node.sh
version=2.12.0
place=build/inspector
[ -x "$place/node_modules/.bin/mcp-inspector" ] ||
  npm install --silent --no-fund --no-audit --ignore-scripts --prefix "$place" "@modelcontextprotocol/inspector@$version"
work=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/project"
echo 'def main(): pass' >"$work/project/a.py"
export HOME="$work" XDG_CONFIG_HOME="$work/config"
serve=("$PWD/.venv/bin/retinue" mcp serve --cwd "$work/project" --db "sqlite://$work/log.db" --model offline)
inspect() { "$PWD/$place/node_modules/.bin/mcp-inspector" --cli --quiet --connect-timeout 60000 "$@"; }
holds() { grep -q -- "$2" <<<"$1" || { printf 'no %s in:\n%s\n' "$2" "$1" >&2; exit 1; }; }
look() { # the way to the server, then the era
  holds "$(inspect "${way[@]}" --protocol-era "$1" --method tools/list --strict)" '"code-search"'
  holds "$(inspect "${way[@]}" --protocol-era "$1" --method tools/call --tool-name code-search --tool-arg query=main)" 'a.py:1'
  holds "$(inspect "${way[@]}" --protocol-era "$1" --method resources/list)" 'retinue://runs/'
  echo "ok: ${way[0]##*/} $1"
}
way=("${serve[@]}")
look legacy
look modern
"${serve[@]}" --http --port 0 2>"$work/said" &
server=$!
for _ in $(seq 240); do
  grep -q 'is served at' "$work/said" && break
  sleep 0.25
done
way=("$(sed -n 's|.*is served at \(http[^,]*\),.*|\1|p' "$work/said")")
look legacy
look modern
