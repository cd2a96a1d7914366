#!/bin/sh
# The page in headless Chromium: against the mock server, which can be steered, and against the real one.
set -eu
cd "$(dirname "$0")/../.."
sh tools/setup.sh page
python=${PYTHON:-/usr/bin/python3}
$python -m pytest -q -p no:cacheprovider tests/page
BALLAST_PAGE_BINARY=$PWD/build/release/ballast exec $python -m pytest -q -p no:cacheprovider tests/page
