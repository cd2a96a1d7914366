#!/bin/sh
# A day of log, a line every WATCH_EVERY (4) seconds, replayed by `ballast watch` in one run: memory stays flat.
set -eu
cd "$(dirname "$0")/../.."
exec "${PYTHON:-/usr/bin/python3}" - "${WATCH_EVERY:-4}" "${WATCH_MODEL:-models/SmolLM2-135M-Instruct.Q4_1.gguf}" <<'PYTHON'
import pathlib, random, re, subprocess, sys, tempfile, time
every, model = int(sys.argv[1]), sys.argv[2]
rng = random.Random(1)
folder = pathlib.Path(tempfile.mkdtemp())
kinds = ["GET /item/{n} 200 {s} bytes in {m} ms", "user u{n} logged in from 10.0.{m}.{m}", "order {n}: {m} x chair",
         "cache: {m}% used, {n} entries", "job {n} done in {m} s", "GET /search 200 {s} bytes in {m} ms"]
with open(folder / "day.log", "w") as f:
    for t in range(0, 86400, every):
        line = rng.choice(kinds).format(n=rng.randrange(10**5), m=rng.randrange(100), s=rng.randrange(10**4))
        f.write("2026-01-01 %02d:%02d:%02d app: %s\n" % (t // 3600, t // 60 % 60, t % 60, line))
count = len(range(0, 86400, every))
process = subprocess.Popen(["build/release/ballast", "watch", folder / "day.log", "--once", "-m", model],
                           stdout=subprocess.PIPE, text=True)
marks, lines, alarms, began = [], 0, 0, time.monotonic()
for result in process.stdout:
    lines += 1
    alarms += '"alarm":true' in result
    if lines % (count // 10) == 0:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        marks.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]))
        print(f"line {lines:6}  resident {marks[-1]} KiB  {lines / (time.monotonic() - began):.0f} lines/s  "
              f"alarms {alarms}", flush=True)
assert process.wait() == 0 and lines == count, (process.returncode, lines, count)
# The first two tenths fill the cache and the tables.
assert marks[-1] - marks[2] < 8 << 10, marks
PYTHON
