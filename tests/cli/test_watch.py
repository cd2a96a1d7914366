"""ballast watch: every line once, whatever happens to the log, the output or the process."""
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest
import tiny_gguf
from conftest import BALLAST, LIMIT, SANITIZED, ballast, environment, refused

SMALL = ["-c", 256, "--compute", "f32", "-t", 1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_gguf.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


def lines_of(data):
    return [json.loads(line) for line in data.decode().splitlines()]


def scored(results):
    return [r for r in results if "event" not in r]


def events(results):
    return [r["event"] for r in results if "event" in r]


def numbered(first, last):
    return b"".join(b"line %d of the log\n" % i for i in range(first, last + 1))


def once(model, log, *more, stdin=b""):
    outcome = ballast("watch", log, "--once", "-m", model, *SMALL, *more, stdin=stdin)
    assert outcome.code == 0, outcome.err
    return lines_of(outcome.out)


class Watching:
    """A watch under way; its results as they come."""

    def __init__(self, model, log, *more, **options):
        self.results = []
        self.process = subprocess.Popen([BALLAST, "watch", str(log), "-m", str(model), *map(str, [*SMALL, *more])],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), **options)
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.results.append(json.loads(line))

    def wait_for(self, count):
        end = time.monotonic() + LIMIT
        while len(scored(self.results)) < count:
            assert time.monotonic() < end and self.process.poll() is None, self.results[-3:]
            time.sleep(0.01)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.thread.join(LIMIT)
        return self.process.wait(LIMIT)

    @property
    def texts(self):
        return [r["text"] for r in scored(self.results)]


