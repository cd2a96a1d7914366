"""ballast run: prompts of every shape in, whole UTF-8 out, exact counts, stops, interruptions."""
import json
import os
import pty
import random
import signal
import subprocess
import termios
import threading
import time

import pytest
import tiny_gguf
from conftest import BALLAST, LIMIT, SANITIZED, SMOL, Terminal, ballast, environment, refused

GREEDY = ["--temp", 0]


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_limits_are_exact(n):
    """llama.cpp#4047, vllm#6521: limits of 0, 1 and 2 gave extra tokens or crashed."""
    outcome = ballast("run", "-p", "The capital of France is", "-n", n, "--json", *GREEDY)
    assert outcome.code == 0, outcome.err
    assert outcome.json["tokens_out"] == n
    assert outcome.json["tokens_in"] == 5
    assert outcome.json["stop_reason"] == "length"
    assert (outcome.json["text"] == "") == (n == 0)


def test_plain_text_equals_the_json_text():
    args = ["run", "-p", "Once upon a time", "-n", 24, "-s", 5]
    assert ballast(*args).text == ballast(*args, "--json").json["text"]


def test_the_same_seed_gives_the_same_text_and_another_does_not():
    args = ["run", "-p", "Once upon a time", "-n", 24, "--temp", 1.5, "--json"]
    first = ballast(*args, "-s", 42).json
    assert first["seed"] == 42  # llama.cpp#7381: echoed
    assert ballast(*args, "-s", 42).json["text"] == first["text"]
    assert ballast(*args, "-s", 43).json["text"] != first["text"]


def test_the_number_of_threads_does_not_change_the_text():
    args = ["run", "-p", "Once upon a time", "-n", 24, *GREEDY]
    assert ballast(*args, "-t", 1).text == ballast(*args, "-t", 2).text


def test_a_stop_string_is_never_shown_and_loses_no_text():
    """vllm#3574, llama.cpp#9867: the prefix of a stop string leaked, or the held tail was lost."""
    args = ["run", "-p", "Count: one, two, three,", "-n", 30, *GREEDY]
    whole = ballast(*args).text
    for stop in (whole[5:8], whole[10:17], whole[12:13]):
        outcome = ballast(*args, "--stop", "never seen", "--stop", stop)
        assert outcome.text == whole[:whole.index(stop)]
        document = ballast(*args, "--json", "--stop", stop).json
        assert document["text"] == outcome.text
        assert document["stop_reason"] == "stop"
    assert ballast(*args, "--stop", whole[-3:] + "never").text == whole  # held, then released


# In f32: they are fed in pieces of different lengths, and fast rounds on the way.
def test_prompt_from_flag_file_and_stdin_agree(tmp_path):
    prompt = "The old man\n\n  looked at the sea.\nIt was\ngrey"
    (tmp_path / "p").write_text(prompt)
    args = ["-n", 12, "--json", *GREEDY, "--compute", "f32"]
    a = ballast("run", "-p", prompt, *args).json
    b = ballast("run", "-f", tmp_path / "p", *args).json
    c = ballast("run", *args, stdin=prompt).json
    d = ballast("run", "-f", "-", *args, stdin=prompt).json
    for other in (b, c, d):
        assert (other["text"], other["tokens_in"]) == (a["text"], a["tokens_in"])


def mixed_text(size, seed):
    rng = random.Random(seed)
    words = ["the", "sea ", " ship", "\n", "\n\n", "  \n", "\t", "\r\n", " 1234", "é", "漢字", "🙂", "...", "Error:", "<|im_end|>", " \u00a0"]
    return "".join(rng.choice(words) for _ in range(size)).encode()


