#!/usr/bin/env python3
"""How well `ballast watch` ranks the first lines of faults: area under the ROC curve, beside a count of templates.

    ballast watch nginx.log --once > nginx.jsonl
    tools/watch_roc.py nginx.labels.json nginx.jsonl

Positive: one of a fault's first five lines (labels of tools/make_service_logs.py); negative: every other line. The
baseline is the rarity log2((lines so far + 2) / (lines of this template so far + 1)), from the same counts that
watch prints (`seen`). Alarms are those of the results; of those beside the labelled lines it says how many lie within a
fault, and prints the others.
"""
import json
import math
import sys

import usage


def area(scores, positive):
    """Share of pairs (positive, negative) that are in the right order; ties count half (Mann-Whitney)."""
    ranked = sorted(range(len(scores)), key=lambda i: scores[i])
    total, i = 0.0, 0
    while i < len(ranked):
        j = i
        while j < len(ranked) and scores[ranked[j]] == scores[ranked[i]]:
            j += 1
        total += (i + j + 1) / 2 * sum(positive[k] for k in ranked[i:j])
        i = j
    p = sum(positive)
    return (total - p * (p + 1) / 2) / (p * (len(scores) - p))


def measure(labels, results):
    lines = [r for r in results if "event" not in r]
    first = {offset for fault in labels["faults"] for offset in fault["first"]}
    positive = [r["offset"] in first for r in lines]
    if sum(positive) != len(first) or all(positive):
        sys.exit(f"watch_roc: expected {len(first)} labelled lines in the results, found {sum(positive)}")
    if not first:
        sys.exit("watch_roc: expected labels of at least one fault, found none")
    alarms = {r["offset"] for r in lines if r["alarm"]}
    outside = [r for r in lines if r["alarm"] and r["offset"] not in first
               and not any(fault["begin"] <= r["offset"] < fault["end"] for fault in labels["faults"])]
    return {
        "lines": len(lines), "positive": sum(positive), "faults": len(labels["faults"]),
        "auc": {
            "watch score": area([r["score"] for r in lines], positive),
            "rare template": area([math.log2((i + 2) / (r["seen"] + 1)) for i, r in enumerate(lines)], positive),
            "bits per byte": area([r["bits_per_byte"] for r in lines], positive),
            "text surprise": area([r["surprise"] for r in lines], positive),
            "words": area([r["words"] for r in lines], positive),
        },
        "alarms": len(alarms), "alarms on labelled lines": len(alarms & first),
        "outside": outside,
        "faults alarmed": sum(any(o in alarms for o in fault["first"]) for fault in labels["faults"]),
    }


if __name__ == "__main__":
    usage.begin(__doc__)
    if len(sys.argv) != 3:
        sys.exit("usage: watch_roc.py LABELS.json RESULTS.jsonl")
    with open(sys.argv[1]) as f:
        labels = json.load(f)
    with open(sys.argv[2]) as f:
        found = measure(labels, [json.loads(line) for line in f])
    print(f"{labels['log']}: {found['lines']} lines, {found['faults']} faults, {found['positive']} labelled lines")
    for name, value in found["auc"].items():
        print(f"  AUC {value:.3f}  {name}")
    later = found["alarms"] - found["alarms on labelled lines"] - len(found["outside"])
    print(f"  alarms {found['alarms']}: on labelled lines {found['alarms on labelled lines']}, on other lines of a fault "
          f"{later}, elsewhere {len(found['outside'])}; faults with an alarm {found['faults alarmed']} of {found['faults']}")
    for r in found["outside"]:
        print(f"    line {r['line']}, score {r['score']}, seen {r['seen']}: {r['text'][:100]}")