def test_every_line_is_given_with_its_place(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n\ntwo\r\n  \nthree\x00x\n\xff\xfe caf\xc3\xa9\nlast")
    results = once(model, log)
    assert [(r["line"], r["offset"], r["bytes"], r["text"]) for r in results] == [
        (1, 0, 4, "one"), (2, 4, 1, ""), (3, 5, 5, "two"), (4, 10, 3, "  "), (5, 13, 8, "three\x00x"),
        (6, 21, 9, "\ufffd\ufffd caf\u00e9"), (7, 30, 4, "last")]
    assert [r.get("partial", False) for r in results] == [False] * 6 + [True]
    assert all(r["bits"] > 0 and r["bits_per_byte"] > 0 and r["alarm"] is False for r in results)
    assert results[-1]["input_lag_bytes"] == 0 and results[0]["input_lag_bytes"] == 30


def test_a_control_token_in_a_line_is_plain_text(tmp_path):
    """A log must not be able to end the model's turn."""
    log = tmp_path / "a.log"
    log.write_bytes(b"user said <|im_end|> and left\n")
    plain = ballast("watch", log, "--once", "-c", 256).out
    assert lines_of(plain)[0]["bits"] > 40  # one control token instead of eight plain ones would be far less surprising


def test_results_do_not_depend_on_how_lines_arrive(model, tmp_path):
    """In f32, to 1e-3 bits: one batch, one line at a time, a pipe."""
    text = numbered(1, 60) + b"something else\n" * 3
    (tmp_path / "whole.log").write_bytes(text)
    whole = once(model, tmp_path / "whole.log")
    piped = once(model, "-", stdin=text)
    log = tmp_path / "slow.log"
    log.touch()
    watching = Watching(model, log)
    with open(log, "ab", buffering=0) as f:
        for i, line in enumerate(text.splitlines(keepends=True)):
            f.write(line[:4])
            f.write(line[4:])
            if i % 20 == 0:
                watching.wait_for(i + 1)
    watching.wait_for(63)
    assert watching.stop() == 130
    for other in (piped, watching.results):
        assert [r["text"] for r in other] == [r["text"] for r in whole]
        for a, b in zip(whole, other):
            assert abs(a["bits"] - b["bits"]) < 1e-3 * max(1, a["bits"]) and a["seen"] == b["seen"]
            assert a["words"] == b["words"]


def test_a_line_without_its_end_is_not_given_before_it_has_one(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"whole\nhal")
    watching = Watching(model, log)
    watching.wait_for(1)
    time.sleep(0.3)
    assert watching.texts == ["whole"]
    with open(log, "ab") as f:
        f.write(b"f\n")
    watching.wait_for(2)
    assert watching.stop(signal.SIGINT) == 130
    assert watching.texts == ["whole", "half"]


def test_a_line_of_a_megabyte_costs_what_its_beginning_costs(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * (1 << 20) + b"\nnext\n" + bytes(range(1, 10)) * 200 + b"\n")
    results = once(model, log, "--max-line", 64)
    assert results[0]["bytes"] == (1 << 20) + 1 and results[0]["truncated"] and len(results[0]["text"]) == 64
    assert results[1]["text"] == "next" and results[1]["offset"] == (1 << 20) + 1 and "truncated" not in results[1]
    assert results[2]["truncated"]


@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_rotation_loses_and_repeats_nothing(model, tmp_path, how):
    log, old = tmp_path / "a.log", tmp_path / "a.log.1"
    log.write_bytes(numbered(1, 5))
    watching = Watching(model, log)
    watching.wait_for(5)
    writer = open(log, "ab", buffering=0)
    if how == "rename":
        os.rename(log, old)
        writer.write(numbered(6, 7))  # by a writer that has not noticed
        log.write_bytes(numbered(8, 9))
    else:
        writer.write(numbered(6, 7))
        shutil.copy(log, old)
        os.truncate(log, 0)
        writer.write(numbered(8, 9))
    watching.wait_for(9)
    assert watching.stop() == 130
    assert watching.texts == [f"line {i} of the log" for i in range(1, 10)]
    assert [r["line"] for r in scored(watching.results)] == list(range(1, 10))
    seen = events(watching.results)
    assert seen == ["rotated"] if how == "rename" else seen in (["truncated", "rotated"], ["truncated"]), seen


def test_truncation_without_a_copy_is_told(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(numbered(1, 5))
    watching = Watching(model, log)
    watching.wait_for(5)
    log.write_bytes(b"")
    time.sleep(0.3)
    with open(log, "ab") as f:
        f.write(b"after\n")
    watching.wait_for(6)
    assert watching.stop() == 130
    assert watching.texts[-1] == "after" and events(watching.results) == ["truncated"]


def test_a_restart_goes_on_where_it_stopped(model, tmp_path):
    log, state = tmp_path / "a.log", tmp_path / "s"
    log.write_bytes(numbered(1, 40))
    straight = once(model, log)
    log.write_bytes(numbered(1, 20) + b"line 21")
    first = once(model, log, "--state", state)
    with open(log, "ab") as f:
        f.write(b" of the log\n" + numbered(22, 40))
    second = once(model, log, "--state", state)
    assert [r["line"] for r in first + second] == list(range(1, 41))
    for a, b in zip(straight, first + second):
        assert a["text"] == b["text"] and a["offset"] == b["offset"] and a["words"] == b["words"]
        assert abs(a["bits"] - b["bits"]) < 1e-2, (a, b)
        assert abs(a["score"] - b["score"]) < 1e-2
    assert once(model, log, "--state", state) == []


def test_rotations_while_it_was_away_are_caught_up_with(model, tmp_path):
    log, state = tmp_path / "a.log", tmp_path / "s"
    log.write_bytes(numbered(1, 5))
    once(model, log, "--state", state)
    with open(log, "ab") as f:
        f.write(numbered(6, 6))
    os.rename(log, tmp_path / "a.log.2")
    (tmp_path / "a.log.1").write_bytes(numbered(7, 8))
    log.write_bytes(numbered(9, 9))
    results = once(model, log, "--state", state)
    assert [r["text"] for r in scored(results)] == [f"line {i} of the log" for i in range(6, 10)]
    os.remove(log)
    os.remove(tmp_path / "a.log.1")
    log.write_bytes(b"another log\n")
    results = once(model, log, "--state", state)
    assert events(results) == ["gap"] and scored(results)[0]["text"] == "another log"


def generation(log, how, n):
    """What rotation calls the n-th newest of three."""
    return log.with_name(log.name + {"numbers": f".{n}", "dashes": f"-{n}", "dates": f"-2026113{3 - n}",
                                     "seconds": f".17645472{90 - n}", "times": f".2026-11-30-12_0{9 - n}"}[how])


NAMES = ["numbers", "dashes", "dates", "seconds", "times"]


@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("how", NAMES)
def test_every_generation_is_read_in_its_order(model, tmp_path, how, linked):
    """While it was away, and while it runs: two rotations within the second it waits for late writers."""
    (tmp_path / "real").mkdir()
    log = tmp_path / "real" / "a.log"
    named = log
    if linked:
        named = tmp_path / "link.log"
        named.symlink_to(log)
    generation(log, how, 3).write_bytes(b"of an earlier day\n")
    log.write_bytes(numbered(1, 5))
    state = tmp_path / "s"
    assert len(once(model, named, "--state", state)) == 5
    with open(log, "ab") as f:
        f.write(numbered(6, 6))
    os.rename(log, generation(log, how, 2))
    generation(log, how, 1).write_bytes(numbered(7, 8))
    log.write_bytes(numbered(9, 9))
    results = once(model, named, "--state", state)
    assert [r["text"] for r in scored(results)] == [f"line {i} of the log" for i in range(6, 10)]
    for n in (1, 2):
        os.remove(generation(log, how, n))
    watching = Watching(model, named, "--state", state)
    time.sleep(0.5)
    with open(log, "ab") as f:
        f.write(numbered(10, 10))
    watching.wait_for(1)
    os.rename(log, generation(log, how, 2))
    generation(log, how, 1).write_bytes(numbered(11, 12))
    log.write_bytes(numbered(13, 13))
    watching.wait_for(4)
    assert watching.stop() == 130
    assert watching.texts == [f"line {i} of the log" for i in range(10, 14)]
    assert events(watching.results) == ["rotated", "rotated"]


def test_a_file_that_rotation_deleted_is_followed_by_what_came_after_it(model, tmp_path):
    log, old, state = tmp_path / "a.log", tmp_path / "a.log.1", tmp_path / "s"
    old.write_bytes(b"of an earlier day\n")
    log.write_bytes(numbered(1, 5))
    watching = Watching(model, log, "--state", state)
    watching.wait_for(5)
    os.rename(log, old)  # one generation is kept: this one goes with the next rotation
    log.write_bytes(numbered(6, 13))
    os.rename(log, old)
    log.write_bytes(numbered(14, 20))
    watching.wait_for(20)
    assert watching.stop() == 130
    assert watching.texts == [f"line {i} of the log" for i in range(1, 21)]
    assert "gap" in events(watching.results)  # two rotations cannot be told from three
    # The same while it is away.
    time.sleep(0.05)
    log.write_bytes(numbered(21, 22))
    os.rename(log, old)
    log.write_bytes(numbered(23, 23))
    results = once(model, log, "--state", state)
    assert [r["text"] for r in scored(results)] == [f"line {i} of the log" for i in range(21, 24)]
    assert events(results)[0] == "gap"


def test_a_log_that_is_deleted_and_made_again_repeats_no_generation(model, tmp_path):
    log = tmp_path / "a.log"
    for n in (1, 2):
        (tmp_path / f"a.log.{n}").write_bytes(b"of an earlier day\n" * n)
    (tmp_path / "a.log.old").write_bytes(b"a copy that somebody made\n")
    log.write_bytes(numbered(1, 5))
    watching = Watching(model, log)
    watching.wait_for(5)
    log.unlink()
    log.write_bytes(numbered(6, 7))
    watching.wait_for(7)
    assert watching.stop() == 130
    assert watching.texts == [f"line {i} of the log" for i in range(1, 8)]


def test_results_of_others_are_never_cut_off(model, tmp_path):
    out = tmp_path / "all.jsonl"
    for name, lines in (("a", 2), ("b", 3)):
        (tmp_path / name).write_bytes(numbered(1, lines))

    def go(name, kill=False):
        args = ["watch", tmp_path / name, "-m", model, *SMALL, "--state", tmp_path / f"{name}.state", "-o", out]
        if not kill:
            outcome = ballast(*args, "--once")
            assert outcome.code == 0, outcome.err
            return outcome.err
        process = subprocess.Popen([BALLAST, *map(str, args), "--save-every", "1000"], stderr=subprocess.DEVNULL,
                                   env=environment())
        size = out.stat().st_size
        while out.stat().st_size == size or not out.read_bytes().endswith(b"\n"):
            time.sleep(0.01)
        time.sleep(0.3)
        refused(ballast(*args[:-1], out, "--state", tmp_path / "other"), 4, "another process writes them")
        process.kill()
        process.wait()
        return ""

    for name in "aba":
        assert "repeat" not in go(name)
    out.write_bytes(out.read_bytes() + b"a note\n")
    go("b")
    assert [r.get("line") for r in lines_of(out.read_bytes().replace(b"a note", b"{}"))] == [1, 2, 1, 2, 3, None]
    with open(tmp_path / "a", "ab") as f:
        f.write(numbered(3, 4))
    go("a", kill=True)
    out.write_bytes(out.read_bytes() + b"a note\n")
    assert "may repeat lines" in go("a")
    assert out.read_bytes().count(b"a note") == 2 and out.read_bytes().count(b'{"line":4,') == 2


def test_many_short_lines_of_a_pipe_do_not_fill_the_memory(model):
    """With --max-lag more lines wait than bytes: what they take in memory counts too."""
    watching = Watching(model, "-", "--max-lag", 1 << 30, stdin=subprocess.PIPE)
    feed = watching.process.stdin
    feed.write(b"\n" * 2_000_000)
    feed.flush()
    resident = int(next(line for line in open(f"/proc/{watching.process.pid}/status") if "VmRSS" in line).split()[1])
    assert SANITIZED or resident < 100_000  # KiB; 16 of them a line
    feed.close()
    end = time.monotonic() + LIMIT
    while not any(r.get("event") == "skipped" for r in watching.results):
        assert time.monotonic() < end
        time.sleep(0.01)
    watching.stop()


def kill_at_random_moments(model, tmp_path, kills, seed):
    rng = random.Random(seed)
    log, state, out = tmp_path / "a.log", tmp_path / "s", tmp_path / "out"
    text = b"".join(b"%d %s\n" % (i, b"abc def " * rng.randint(0, 9)) for i in range(kills * 400))
    log.write_bytes(text[: len(text) // 2])
    args = [BALLAST, "watch", str(log), "-m", str(model), *map(str, SMALL), "--state", str(state), "-o", str(out),
            "--save-every", "0.05"]
    for i in range(kills):
        process = subprocess.Popen(args, stderr=subprocess.DEVNULL, env=environment())
        time.sleep(rng.uniform(0.02, 0.6))
        if i == kills // 2:
            with open(log, "ab") as f:
                f.write(text[len(text) // 2:])
        process.kill()
        process.wait()
    outcome = ballast(*args[1:], "--once")
    assert outcome.code == 0, outcome.err
    results = lines_of(out.read_bytes())
    assert [r["line"] for r in results] == list(range(1, len(results) + 1))
    assert [r["text"].encode() for r in results] == [l for l in text.split(b"\n")[:-1]]


def test_a_kill_at_any_moment_loses_and_repeats_nothing(model, tmp_path):
    kill_at_random_moments(model, tmp_path, 6, 1)


def test_a_kill_before_the_first_save_repeats_nothing(model, tmp_path):
    log, out = tmp_path / "a.log", tmp_path / "out"
    log.write_bytes(numbered(1, 5000))
    out.write_bytes(b'{"event":"of an earlier day"}\n')
    args = ["watch", log, "-m", model, *SMALL, "--state", tmp_path / "s", "-o", out]
    process = subprocess.Popen([BALLAST, *map(str, args), "--save-every", "1000"], stderr=subprocess.DEVNULL,
                               env=environment())
    while out.stat().st_size < 1000:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert ballast(*args, "--once").code == 0
    results = lines_of(out.read_bytes())
    assert results[0]["event"] == "of an earlier day"
    assert [r["line"] for r in results[1:]] == list(range(1, 5001))


def test_a_pipe_tells_what_it_had_read_and_not_scored(model):
    watching = Watching(model, "-", stdin=subprocess.PIPE)
    watching.process.stdin.write(b"whole\nhalf a li")
    watching.process.stdin.flush()
    watching.wait_for(1)
    time.sleep(0.2)
    assert watching.stop() == 130
    assert watching.results[-1] == {"event": "stopped", "unscored_bytes": 9}


@pytest.mark.parametrize("more", [[], ["--max-lag", 1000], ["--max-lag", 1 << 40]], ids=["plain", "lag", "much-lag"])
def test_a_signal_ends_an_endless_line(model, tmp_path, more):
    """The line before it was scored, it itself was not, and a restart knows."""
    log, state = tmp_path / "a.log", tmp_path / "s"
    log.write_bytes(b"first\n")
    watching = Watching(model, log, "--state", state, *more)
    watching.wait_for(1)
    os.truncate(log, 1 << 40)  # a terabyte of zeros without a line end, most of it a hole
    time.sleep(0.3)
    began = time.monotonic()
    assert watching.stop(signal.SIGINT) == 130
    assert SANITIZED or time.monotonic() - began < 5
    assert watching.texts == ["first"]
    os.truncate(log, 6)
    with open(log, "ab") as f:
        f.write(b"second\n")
    assert [(r["line"], r["text"]) for r in once(model, log, "--state", state)] == [(2, "second")]


def test_lines_before_an_endless_one_are_not_held_up(model):
    watching = Watching(model, "-", stdin=subprocess.PIPE)
    feed = watching.process.stdin

    def flood():
        try:
            feed.write(b"first\n")
            while True:
                feed.write(b"x" * 65536)
        except OSError:
            pass  # it has ended

    writer = threading.Thread(target=flood)
    writer.start()
    watching.wait_for(1)
    assert watching.stop() == 130
    writer.join(LIMIT)
    assert watching.results[0]["text"] == "first" and watching.results[-1]["event"] == "stopped"
    assert watching.results[-1]["unscored_bytes"] > 0


@pytest.mark.slow
def test_fifty_kills(model, tmp_path):
    kill_at_random_moments(model, tmp_path, 50, 2)


def test_a_closed_stdout_ends_it_and_the_state_waits(model, tmp_path):
    log, state = tmp_path / "a.log", tmp_path / "s"
    log.write_bytes(numbered(1, 500))
    watching = subprocess.Popen([BALLAST, "watch", str(log), "-m", str(model), *map(str, SMALL), "--state", str(state)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    watching.stdout.readline()
    watching.stdout.close()
    assert watching.wait(LIMIT) == 1
    assert b"that it has gone away" in watching.stderr.read()
    watching.stderr.close()
    assert [r["line"] for r in once(model, log, "--state", state)] == list(range(1, 501))


def test_a_full_disk_ends_it_with_one_line(model, tmp_path):
    (tmp_path / "a.log").write_bytes(numbered(1, 3))
    outcome = ballast("watch", tmp_path / "a.log", "--once", "-o", "/dev/full", "-m", model, *SMALL)
    assert outcome.code == 1 and outcome.err == "ballast: /dev/full: expected room for the output, found a full disk\n"


def test_a_log_that_cannot_be_read_is_refused(model, tmp_path):
    more = ["-m", model, *SMALL]
    refused(ballast("watch", tmp_path / "none", *more), 4, "none: expected a log file", "--wait")
    refused(ballast("watch", tmp_path, *more), 4, "found a folder")
    refused(ballast("watch", *more), 2, "a log FILE, or - for stdin")
    (tmp_path / "a").write_bytes(b"x\n")
    (tmp_path / "s").write_bytes(b"no state at all")
    refused(ballast("watch", tmp_path / "a", "--state", tmp_path / "s", *more), 4, "watch state")
    refused(ballast("watch", tmp_path / "a", "--policy", "dense", *more), 2, "--policy")
    refused(ballast("watch", tmp_path / "a", "--max-line", 1, *more), 2, "--max-line")


def test_a_state_is_only_for_its_model_log_and_cache(model, tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(numbered(1, 3))
    state = ["--state", tmp_path / "s", "--once"]
    once(model, tmp_path / "a", *state)
    other = tiny_gguf.write(tmp_path / "other.gguf", seed=2)
    refused(ballast("watch", tmp_path / "a", *state, "-m", other, *SMALL), 4, "watch state: model")
    refused(ballast("watch", tmp_path / "b", *state, "-m", model, *SMALL), 4, "one --state FILE for each log")
    refused(ballast("watch", tmp_path / "a", *state, "-m", model, "-c", 128, "--compute", "f32"), 4, "watch state: cache")
    damaged = bytearray((tmp_path / "s").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "s").write_bytes(damaged)
    refused(ballast("watch", tmp_path / "a", *state, "-m", model, *SMALL), 4, "checksum")


def test_two_processes_do_not_share_a_state(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(numbered(1, 3))
    watching = Watching(model, log, "--state", tmp_path / "s")
    watching.wait_for(3)
    refused(ballast("watch", log, "--state", tmp_path / "s", "-m", model, *SMALL), 4, "another one uses it")
    assert watching.stop() == 130


def test_a_link_does_not_get_round_the_lock(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(numbered(1, 3))
    once(model, log, "--state", tmp_path / "s")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    watching = Watching(model, log, "--state", tmp_path / "s")
    with open(log, "ab") as f:
        f.write(numbered(4, 4))
    watching.wait_for(1)
    refused(ballast("watch", log, "--state", tmp_path / "link", "-m", model, *SMALL), 4, "another one uses it")
    assert watching.stop() == 130
    with open(log, "ab") as f:
        f.write(numbered(5, 5))
    assert [r["line"] for r in once(model, log, "--state", tmp_path / "link")] == [5]
    assert (tmp_path / "link").is_symlink() and once(model, log, "--state", tmp_path / "s") == []


def test_no_lock_stays_behind(model, tmp_path):
    log, folder = tmp_path / "a.log", tmp_path / "folder"
    log.write_bytes(numbered(1, 3))
    folder.mkdir()
    once(model, log, "--state", tmp_path / "s")
    watching = Watching(model, log, "--state", tmp_path / "s")
    time.sleep(0.3)
    assert watching.stop() == 130
    refused(ballast("watch", log, "--state", folder, "-m", model, *SMALL), 4, "folder: expected a file, found a folder")
    refused(ballast("watch", log, "--state", tmp_path / "s", "-m", tmp_path / "none"), 3, "none")
    assert sorted(os.listdir(tmp_path)) == ["a.log", "folder", "s"]


def test_an_empty_state_is_not_no_state(model, tmp_path):
    """It would score everything twice."""
    (tmp_path / "a.log").write_bytes(numbered(1, 3))
    state = tmp_path / "s"
    state.touch()
    args = ["watch", tmp_path / "a.log", "--once", "--state", state, "-m", model, *SMALL]
    refused(ballast(*args), 4, f"'{state}': expected a file with content, found an empty file", "hint:")
    state.unlink()
    os.mkfifo(state)
    refused(ballast(*args), 4, f"'{state}': expected a regular file, found a pipe")
    state.unlink()
    state.write_bytes(b"no state at all")
    refused(ballast(*args), 4, f"{state}: watch state")


@pytest.mark.parametrize("args,words", [
    (["a.log", "-o", "a.log"], "--out: expected a file of its own, found that of the log"),
    (["a.log", "-o", "alias"], "--out: expected a file of its own, found that of the log"),
    (["a.log", "--state", "a.log"], "--state: expected a file of its own, found that of the log"),
    (["a.log", "--metrics", "hard"], "--metrics: expected a file of its own, found that of the log"),
    (["a.log", "-o", "new", "--state", "./new"], "--state: expected a file of its own, found that of --out"),
    (["a.log", "-o", "dangling", "--state", "new"], "--state: expected a file of its own, found that of --out"),
    (["a.log", "--state", "new", "--metrics", "folder/../new"], "--state: expected a file of its own, found that of --metrics"),
    (["a.log", "--state", "new", "-o", "new.lock"], "the lock of --state: expected a file of its own, found that of --out"),
    (["a.log", "--state", "new", "--normal", "new"], "--state: expected a file of its own, found that of --normal"),
])
def test_one_file_is_not_two_things(tmp_path, args, words):
    (tmp_path / "a.log").write_bytes(numbered(1, 3))
    (tmp_path / "folder").mkdir()
    (tmp_path / "alias").symlink_to("a.log")
    (tmp_path / "dangling").symlink_to("new")
    (tmp_path / "hard").hardlink_to(tmp_path / "a.log")
    before = sorted(os.listdir(tmp_path))
    refused(ballast("watch", *args, "-m", "none", cwd=tmp_path), 2, words)  # before the model is looked for
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "a.log").read_bytes() == numbered(1, 3)


def test_it_does_not_read_what_it_writes(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(numbered(1, 3))
    with open(log, "ab") as out:
        code = subprocess.run([BALLAST, "watch", str(log), "-m", str(model)], stdout=out, env=environment(), timeout=LIMIT,
                              stderr=subprocess.PIPE)
    assert code.returncode == 2 and b"stdout: expected a file of its own" in code.stderr
    outcome = ballast("watch", log, "--once", "-o", "/dev/null", "--metrics", "/dev/null", "-m", model, *SMALL)
    assert outcome.code == 0, outcome.err


def test_a_path_that_cannot_be_written_is_noticed_before_the_model_is(tmp_path):
    (tmp_path / "a.log").write_bytes(numbered(1, 3))
    for flag in ("--metrics", "--state", "-o"):
        for path in (tmp_path / "none" / "x", tmp_path):
            refused(ballast("watch", tmp_path / "a.log", flag, path, "-m", "none"), 4, str(path))


def test_it_waits_for_a_log_when_asked(model, tmp_path):
    log = tmp_path / "later.log"
    watching = Watching(model, log, "--wait")
    time.sleep(0.2)
    log.write_bytes(numbered(1, 2))
    watching.wait_for(2)
    assert watching.stop() == 130


def test_from_the_end_means_new_lines_only(model, tmp_path):
    log = tmp_path / "a.log"
    begun = b"of a line that is long " * 5000  # and belongs to those that are written from now on
    log.write_bytes(numbered(1, 5) + begun)
    watching = Watching(model, log, "--from-end", "--max-line", 1 << 20)
    time.sleep(1)
    with open(log, "ab") as f:
        f.write(b"end\n" + numbered(6, 6))
    watching.wait_for(2)
    assert watching.stop() == 130
    assert watching.texts == [begun.decode() + "end", "line 6 of the log"]


def test_too_much_lag_skips_the_oldest_lines_and_says_so(model, tmp_path):
    log, metrics = tmp_path / "a.log", tmp_path / "m.prom"
    text = numbered(1, 5000)
    log.write_bytes(text)
    results = once(model, log, "--max-lag", 2000, "--metrics", metrics)
    skipped = [r for r in results if r.get("event") == "skipped"]
    assert skipped and skipped[0]["from_offset"] == 0 and skipped[0]["line"] == 1
    lines = {r["line"] for r in scored(results)}
    gone = sum(r["lines"] for r in skipped)
    assert len(lines) + gone == 5000 and max(lines) == 5000 and len(lines) == len(scored(results))
    for r in scored(results):
        assert r["text"] == f"line {r['line']} of the log"
    values = dict(line.split() for line in metrics.read_text().splitlines() if not line.startswith("#"))
    assert values["ballast_input_lag_bytes"] == "0"
    assert values["ballast_input_dropped_lines_total"] == str(gone)
    assert values["ballast_input_lines_total"] == "5000"
    assert values["ballast_input_bytes_total"] == str(len(text))


def test_a_full_disk_of_the_metrics_does_not_end_it(model, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(numbered(1, 5))
    outcome = ballast("watch", log, "--once", "-m", model, *SMALL, "--metrics", "/dev/full")
    assert outcome.code == 0 and outcome.err.count("--metrics") == 1 and len(lines_of(outcome.out)) == 5


@pytest.mark.parametrize("flag,value", [("--save-every", -1), ("--save-every", "nan"), ("--threshold", 0)])
def test_a_number_that_makes_no_sense_is_named(tmp_path, flag, value):
    refused(ballast("watch", tmp_path / "a.log", flag, value), 2, f"{flag}: expected", f"found {value}")


def ordinary(n, rng):
    return b"".join(b"2026-01-01 %02d:%02d:%02d GET /item/%d 200 in %d ms\n" %
                    (i // 3600, i // 60 % 60, i % 60, rng.randrange(500), rng.randrange(40)) for i in range(n))


def test_a_new_line_is_an_alarm_and_one_marked_as_normal_is_not(model, tmp_path):
    rng = random.Random(3)
    log, marks = tmp_path / "a.log", tmp_path / "normal"
    fault = b"2026-01-01 00:09:00 worker 17 died: segmentation fault\n"
    log.write_bytes(ordinary(400, rng) + fault + ordinary(50, rng))
    results = once(model, log)
    assert [r["line"] for r in results if r["alarm"]] == [401]
    assert results[400]["z"] > results[399]["z"] and results[400]["seen"] == 0
    for mark in (fault.replace(b"17", b"4"), json.dumps(results[400]).encode() + b"\n"):
        marks.write_bytes(mark)
        again = once(model, log, "--normal", marks)
        assert not any(r["alarm"] for r in again) and again[400]["normal"] is True
    assert [r["line"] for r in once(model, log, "--only-alarms")] == [401]


def test_marks_are_read_again_while_it_runs(model, tmp_path):
    rng = random.Random(4)
    log, marks = tmp_path / "a.log", tmp_path / "normal"
    log.write_bytes(ordinary(400, rng) + b"disk is full\n")
    watching = Watching(model, log, "--normal", marks)
    watching.wait_for(401)
    assert watching.results[400]["alarm"]
    marks.write_bytes(b"no route to host\n")
    with open(log, "ab") as f:
        f.write(ordinary(30, rng) + b"no route to host\n")
    watching.wait_for(432)
    assert watching.stop() == 130
    assert not watching.results[431]["alarm"] and watching.results[431]["normal"]


def test_a_status_code_that_never_came_is_noticed(model, tmp_path):
    """Its template is that of the ordinary lines: a count of templates cannot see it."""
    rng = random.Random(5)
    log = tmp_path / "a.log"
    log.write_bytes(ordinary(500, rng) + b"2026-01-01 00:08:20 GET /item/77 503 in 9 ms\n")
    results = once(model, log)
    assert results[500]["seen"] == 500 and results[500]["alarm"], results[500]


def test_an_explanation_leaves_the_stream_as_it_was(model, tmp_path):
    rng = random.Random(6)
    log = tmp_path / "a.log"
    log.write_bytes(ordinary(300, rng) + b"disk is full\n" + ordinary(20, rng))
    plain = once(model, log)
    explained = once(model, log, "--explain", "--explain-tokens", 8)
    assert [r["line"] for r in explained if "explanation" in r] == [301]
    for a, b in zip(plain, explained):
        b.pop("explanation", None)
        assert a == b


@pytest.mark.skipif(SANITIZED, reason="measures memory")
def test_memory_does_not_grow_with_the_log(model, tmp_path):
    """Every line another template, ten thousand times: tables fill up, and stay."""
    rng = random.Random(7)
    log = tmp_path / "a.log"
    log.write_bytes(b"".join(b"%s\n" % bytes(rng.choice(b"abcdefgh ") for _ in range(24)) for _ in range(6000)))
    code = ("import resource, subprocess, sys; subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    command = [BALLAST, "watch", str(log), "--once", "-m", str(model), "-c", "64", "-t", "1"]
    peak = int(subprocess.run(["python3", "-c", code, "-", *command], capture_output=True, env=environment(),
                              check=True).stdout)
    assert peak < 200 << 10  # KiB


def test_help_says_what_it_finds():
    assert "novelty, not badness" in ballast("watch", "--help").text
