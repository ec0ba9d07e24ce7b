#!/usr/bin/env bash
# Installs Chromium with the system's package manager, unless there is one, or Chrome, in PATH.
set -euo pipefail

found() {
	local name
	for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
		if command -v "$name" >/dev/null; then return 0; fi
	done
	# On macOS they are not in PATH.
	[ -d "/Applications/Google Chrome.app" ] || [ -d "/Applications/Chromium.app" ]
}

if found; then
	exit 0
fi

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

if command -v apt-get >/dev/null; then
	echo "Chromium is missing: installing it with apt-get"
	as_root apt-get update -q || true # an old list may do; what counts is checked below
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium </dev/null || true
elif command -v brew >/dev/null; then
	echo "Chromium is missing: installing it with brew"
	brew install --cask chromium </dev/null || true
fi

if ! found; then
	echo "Chromium is missing and could not be installed here: install it, or Chrome, so that it is in PATH, and run this" >&2
	echo "again." >&2
	exit 1
fi
