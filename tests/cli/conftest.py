"""Helpers for the command-line tests: run the binary, plainly or on a pseudo-terminal."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BALLAST = os.environ.get("BALLAST", str(ROOT / "build/release/ballast"))
MODELS = pathlib.Path(os.environ.get("BALLAST_MODELS_DIR", ROOT / "models"))
SMOL = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = MODELS / "gemma-3-270m-q4_k_m.gguf"
SANITIZED = "BALLAST_SANITIZED" in os.environ  # time and memory are then not the program's own
LIMIT = 600 if SANITIZED else 120  # seconds a command may take


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("BALLAST")}
    env.update(BALLAST_MODEL=str(SMOL), TERM="xterm", LC_ALL="C.UTF-8")
    env.update({k: str(v) for k, v in extra.items()})
    return env


class Outcome:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr.decode("utf-8", "replace")

    @property
    def text(self):
        return self.out.decode("utf-8")  # strict: whole UTF-8 is promised

    @property
    def json(self):
        return json.loads(self.text)


def ballast(*args, stdin=b"", env=None, **options):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return Outcome(
        subprocess.run([BALLAST, *map(str, args)], input=stdin, capture_output=True, timeout=LIMIT,
                       env=environment(**(env or {})), **options))


def refused(outcome, code, *words):
    """One line "ballast: <what>: expected <x>, found <y>" and at most a hint; nothing on stdout."""
    assert outcome.code == code, outcome.err
    lines = outcome.err.splitlines()
    assert len(lines) <= 2, outcome.err
    assert lines[0].startswith("ballast: "), outcome.err
    assert len(lines) == 1 or lines[1].startswith("hint: "), outcome.err
    for word in words:
        assert word in outcome.err, outcome.err
    assert outcome.out == b""


class Terminal:
    """The binary on a pseudo-terminal; what it shows, without control sequences."""

    def __init__(self, *args, env=None):
        self.raw = b""
        self.seen = 0
        self.code = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execve(BALLAST, [BALLAST, *map(str, args)], environment(**(env or {})))
            finally:
                os._exit(127)  # else a second pytest runs on
        import fcntl
        import termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))

    @property
    def text(self):
        plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self.raw)
        return plain.decode("utf-8", "replace").replace("\r\n", "\n")

    def _read(self, timeout):
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.raw += data
        return bool(data)

    def wait_for(self, words, timeout=LIMIT):
        """Waits until `words` appear after what was waited for before."""
        end = time.monotonic() + timeout
        while words not in self.text[self.seen:]:
            assert time.monotonic() < end, f"no {words!r} in {self.text[self.seen:]!r}"
            if not self._read(0.2):
                assert words in self.text[self.seen:], f"ended without {words!r}: {self.text!r}"
        self.seen = self.text.index(words, self.seen) + len(words)

    def send(self, text):
        os.write(self.fd, text.encode())

    def interrupt(self):
        os.write(self.fd, b"\x03")  # as the keyboard does: the terminal makes it a signal

    def wait(self, timeout=LIMIT):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self._read(0):
                    if not select.select([self.fd], [], [], 0)[0]:
                        break
                os.close(self.fd)
                self.code = os.waitstatus_to_exitcode(status)
                return self.code
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"still running: {self.text!r}")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: only with BALLAST_LONG=1")


def pytest_collection_modifyitems(items):
    if os.environ.get("BALLAST_LONG") == "1":
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="BALLAST_LONG=1 runs it"))