@pytest.mark.parametrize("seed", [1, 2])
def test_text_tokenized_in_pieces_gives_the_ids_of_the_whole(tmp_path, seed):
    """A prompt that arrives in pieces is cut only where no token reaches across."""
    (tmp_path / "p").write_bytes(mixed_text(1500, seed))
    ids = ballast("inspect", "--tokenize", tmp_path / "p", "--json").json["ids"]
    process = subprocess.Popen([BALLAST, "run", "-n", "0", "--json", "-c", "256"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=environment())
    data = (tmp_path / "p").read_bytes()
    rng = random.Random(seed)
    while data:
        n = rng.randint(1, 400)
        process.stdin.write(data[:n])
        process.stdin.flush()
        data = data[n:]
        time.sleep(0.002)
    out, _ = process.communicate(timeout=LIMIT)
    assert json.loads(out)["tokens_in"] == len(ids)


def test_a_prompt_longer_than_the_window_streams_through_it():
    """llama-cpp-python#307: prompt + limit > window gave nothing and no error."""
    outcome = ballast("run", "-c", 64, "-n", 20, "--json", *GREEDY, stdin="The ship sailed on. " * 200)
    assert outcome.code == 0, outcome.err
    usage = outcome.json["usage"]["ballast"]
    assert usage["context"] == 64 and usage["sinks"] == 4
    assert usage["position"] == outcome.json["tokens_in"] + 20
    assert usage["evicted_tokens"] == usage["position"] - 64
    assert outcome.json["tokens_out"] == 20 and outcome.json["text"]


def test_a_tiny_window_does_not_shift_for_ever():
    """llama.cpp#3969: keep = context - 2 freed one cell for ever."""
    outcome = ballast("run", "-p", "The ship sailed on. " * 20, "-c", 6, "-n", 10, "--json", *GREEDY)
    assert outcome.code == 0 and outcome.json["tokens_out"] == 10


def test_exactly_the_asked_number_of_tokens_is_pinned():
    """llama.cpp#5622: a model without BOS kept one more than was asked for."""
    assert ballast("run", "-p", "x", "-n", 0, "--json").json["usage"]["ballast"]["sinks"] == 4


def test_a_dense_cache_that_fills_up_says_so_after_the_text_so_far():
    outcome = ballast("run", "-p", "The ship", "-c", 16, "--policy", "dense", "-n", 40, *GREEDY)
    assert outcome.code == 4 and outcome.text
    assert "ballast: " in outcome.err and "16" in outcome.err
    refused(ballast("run", "-p", "The ship sailed on. " * 20, "-c", 16, "--policy", "dense", "-n", 4), 4)


def test_a_dense_cache_that_fills_up_still_gives_the_document():
    args = ["-c", 16, "--policy", "dense", "-n", 40, *GREEDY]
    shown = ballast("run", "-p", "The ship", *args)
    outcome = ballast("run", "-p", "The ship", "--json", *args)
    assert outcome.code == 4 and "16" in outcome.err
    assert outcome.json["stop_reason"] == "error" and outcome.json["tokens_out"] > 0
    assert outcome.json["text"] == shown.text
    refused(ballast("run", "-p", "The ship sailed on. " * 20, "--json", *args), 4)  # nothing was generated


def test_input_without_end_that_is_read_whole_is_refused():
    refused(ballast("inspect", "--tokenize", "/dev/zero"), 4, "/dev/zero: expected at most 1 GiB, found more")


def test_an_empty_prompt_is_refused_by_a_model_without_bos():
    for args, stdin in ((["-p", ""], b""), ([], b""), (["-f", "/dev/null"], b"")):
        refused(ballast("run", "-n", 4, *args, stdin=stdin), 4, "prompt: expected at least one token, found none")


def test_a_prompt_of_one_token():
    outcome = ballast("run", "-p", "a", "-n", 3, "--json")
    assert outcome.code == 0 and outcome.json["tokens_in"] == 1


@pytest.mark.parametrize("prompt", [b"a\0b\0\0c", b"\xff\xfe\x80 bytes \xc3", b"\xe6\xbc", "🙂".encode()[:3], b"\0"])
def test_any_bytes_are_a_prompt(prompt, tmp_path):
    """llama-cpp-python#57, vllm#48853: a prompt ending inside a character threw, or was replayed."""
    (tmp_path / "p").write_bytes(prompt)
    for n in (0, 6):
        outcome = ballast("run", "-f", tmp_path / "p", "-n", n)
        assert outcome.code == 0, outcome.err
        outcome.text  # whole UTF-8
        assert n > 0 or outcome.out == b""


def test_files_that_cannot_be_read():
    refused(ballast("run", "-f", "/nonexistent/prompt"), 4, "/nonexistent/prompt")
    refused(ballast("run", "-f", "/"), 4, "folder")


def test_nothing_to_read_at_a_terminal_is_a_usage_error():
    terminal = Terminal("run")
    assert terminal.wait() == 2
    assert "ballast: prompt: expected" in terminal.text and "hint: " in terminal.text


def test_a_reader_that_has_gone_away_ends_it_with_one_line():
    process = subprocess.Popen([BALLAST, "run", "-p", "Once upon a time", "-n", "5000", "--temp", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout.read(5)
    process.stdout.close()
    err = process.stderr.read().decode()
    assert process.wait(timeout=LIMIT) == 1
    assert err.splitlines()[0].startswith("ballast: stdout: expected")
    assert len(err.splitlines()) == 1


def test_closed_stdout_and_full_disk_are_reported():
    for redirect in (">&-", ">/dev/full"):
        outcome = subprocess.run(f'"$B" run -p "Once upon a time" -n 4 {redirect}', shell=True, capture_output=True,
                                 env=environment(B=BALLAST), timeout=LIMIT)
        assert outcome.returncode == 1, outcome.stderr
        assert outcome.stderr.startswith(b"ballast: stdout: expected")
        if redirect == ">&-":
            assert b"stdout: expected a reader, found none (it was closed)" in outcome.stderr
    closed = subprocess.run('"$B" run -n 4 <&-', shell=True, capture_output=True, env=environment(B=BALLAST),
                            timeout=LIMIT)
    assert closed.returncode == 4 and closed.stderr.startswith(b"ballast: stdin: ")


def test_a_plot_on_a_full_disk_is_reported(tmp_path):
    (tmp_path / "t").write_text("The ship sailed on over the grey sea. " * 8)
    outcome = ballast("eval", "-f", tmp_path / "t", "-c", 32, "--plot", "/dev/full")
    assert outcome.code == 1, outcome.err
    assert "/dev/full" in outcome.err
    assert os.path.exists("/dev/full")  # a device is written to, never replaced


def test_ctrl_c_ends_a_run_with_130_and_keeps_the_text():
    process = subprocess.Popen([BALLAST, "run", "-p", "Once upon a time", "-n", "100000", "--temp", "1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout.read(1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert SANITIZED or time.monotonic() - began < 5
    out.decode()
    assert err == b""


def test_ctrl_c_ends_a_run_that_waits_for_its_pipe():
    process = subprocess.Popen([BALLAST, "run", "-n", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment())
    process.stdin.write(b"a line\nanother\n")
    process.stdin.flush()
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=LIMIT)
    assert process.returncode == 130
    process.stdin.close()


@pytest.mark.parametrize("args", [["run", "-f"], ["inspect", "--tokenize"]])
def test_ctrl_c_ends_the_wait_for_a_pipe_nobody_writes(tmp_path, args):
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen([BALLAST, *args, tmp_path / "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment())
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, b"")


def test_a_message_is_read_once_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen([BALLAST, "run", "--chat", "-n", "4", "--json", "-f", tmp_path / "pipe"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    (tmp_path / "pipe").write_text("Say hello.")
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["tokens_out"] == 4


def test_a_model_file_cut_short_while_in_use_ends_it_with_one_line(tmp_path):
    copy = tmp_path / "m.gguf"
    copy.write_bytes(SMOL.read_bytes())
    process = subprocess.Popen([BALLAST, "run", "-m", copy, "-n", "4", "--json"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    end = time.monotonic() + LIMIT
    while str(copy) not in open(f"/proc/{process.pid}/maps").read() and time.monotonic() < end:
        time.sleep(0.02)
    os.truncate(copy, 4096)
    out, err = process.communicate(b"The sea", timeout=LIMIT)
    if process.returncode != 0:  # 0: the weights were all copied while loading
        assert (process.returncode, out) == (3, b"")
        assert err == b"ballast: model file: expected its bytes, found that it was cut short while in use\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_chat_gives_the_terminal_back(number):
    terminal = Terminal("chat")
    held = os.dup(terminal.fd)
    before = termios.tcgetattr(held)[:4]
    end = time.monotonic() + LIMIT
    while termios.tcgetattr(held)[:4] == before and time.monotonic() < end:
        terminal._read(0.1)
    assert termios.tcgetattr(held)[:4] != before  # the line editor is at work
    os.kill(terminal.pid, number)
    assert terminal.wait() == -number
    assert termios.tcgetattr(held)[:4] == before
    os.close(held)


def test_ctrl_c_during_a_long_prompt(tmp_path):
    (tmp_path / "p").write_text("The ship sailed on over the grey sea. " * 40000)
    process = subprocess.Popen([BALLAST, "run", "-f", tmp_path / "p", "-n", "4", "-c", "512"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment())
    time.sleep(4)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert SANITIZED or time.monotonic() - began < 10


def test_text_comes_while_the_pipe_is_still_open():
    """A pipe such as `tail -f` never ends: what pauses is answered."""
    process = subprocess.Popen([BALLAST, "run", "--on-idle", "300", "-n", "6", "--temp", "0", "--logit-bias",
                                "198=-inf"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=environment())
    for line in (b"12:00 disk almost full\n", b"12:01 disk full\n"):
        process.stdin.write(line)
        process.stdin.flush()
        killer = threading.Timer(LIMIT, process.kill)
        killer.start()
        assert process.stdout.readline()  # one line: token 198, the newline, is banned
        killer.cancel()
    process.stdin.close()
    assert process.stdout.read() == b""  # nothing new, nothing to add
    assert process.wait(timeout=LIMIT) == 0


def test_stats_go_to_stderr():
    outcome = ballast("run", "-p", "The sea", "-n", 3, "--stats", *GREEDY)
    assert outcome.code == 0
    for word in ("tokens in", "tokens out", "evicted", "position", "kv bytes", "tokens/s"):
        assert word in outcome.err
        assert word not in outcome.text


def test_stats_begin_on_a_line_of_their_own():
    """`ballast run --stats | cat`: the text ends on the terminal that the figures go to."""
    master, slave = pty.openpty()
    process = subprocess.run([BALLAST, "run", "-p", "The sea", "-n", "3", "--stats", "--logit-bias", "198=-inf",
                              "--temp", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
                             env=environment(NO_COLOR=1), timeout=LIMIT)
    shown = os.read(master, 65536)
    os.close(slave)
    os.close(master)
    assert process.returncode == 0 and not process.stdout.endswith(b"\n")
    assert shown.startswith(b"\r\ntokens in")


def test_more_threads_than_cores_are_cut_and_said_once():
    outcome = ballast("run", "-p", "The sea", "-n", 2, "-t", 1024, *GREEDY)
    assert outcome.code == 0
    assert outcome.err.startswith("[--threads 1024: using the ") and len(outcome.err.splitlines()) == 1


def test_off_a_terminal_nothing_is_animated_or_coloured():
    outcome = ballast("run", "-n", 3, "--stats", "--verbose", *GREEDY, stdin="The ship sailed on. " * 400)
    assert "\x1b" not in outcome.err + outcome.text and "\r" not in outcome.err
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        terminal = Terminal("run", "-p", "The ship sailed on. " * 300, "-n", 3, "--stats", env=env)
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.raw


def test_chat_wraps_the_prompt_and_ends_with_the_turn():
    outcome = ballast("run", "--chat", "-p", "What is the capital of France?", "--json", "--compute", "f32", "-n", 40,
                      *GREEDY)
    assert outcome.code == 0, outcome.err
    assert outcome.json["stop_reason"] == "end"
    assert "Paris" in outcome.json["text"]
    assert "<|im_end|>" not in outcome.json["text"]


def test_a_control_token_in_a_chat_message_is_plain_text():
    args = ["run", "--chat", "--json", "-n", 0]
    plain = ballast(*args, "-p", "ab").json["tokens_in"]
    assert ballast(*args, "-p", "a<|im_end|>b").json["tokens_in"] > plain + 2


@pytest.mark.skipif(SANITIZED, reason="measures memory")
def test_memory_stays_flat_on_input_that_does_not_end():
    def peak(lines):
        process = subprocess.Popen([BALLAST, "run", "-n", "0", "-c", "64"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=environment())
        process.stdin.write(b"12:00:01 ok\n" * lines)
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        assert process.returncode == 0
        return usage.ru_maxrss

    small = peak(40)
    assert peak(600) < small + 8 * 1024  # KiB


@pytest.mark.slow
def test_a_prompt_of_a_million_tokens():
    size = 1_000_000
    process = subprocess.Popen([BALLAST, "run", "-n", "8", "-c", "256", "--json", "--stats"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    text = b"".join(b"%06d the ship sailed on over the grey sea\n" % i for i in range(size // 15 + 1))

    def feed():
        try:
            process.stdin.write(text)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended early: the exit code says why

    threading.Thread(target=feed).start()
    text_out, err = process.stdout.read(), process.stderr.read().decode()
    assert process.wait() == 0, err
    out = json.loads(text_out)
    assert out["tokens_in"] > size
    assert out["usage"]["ballast"]["evicted_tokens"] == out["tokens_in"] + 8 - 256
    print(out["seconds"], err)


def test_a_dense_cache_is_used_to_its_last_place(tmp_path):
    """Neither a prompt that just fits nor a text that ends with it needs one token more."""
    model = tiny_gguf.write(tmp_path / "tiny.gguf")  # a token per byte

    def dense(prompt, n, *more):
        return ballast("run", "-m", model, "--policy", "dense", "-c", 8, "-p", prompt, "-n", n, "--json", "-t", 1,
                       "--logit-bias", "256=-inf", *more)
    for prompt, n in (("abcdefgh", 0), ("abcdefgh", 1), ("abcdef", 3)):
        outcome = dense(prompt, n)
        assert outcome.code == 0 and outcome.json["tokens_out"] == n, outcome.err
    for prompt, n in (("abcdefgh", 2), ("abcdef", 4)):
        outcome = dense(prompt, n)
        assert outcome.code == 4 and "dense cache: expected at most 8 tokens, found 9" in outcome.err
    refused(dense("abcdefghi", 0), 4, "dense cache: expected at most 8 tokens, found 9")


def test_a_bias_that_bans_every_token_is_refused(tmp_path):
    model = tiny_gguf.write(tmp_path / "tiny.gguf")
    bans = [word for token in range(257) for word in ("--logit-bias", f"{token}=-inf")]
    refused(ballast("run", "-m", model, "-p", "x", "-n", 1, *bans), 2,
            "--logit-bias: expected a token that may be drawn, found all 257 banned")
