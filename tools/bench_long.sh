#!/bin/sh
# The long run: millions of tokens of real text through a small cache, beside one of four times its capacity.
#
#   tools/bench_long.sh [FOLDER]        (default FOLDER: build/long)
#
# Makes the text (tools/long_text.py), streams it, and writes into FOLDER: q8.json, q8.html and q8.svg (the whole
# text; the reference and the paired comparison are in them), f16.json and f32.json (its beginning), and
# summary.md. Every run saves itself as it goes: after a kill, the same command goes on where it was; what is
# finished is not run again.
#
# BALLAST names the program, BALLAST_MODEL the model, BALLAST_THREADS the threads. Sizes, in tokens:
# LONG_TOKENS (4,194,304), LONG_CONTEXT (2,048), LONG_SHORT (500,000: the runs with other caches), LONG_BLOCK
# (65,536: one line of the table, and from save to save). LONG_TEXT names a text of your own.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/long}
ballast=${BALLAST:-$root/build/release/ballast}
tokens=${LONG_TOKENS:-4194304}
context=${LONG_CONTEXT:-2048}
short=${LONG_SHORT:-500000}
block=${LONG_BLOCK:-65536}
python=/usr/bin/python3
[ -x "$python" ] || python=python3
mkdir -p "$out/state"

text=${LONG_TEXT:-$out/text.txt}
model=${BALLAST_MODEL:-$root/models/SmolLM2-135M-Instruct.Q4_1.gguf}

# What is there was made with one set of sizes; results of two do not belong into one table.
settings="$tokens tokens, -c $context, $short with other caches, blocks of $block, text $text, model $model"
if [ -e "$out/settings" ] && [ "$(cat "$out/settings")" != "$settings" ]; then
  echo "bench_long: $out: expected one that was made with: $settings" >&2
  echo "bench_long: found: $(cat "$out/settings"); name another folder, or remove this one" >&2
  exit 2
fi
echo "$settings" >"$out/settings"
if [ ! -e "$text" ]; then
  echo "bench_long: making the text" >&2
  "$python" "$root/tools/long_text.py" "$text" --cache "$out"
fi

# run NAME LIMIT FLAGS...: one evaluation, unless its result is there. A failed gate (5) is a result.
run() {
  name=$1
  limit=$2
  shift 2
  [ ! -e "$out/$name.json" ] || return 0
  echo "bench_long: $name, $limit tokens" >&2
  code=0
  "$ballast" eval -f "$text" --limit "$limit" -c "$context" --policy sinks --block "$block" \
    --checkpoint "$out/state" --checkpoint-every "$block" --verbose --json "$@" >"$out/$name.partial" || code=$?
  [ "$code" -eq 0 ] || [ "$code" -eq 5 ] || exit "$code"
  mv "$out/$name.partial" "$out/$name.json"
}
run q8 "$tokens" --kv q8 --gate 1.03 --reference sinks --reference-context $((4 * context)) \
  --report "$out/q8.html" --plot "$out/q8.svg"
run f32 "$short" --kv f32
run f16 "$short" --kv f16
"$python" "$root/tools/bench_long_table.py" "$out" | tee "$out/summary.md"
