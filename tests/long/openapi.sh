#!/bin/sh
# The shipped description of the API, and requests that Schemathesis makes from it, valid and broken. Some minutes.
# Fetches Schemathesis with pip into build/long/.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-/usr/bin/python3} tools=build/long/schemathesis
[ -x "$tools/bin/schemathesis" ] || "$python" -m pip install -q --disable-pip-version-check --target "$tools" 'schemathesis==4.32.5'
PATH=$PWD/$tools/bin:$PATH PYTHONPATH=$PWD/$tools BALLAST=${BALLAST:-$PWD/build/release/ballast} exec "$python" -m pytest \
  -q -s -p no:cacheprovider tests/long/test_openapi.py
