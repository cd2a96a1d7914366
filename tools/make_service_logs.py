#!/usr/bin/env python3
"""Runs real services under ordinary load, breaks them at known places, keeps their logs and says where.

    tools/make_service_logs.py OUT_DIR [--service nginx ...] [--lines 2400] [--rounds 2] [--seed 1]

Writes NAME.log and NAME.labels.json (byte offsets of the first five lines of each fault, and from where to where it reaches) for nginx, app (a Python
web application behind it), redis, sshd and postgres. For tests of `ballast watch` (docs/watch.md). Needs root, for
tmpfs disks that fill up, and the Debian packages nginx-light redis-server openssh-server openssh-client sshpass
postgresql. Everything runs on free local ports in temporary folders; no service of the machine is touched.
"""
import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "service_logs"))
import daemons  # noqa: E402
import web  # noqa: E402

SERVICES = {c.name: c for c in (web.Nginx, web.App, daemons.Redis, daemons.Sshd, daemons.Postgres)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--service", action="append", choices=SERVICES)
    parser.add_argument("--lines", type=int, default=2400)
    parser.add_argument("--rounds", type=int, default=2, help="how often each kind of fault comes (2)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("make_service_logs: expected root (tmpfs disks are mounted), found another user")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.service or SERVICES:
        SERVICES[name](args.seed).run(args.lines, args.rounds, args.out)
