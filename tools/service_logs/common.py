"""What every service has in common: a log that others write, faults at known places, and the labels beside it."""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time

FIRST = 5  # lines of a fault that count as its beginning


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    raise SystemExit(f"make_service_logs: nothing listens on port {port}")


class Service:
    """A service in a folder of its own. Subclasses start and stop it, load it, and list their faults."""
    name = ""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"ballast-{self.name}-"))
        os.chmod(self.dir, 0o755)
        self.log = self.dir / f"{self.name}.log"
        self.log.touch()
        self.faults = []
        self.mounts = []

    def start(self):
        raise NotImplementedError

    def stop(self):
        raise NotImplementedError

    def load(self):
        """A little ordinary work: some ten lines of log."""
        raise NotImplementedError

    def kinds(self):
        """[(name, what makes it happen, a regular expression of the lines it writes)]"""
        raise NotImplementedError

    def tiny_disk(self, name, kilobytes, owner=None):
        folder = self.dir / name
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], check=True)
        self.mounts.append(folder)
        if owner:
            shutil.chown(folder, owner)
        return folder

    def size(self):
        return self.log.stat().st_size

    def lines(self):
        return self.log.read_bytes().count(b"\n")

    def settle(self):
        """Waits until the log stands still."""
        last = -1
        while self.size() != last:
            last = self.size()
            time.sleep(0.15)

    def corrupt(self):
        """A line of which a part was overwritten, as after a crash of the disk."""
        junk = bytes(self.random.choice([0, 0, 0xff, self.random.randrange(256)]) for _ in range(48)).replace(b"\n", b"\0")
        with open(self.log, "ab") as f:
            f.write(b"2026-" + junk + b" ok\n")

    def inject(self, kind, act, pattern):
        self.settle()
        begin = self.size()
        act()
        self.settle()
        matching, at = [], begin
        with open(self.log, "rb") as f:
            f.seek(begin)
            for line in f:
                if re.search(pattern, line):
                    matching.append(at)
                at += len(line)
        if not matching:
            print(f"  {self.name}: {kind} left no line in the log; not counted")
            return
        self.faults.append({"kind": kind, "lines": len(matching), "first": matching[:FIRST], "begin": begin, "end": at})

    def run(self, lines, rounds_of_faults, out):
        everything = self.kinds() + [("corrupted line", self.corrupt, rb"^2026-.* ok\n?")]
        rounds = []
        for _ in range(rounds_of_faults):  # the second time a kind comes it is no longer new to a counter
            order = list(everything)
            self.random.shuffle(order)
            rounds += order
        quiet = max(200, lines // 5)  # lines before the first fault
        gap = max(20, (lines - quiet) // len(rounds))
        try:
            self.start()
            for i, (kind, act, pattern) in enumerate(rounds):
                while self.lines() < quiet + i * gap:
                    self.load()
                self.inject(kind, act, pattern)
            while self.lines() < lines:
                self.load()
            self.settle()
            shutil.copy(self.log, out / f"{self.name}.log")  # the end of the service is no ordinary line
            self.stop()
        finally:
            for mount in self.mounts:
                subprocess.run(["umount", "-l", mount])
        data = (out / f"{self.name}.log").read_bytes()
        labels = {"log": f"{self.name}.log", "bytes": len(data), "lines": data.count(b"\n"),
                  "rule": f"offsets of the first {FIRST} lines of each fault", "faults": self.faults}
        (out / f"{self.name}.labels.json").write_text(json.dumps(labels, indent=1) + "\n")
        print(f"{self.name}: {labels['lines']} lines, {labels['bytes']} bytes, {len(self.faults)} faults, "
              f"{sum(len(f['first']) for f in self.faults)} labelled lines")
        shutil.rmtree(self.dir, ignore_errors=True)
