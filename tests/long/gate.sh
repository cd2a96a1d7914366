#!/bin/sh
# The gate on the real model, past its trained length, on a technical text (these documents themselves): sinks pass, a
# plain window and a dense cache fail with 5. Some two minutes.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
ballast=${BALLAST:-$root/build/release/ballast}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$root"/docs/*.md "$root/README.md" "$root/CONTRIBUTING.md" "$root"/src/*/*.h >"$work/text.txt"
gate() {
  code=0
  "$ballast" eval -m "$root/models/SmolLM2-135M-Instruct.Q4_1.gguf" -f "$work/text.txt" --limit 12288 -c 4096 --gate 1.05 \
    "$@" >"$work/out" 2>"$work/err" || code=$?
  tail -n 1 "$work/out"
}
expect() {
  [ "$code" -eq "$1" ] || { echo "gate.sh: expected exit code $1, found $code"; cat "$work/err"; exit 1; }
}
mkdir "$work/state" # the reference of the first is that of the second
gate --policy sinks --checkpoint "$work/state"
expect 0
gate --policy window --checkpoint "$work/state"
expect 5
gate --policy dense
expect 5
