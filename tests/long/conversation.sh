#!/bin/sh
# Conversations of 200 turns with the default model, each through a cache that rolls over more than ten times: some ten minutes.
set -eu
cd "$(dirname "$0")/../.."
BALLAST=${BALLAST:-$PWD/build/release/ballast} exec "${PYTHON:-/usr/bin/python3}" -m pytest -q -s -p no:cacheprovider \
  tests/long/test_conversation.py
