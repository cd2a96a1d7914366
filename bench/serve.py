#!/usr/bin/env python3
"""Streaming clients at once, against `ballast bench --sessions` of the same sitting.

    bench/serve.py [--ballast build/release/ballast] [--clients 16] [--tokens 256] [-c 512] [--rounds 3]

Prints tokens per second of both, their ratio, and the time between two tokens of one stream as a client sees it (p50, p99).
Server and bench take turns, so that a noisy machine is noisy for both."""
import argparse
import http.client
import json
import re
import statistics
import subprocess
import threading
import time
import urllib.parse

arguments = argparse.ArgumentParser()
arguments.add_argument("--ballast", default="build/release/ballast")
arguments.add_argument("--clients", type=int, default=16)
arguments.add_argument("--tokens", type=int, default=256)
arguments.add_argument("-c", "--context", type=int, default=512)
arguments.add_argument("--rounds", type=int, default=3)
a = arguments.parse_args()


def bench():
    out = subprocess.run([a.ballast, "bench", "--sessions", str(a.clients), "-c", str(a.context), "--decode", str(a.tokens),
                          "--reps", "1", "--json"], capture_output=True, text=True, check=True).stdout
    return [r for r in json.loads(out)["results"] if r["test"] == "sessions"][0]["tokens_per_second"]["median"]


def client(address, number, start, out):
    line = http.client.HTTPConnection(address, timeout=300)
    body = {"prompt": f"Story number {number}: once upon a time", "max_tokens": a.tokens, "stream": True, "seed": number,
            "stream_options": {"include_usage": True}, "logit_bias": {"0": -100, "2": -100}}
    start.wait()
    line.request("POST", "/v1/completions", json.dumps(body))
    answer = line.getresponse()
    assert answer.status == 200, answer.read()
    times, tokens = [], 0
    for raw in answer:
        if not raw.startswith(b"data: {"):
            continue
        event = json.loads(raw[6:])
        if event["choices"]:
            times.append(time.perf_counter())
        elif event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    out.append((times, tokens))


def serve():
    command = [a.ballast, "serve", "--port", "0", "-c", str(a.context), "--max-active", str(max(32, a.clients))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = urllib.parse.urlsplit(re.match(r"Ballast is at (\S+)", server.stdout.readline())[1]).netloc
        while True:
            line = http.client.HTTPConnection(address)
            line.request("GET", "/health")
            if line.getresponse().status == 200:
                break
            time.sleep(0.05)
        out, start = [], threading.Event()
        threads = [threading.Thread(target=client, args=(address, i, start, out)) for i in range(a.clients)]
        for thread in threads:
            thread.start()
        start.set()
        for thread in threads:
            thread.join()
        # While all of them stream: from the last first token to the first last one.
        begin, end = max(times[0] for times, _ in out), min(times[-1] for times, _ in out)
        events = sum(sum(begin < t <= end for t in times) for times, _ in out)
        tokens = events * sum(n for _, n in out) / sum(len(times) for times, _ in out)  # an event may carry several tokens
        gaps = sorted(y - x for times, _ in out for x, y in zip(times, times[1:]) if x >= begin)
        return tokens / (end - begin), gaps[len(gaps) // 2] * 1000, gaps[int(len(gaps) * 0.99)] * 1000
    finally:
        server.terminate()
        server.wait(timeout=60)


rounds = []
for _ in range(a.rounds):
    alone = bench()
    rounds.append((alone, *serve()))
    print("bench %.0f tokens/s; %d clients %.0f tokens/s (%.0f%%); between tokens p50 %.1f ms, p99 %.1f ms" %
          (alone, a.clients, rounds[-1][1], 100 * rounds[-1][1] / alone, rounds[-1][2], rounds[-1][3]), flush=True)
print("median: %.0f%% of bench; between tokens p50 %.1f ms, p99 %.1f ms" %
      (100 * statistics.median(r[1] / r[0] for r in rounds), statistics.median(r[2] for r in rounds),
       statistics.median(r[3] for r in rounds)))
