#!/bin/sh
# The tests on each supported Python that is found, each in a virtual environment of its own.
set -eu
found=0
for version in 3.11 3.12 3.13; do
    python=""
    # A shim may stand on the PATH for a version that is not chosen: what counts is that it runs.
    for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
        if "$candidate" -c "" 2>/dev/null; then
            python=$candidate
            break
        fi
    done
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
    "$environment/bin/python" -m pytest -q -m "not torture and not clients and not gsd" "$@"
done
test "$found" -gt 0
