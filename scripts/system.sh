#!/usr/bin/env bash
# System packages that tests need: a PostgreSQL server, a browser, a terminal multiplexer. Debian and Ubuntu.
set -euo pipefail
missing=()
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing+=(postgresql)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
command -v git >/dev/null || missing+=(git)
command -v tmux >/dev/null || missing+=(tmux)
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "please install: ${missing[*]}" >&2; exit 1
fi
sudo=""; [ "$(id -u)" -eq 0 ] || sudo="sudo"
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
# Two test runs at once must not fight over the package manager.
exec 9>/tmp/retinue-system-packages.lock; flock 9
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
