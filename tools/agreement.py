#!/usr/bin/env python3
"""How far Ballast is from an independent reference, token by token and head by head.

    tools/agreement.py tests/goldens/smollm2_stream.json [--limit N] [flags of ballast, such as --compute f32 --kv f32]
    tools/agreement.py tests/goldens/smollm2_stream.json --sink-map tests/goldens/smollm2_stream_sink_map.json

A reference file holds `tokens` and, for each of its `runs`, the policy, its sinks and window, and `nll`, the negative
log-likelihoods (nll[i] is that of token i + 1). Prints the mean difference and the largest at one token. A map holds
`tokens`, how many of them it is of, and `mass`, the mean attention on token 0 of every head. BALLAST names the program.
"""
import argparse
import json
import os
import subprocess


def ballast(command, tokens, limit, *flags):
    program = os.environ.get("BALLAST", "build/release/ballast")
    words = [program, command, "--tokens", tokens, "--limit", limit, "--json", *flags]
    return json.loads(subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE).stdout)


def policies(path, limit, flags):
    with open(path) as f:
        reference = json.load(f)
    limit = limit or len(reference["tokens"])
    for name, run in reference["runs"].items():
        dense = run["policy"] == "dense"
        cache = ["-c", limit] if dense else ["-c", run["sinks"] + run["window"], "--sinks", run["sinks"]]
        shown = ballast("eval", path, limit, "--policy", run["policy"], *cache, "--per-token", *flags)
        differences = [got - want for got, want in zip(shown["runs"][0]["nll"], run["nll"])]
        print(f"{name:14} {len(differences)} tokens: mean {sum(differences) / len(differences):+.6f}, "
              f"largest {max(map(abs, differences)):.4f}", flush=True)


def sink_map(path, map_path, limit, flags):
    with open(map_path) as f:
        reference = json.load(f)
    limit = limit or reference["tokens"]
    shown = ballast("probe", path, limit, *flags)
    differences = [abs(g - w) for got, want in zip(shown["mean"], reference["mass"]) for g, w in zip(got, want)]
    print(f"sink map, {len(differences)} heads, {limit} tokens: largest difference {max(differences):.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("reference")
    parser.add_argument("--limit", type=int, help="the first N tokens only")
    parser.add_argument("--sink-map", metavar="MAP.json", help="compare the map of attention on token 0 instead")
    args, flags = parser.parse_known_args()
    if args.sink_map:
        sink_map(args.reference, args.sink_map, args.limit, flags)
    else:
        policies(args.reference, args.limit, flags)
