#!/bin/sh
# `ballast watch` killed at 50 random moments: no line of its results is missing or twice.
set -eu
cd "$(dirname "$0")/../.."
BALLAST_LONG=1 BALLAST="$PWD/build/release/ballast" BALLAST_MODELS_DIR="$PWD/models" \
  "${PYTHON:-/usr/bin/python3}" -m pytest -q -p no:cacheprovider tests/cli/test_watch.py -k fifty
