#!/usr/bin/env python3
"""Prints what tools/bench_long.sh found, as Markdown: tools/bench_long_table.py FOLDER"""
import json
import math
import pathlib
import sys

import usage

LAST = 1_000_000  # tokens


def mean_nll(blocks, begin, end):
    """Of the blocks that lie within [begin, end) positions; position 0 is never predicted."""
    chosen = [b for b in blocks if b["from"] >= begin and b["to"] <= end]
    count = sum(b["to"] - max(b["from"], 1) for b in chosen)
    total = sum(math.log(b["perplexity"]) * (b["to"] - max(b["from"], 1)) for b in chosen)
    return total / count if count else math.nan


def per_token(blocks):
    """Milliseconds of processor time per token: the first and last quarter of the blocks."""
    full = [b for b in blocks if b["cpu_seconds"] > 0]
    quarter = max(1, len(full) // 4)

    def cost(part):
        return 1000 * sum(b["cpu_seconds"] for b in part) / sum(b["to"] - b["from"] for b in part)
    return (cost(full[:quarter]), cost(full[-quarter:])) if full else (math.nan, math.nan)


def main(folder):
    if not (folder / "q8.json").exists():
        sys.exit(f"bench_long_table: {folder}: expected q8.json, which tools/bench_long.sh makes, found none")
    document = json.loads((folder / "q8.json").read_text())
    run, gate = document["runs"][0], document["gate"]
    blocks, reference = run["blocks"], gate["reference"]["blocks"]
    capacity = f"{run['sinks']} + {run['context'] - run['sinks']:,}"
    other = f"{gate['reference']['sinks']} + {gate['reference']['context'] - gate['reference']['sinks']:,}"
    print(f"{document['model']['name']}, {document['tokens']:,} tokens, {run['kv']} cache\n")
    print(f"| tokens | {capacity} | {other} | ratio | resident MiB | CPU ms per token |")
    print("|---|---|---|---|---|---|")
    for b, r in zip(blocks, reference):
        print(f"| {b['from']:,} - {b['to']:,} | {b['perplexity']:.2f} | {r['perplexity']:.2f} | "
              f"{b['perplexity'] / r['perplexity']:.3f} | {b['rss_bytes'] / 2**20:.1f} | "
              f"{1000 * b['cpu_seconds'] / (b['to'] - b['from']):.2f} |")
    end = document["tokens"]
    begin = max(0, end - LAST)
    ratio = math.exp(mean_nll(blocks, begin, end) - mean_nll(reference, begin, end))
    # From the second block on: the first still fills the cache and the work space.
    settled = [b for b in blocks[1:] if b["rss_bytes"]]
    if len(settled) >= 2:
        grown = (settled[-1]["rss_bytes"] - settled[0]["rss_bytes"]) / 2**20
        rate = grown / ((settled[-1]["to"] - settled[0]["to"]) / 1e6)
        print(f"\nResident memory: {rate:+.3f} MiB per million tokens.")
    first, last = per_token(blocks)
    print(f"\nProcessor time per token: {first:.3f} ms in the first quarter, {last:.3f} ms in the last.")
    print(f"\nPerplexity of the last {end - begin:,} tokens: {ratio:.4f} times the reference's "
          f"(whole blocks only).")
    sure = "too few tokens for an interval"
    if gate["ci_low"] is not None:
        sure = f"95%: {gate['ci_low']:.4f} to {gate['ci_high']:.4f}; {gate['method']}"
    print(f"\nAfter roll-over, {gate['tokens']:,} tokens: {gate['ratio']:.4f} times the reference's ({sure}).")
    for name in ("f16", "f32"):
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        other = json.loads(path.read_text())["runs"][0]
        if other["context"] != run["context"]:
            sys.exit(f"bench_long_table: {path}: expected -c {run['context']}, as q8.json has, found {other['context']}")
        same = other["blocks"]
        whole = [b for b in same if any(b["from"] == q["from"] and b["to"] == q["to"] for q in blocks)]
        if whole:
            ours = math.exp(mean_nll(blocks, 0, whole[-1]["to"]))
            theirs = math.exp(mean_nll(whole, 0, whole[-1]["to"]))
            print(f"\n{name} cache, first {whole[-1]['to']:,} tokens: perplexity {theirs:.4f}; q8: {ours:.4f}.")


if __name__ == "__main__":
    usage.begin(__doc__)
    if len(sys.argv) != 2:
        sys.exit("usage: bench_long_table.py FOLDER")
    main(pathlib.Path(sys.argv[1]))
