#!/usr/bin/env bash
# The types (tsc, over JSDoc) and the mistakes (eslint) of the page's JavaScript. Fetches nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/page_node.sh
[ -x node_modules/.bin/tsc ] ||
  { echo "page: the tools that check the page are not installed; run 'make page'" >&2; exit 1; }
node_modules/.bin/tsc --project .
node_modules/.bin/eslint src/retinue/server/static/js
