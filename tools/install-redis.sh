#!/usr/bin/env bash
# Installs redis-server with the system's package manager, unless there is one in PATH.
set -euo pipefail

if command -v redis-server >/dev/null; then
	exit 0
fi

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Some packages start a service on the usual port as they are installed; the tests start servers of their own,
# so that one is neither needed nor touched.
if command -v apt-get >/dev/null; then
	echo "redis-server is missing: installing it with apt-get"
	as_root apt-get update -q || true # an old list may do; what counts is checked below
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-server </dev/null || true
elif command -v brew >/dev/null; then
	echo "redis-server is missing: installing it with brew"
	brew install redis </dev/null || true
fi

if ! command -v redis-server >/dev/null; then
	echo "redis-server is missing and could not be installed here: install Redis 6.0 or later (the package is called" >&2
	echo "redis or redis-server) so that redis-server is in PATH, and run this again." >&2
	exit 1
fi
