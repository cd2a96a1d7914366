#!/usr/bin/env python3
"""Ballast beside llama.cpp: the same work in turn on the same machine, and the ratios.

    bench/compare.py --peer-python ENV/bin/python [--model M.gguf] [--threads 2] [--rounds 3] [--only decode,...]
ENV holds llama-cpp-python (see bench/llama_cpp_peer.py). Each round measures a row with one program, then with
the other, so that a busy neighbour hurts both; the medians over the rounds are compared. Where llama.cpp has two
KV types for a row, its better one counts.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_MODEL = HERE.parent / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
# name, flags of `ballast bench`, tests of the peer
ROWS = [
    ("prefill 512", ["--prefill", "512"], ["prefill:512"]),
    ("prefill 8,000", ["--prefill", "8000", "--reps", "1"], ["prefill:8000"]),
    ("decode at depth 0", ["--decode", "64", "--depth", "0"], ["decode:0:f16", "decode:0:q8"]),
    ("decode at depth 2,048", ["--decode", "64", "--depth", "2048"], ["decode:2048:f16", "decode:2048:q8"]),
    ("decode at depth 8,000", ["--decode", "64", "--depth", "8000"], ["decode:8000:f16", "decode:8000:q8"]),
    ("past roll-over, -c 1024", ["--stream", "1", "-c", "1024"], ["stream:1024:f16", "stream:1024:q8"]),
    ("past roll-over, -c 8192", ["--stream", "1", "-c", "8192"], ["stream:8192:f16", "stream:8192:q8"]),
    ("4 streams at once", ["--sessions", "4", "-c", "512"], ["sessions:4"]),
    ("8 streams at once", ["--sessions", "8", "-c", "512"], ["sessions:8"]),
    ("16 streams at once", ["--sessions", "16", "-c", "512"], ["sessions:16"]),
]


def run(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ballast", default=HERE.parent / "build/release/ballast")
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name holds one of these words")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]
    print(f"| {'tokens/s':<24} | llama.cpp | Ballast | ratio | Ballast's limit reached |")
    print("|---|---|---|---|---|")
    for name, flags, tests in ROWS:
        if words and not any(word in name for word in words):
            continue
        ours, theirs, shares = [], [], []
        for _ in range(options.rounds):
            peer = run([options.peer_python, HERE / "llama_cpp_peer.py", options.model, options.threads, *tests])
            theirs.append(max(peer.values()))
            report = run([options.ballast, "bench", "-m", options.model, "-t", options.threads, "--json", *flags])
            result = report["results"][-1]
            ours.append(result["tokens_per_second"]["median"])
            shares.append(result["share_of_limit"])
        ratio = statistics.median(ours) / statistics.median(theirs)
        share = f"{100 * statistics.median(shares):.0f}%" if None not in shares else ""
        print(f"| {name:<24} | {statistics.median(theirs):.0f} | {statistics.median(ours):.0f} | {ratio:.1f} x | {share} |",
              flush=True)


if __name__ == "__main__":
    main()
