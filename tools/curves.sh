#!/bin/sh
# Draws the README's picture: perplexity per block of a long text while a cache of 1,024 tokens rolls over,
# without sinks, with 4 of them, and with a dense cache that keeps everything.
#
#   tools/curves.sh TEXT [OUT.svg]        (default OUT: docs/images/rollover.svg)
#
# TEXT needs at least 12,288 tokens; a novel has ten times that. BALLAST names the program (default
# build/release/ballast), BALLAST_MODEL the model. The table that goes with the picture appears on stdout.
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: tools/curves.sh TEXT [OUT.svg]" >&2
  exit 2
fi
root=$(dirname "$0")/..
out=${2:-$root/docs/images/rollover.svg}
mkdir -p "$(dirname "$out")"
exec "${BALLAST:-$root/build/release/ballast}" eval -f "$1" --limit 12288 -c 1024 --dense-context 12288 \
  --policy dense --policy window --policy sinks --plot "$out"
