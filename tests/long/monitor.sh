#!/bin/sh
# The bars of the collapse monitor, with real models: see docs/stability.md, "Noticing a collapse".
# Half an hour or more. BALLAST_TEXT names a long text to feed; without it only the streams that write are tried.
# TOKENS (500000): how many the streams under pinned sinks write in all.
set -eu
cd "$(dirname "$0")/../.."
B=${BALLAST:-build/release/ballast}
GEMMA=models/gemma-3-270m-q4_k_m.gguf SMOL=models/SmolLM2-135M-Instruct.Q4_1.gguf
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT

# check FILE EXPRESSION WHAT: t is the trial's JSON.
check() {
  python3 - "$1" "$2" "$3" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
lost = [a for a in t["alarms"] if a["reason"] == "sink loss"]
if not eval(sys.argv[2]):
    sys.exit(f"FAILED: {sys.argv[3]}: {json.dumps(t)[:2000]}")
false = f", {t['false_alarms']} false" if "false_alarms" in t else ""  # of pinned sinks
print(f"ok: {sys.argv[3]}: {t['tokens']} tokens, {len(t['alarms'])} alarms, {len(lost)} of sink loss{false}")
PY
}

WRITE="--streams 20 -f tools/openings.txt -c 768 --temp 0.9 --top-p 0.95 --repeat-penalty 1.1 --json"
# shellcheck disable=SC2086
"$B" trial -m "$GEMMA" $WRITE --policy window --length 1800 -s 100 >"$OUT/window"
check "$OUT/window" 'len({a["stream"] for a in lost if 0 <= a["after_roll_over"] <= 1024}) >= 18' "writing under a window"
# shellcheck disable=SC2086
"$B" trial -m "$GEMMA" $WRITE --policy sinks --length $((${TOKENS:-500000} / 20)) -s 1000 >"$OUT/sinks"
check "$OUT/sinks" 't["false_alarms"] <= 1 and not lost and all(a["loop_tokens"] <= 256 for a in t["alarms"])' "writing under sinks"
# shellcheck disable=SC2086
"$B" trial -m "$SMOL" $WRITE --policy sinks --length 1500 -s 7 --repeat-penalty 1 >"$OUT/loops"
check "$OUT/loops" 't["alarms"] and not lost and all(a["loop_tokens"] <= 256 for a in t["alarms"])' "loops are called loops"

[ -n "${BALLAST_TEXT:-}" ] || exit 0
for model in "$SMOL" "$GEMMA"; do
  "$B" trial -m "$model" -f "$BALLAST_TEXT" -c 1024 --policy window --limit 5376 --rescue --json >"$OUT/rescue"
  check "$OUT/rescue" 'len(lost) == 1 and 0 <= lost[0]["after_roll_over"] <= 1024' "$model, fed under a window"
  check "$OUT/rescue" 't["after_rescue"]["ratio"] <= 1.05' "$model, perplexity after a rescue"
  "$B" trial -m "$model" -f "$BALLAST_TEXT" -c 1024 --json >"$OUT/calm"
  check "$OUT/calm" 't["alarms"] == []' "$model, the whole text under sinks"
done
