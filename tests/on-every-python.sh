#!/bin/sh
# The tests on each supported Python that is found, each in a virtual environment of its own.
set -eu
found=0
for version in 3.11 3.12 3.13; do
    python=$(command -v "python$version" || ls "$HOME"/.pyenv/versions/$version.*/bin/python 2>/dev/null | tail -n 1 || true)
    if [ -z "$python" ]; then
        echo "python$version was not found: not tested"
        continue
    fi
    found=$((found + 1))
    environment=".venv/on-$version"
    test -x "$environment/bin/python" || "$python" -m venv "$environment"
    "$environment/bin/python" -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-dev.lock
    "$environment/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
    echo "== $("$environment/bin/python" --version)"
    "$environment/bin/python" -m pytest -q -m "not torture" "$@"
done
test "$found" -gt 0
