#!/bin/sh
# Finds Chromium for the browser tests, or installs it where that can be done; else says so and lets the tests
# skip themselves (under CI=true they fail).
mac="/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable "$mac"; do
    if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Chromium for the browser tests"
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends \
        chromium fonts-dejavu-core fonts-liberation >/dev/null; then exit 0; fi
fi
echo "NO CHROMIUM: the dashboard will not be tested in a browser. Install chromium, or set CHROMIUM to its path." >&2
