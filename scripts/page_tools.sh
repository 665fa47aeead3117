#!/usr/bin/env bash
# The tools that check the page's JavaScript, into node_modules, exactly as package-lock.json has them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/page_node.sh
printf '\033[2m%s\033[0m\n' "installing what checks the page" >&2
npm ci --silent
touch node_modules/.ready
