#!/bin/sh
# Finds Chromium for the browser tests, or installs it where that can be done; else says so and lets the tests
# skip themselves (under CI=true they fail). The headless shell is the same engine without the windows around it: the
# tests take 86 seconds of processor time in it, and 142 in the whole program.
mac="/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
for name in "${CHROMIUM:-}" chromium-headless-shell chrome-headless-shell \
    chromium chromium-browser google-chrome google-chrome-stable "$mac"; do
    if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Chromium for the browser tests"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null
    for name in chromium-headless-shell chromium; do
        # Not every release has the first.
        apt-cache show "$name" >/dev/null 2>&1 || continue
        if apt-get install -y -qq --no-install-recommends "$name" fonts-dejavu-core fonts-liberation >/dev/null; then
            exit 0
        fi
    done
fi
echo "NO CHROMIUM: the dashboard will not be tested in a browser. Install chromium, or set CHROMIUM to its path." >&2
