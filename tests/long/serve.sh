#!/bin/sh
# The server under storms, kills and canaries: some ten minutes.
set -eu
cd "$(dirname "$0")/../.."
BALLAST=$PWD/build/release/ballast exec "${PYTHON:-/usr/bin/python3}" -m pytest -q -s -p no:cacheprovider tests/long/test_serve.py
