"""eval and probe: the JSON others rely on, tables for people, the gate's exit code, and input that is refused."""
import json
import math
import pathlib
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import BALLAST, LIMIT, SANITIZED, ballast, environment, refused

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens"
TEXT = GOLDENS / "stream.txt"


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDENS / "smollm2_stream.json").read_text())


@pytest.fixture
def tokens(tmp_path, golden):
    """A token file of the first n golden tokens."""
    def make(n):
        path = tmp_path / f"tokens{n}.json"
        path.write_text(json.dumps({"tokens": golden["tokens"][:n]}))
        return path
    return make


def test_eval_json_has_what_others_rely_on(tokens):
    outcome = ballast("eval", "--tokens", tokens(200), "-c", 64, "--per-token", "--json", "--policy", "sinks",
                      "--policy", "window")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    document = outcome.json
    assert document["tokens"] == 200
    assert set(document["model"]) >= {"name", "sha256", "architecture"}
    assert "gate" not in document
    sinks, window = document["runs"]
    assert (sinks["policy"], sinks["sinks"], sinks["context"]) == ("sinks", 4, 64)
    assert (window["policy"], window["sinks"], window["context"]) == ("window", 0, 64)
    for run in document["runs"]:
        assert (run["kv"], run["compute"]) == ("q8", "fast")
        assert len(run["nll"]) == 199
        assert run["mean_nll"] == pytest.approx(sum(run["nll"]) / 199, abs=1e-5)
        assert run["perplexity"] == pytest.approx(math.exp(run["mean_nll"]))
        assert [(b["from"], b["to"]) for b in run["blocks"]] == [(0, 200)]
        assert run["evicted_tokens"] == 136
        assert run["seconds"] > 0 and run["tokens_per_second"] > 0
        assert run["kv_bytes"] > 0 and run["rss_peak_bytes"] > run["kv_bytes"]


def test_per_token_only_when_asked(tokens):
    assert "nll" not in ballast("eval", "--tokens", tokens(20), "--json").json["runs"][0]


def test_text_and_tokens_agree(tokens):
    """A text is tokenised as its bytes; -f, stdin and --tokens score the same ids."""
    by_ids = ballast("eval", "--tokens", tokens(80), "-c", 32, "--json").json
    by_text = ballast("eval", "-f", TEXT, "--limit", 80, "-c", 32, "--json").json
    by_pipe = ballast("eval", "-f", "-", "--limit", 80, "-c", 32, "--json", stdin=TEXT.read_bytes()).json
    assert by_text["tokens"] == by_pipe["tokens"] == 80
    for other in (by_text, by_pipe):
        assert other["runs"][0]["mean_nll"] == pytest.approx(by_ids["runs"][0]["mean_nll"], abs=1e-9)


def test_table_marks_the_moment_of_rollover(tokens):
    outcome = ballast("eval", "--tokens", tokens(120), "-c", 64, "--dense-context", 120, "--policy", "dense",
                      "--policy", "sinks")
    assert outcome.code == 0, outcome.err
    assert "-- cache full at token 64: eviction starts, inside the next row --" in outcome.text
    for word in ("dense", "sinks", "perplexity", "tokens/s", "evicted tokens"):
        assert word in outcome.text
    assert "\x1b" not in outcome.text


@pytest.mark.parametrize("text,found", [("", "found 0"), ("a", "found 1")])
@pytest.mark.parametrize("command", ["eval", "probe"])
def test_nothing_to_score(command, text, found):
    """streaming-llm issue 77: a sample of one token is no exception."""
    refused(ballast(command, "-f", "-", stdin=text), 4, "nothing to score", "at least 2 tokens", found)


@pytest.mark.parametrize("contents,words", [
    ('{"tokens":[1,49152]}', ["tokens[1]", "49152"]),
    ('{"tokens":[1,2,-1]}', ["tokens[2]", "-1"]),
    ('{"tokens":[1.5]}', ["tokens[0]", "1.5"]),
    ('{"ids":[1]}', ['"tokens"', "none"]),
    ('[1,2]', ["expected an object", "found an array"]),
    ('{"tokens":5}', ['"tokens": expected an array', "found a number"]),
    ("plain text", ["JSON"]),
])
def test_bad_token_files(tmp_path, contents, words):
    path = tmp_path / "bad.json"
    path.write_text(contents)
    refused(ballast("eval", "--tokens", path), 4, "bad.json", *words)


@pytest.mark.parametrize("args,words", [
    (["eval"], ["neither"]),
    (["eval", "-f", TEXT, "--tokens", "x"], ["both"]),
    (["eval", "-f", TEXT, "--limit", "0"], ["--limit"]),
    (["eval", "-f", TEXT, "--policy", "lru"], ["--policy", "lru"]),
    (["eval", "-f", TEXT, "--limit", "40", "--policy", "sinks", "-c", "4"], ["--context", "at least 5"]),
    (["eval", "-f", TEXT, "--limit", "40", "--chunk", "0"], ["--chunk"]),
    (["eval", "-f", TEXT, "--gate", "0"], ["--gate"]),
    (["eval", "-f", TEXT, "--gate", "nan"], ["--gate"]),
    (["eval", "-f", TEXT, "--limit", "40", "--policy", "dense", "--gate", "2"], ["--gate", "dense alone"]),
    (["eval", "-f", TEXT, "--pin-system"], ["--pin-system"]),
    (["probe", "-f", TEXT, "--pin-system"], ["--pin-system", "probe"]),
    (["inspect", "--pin-system"], ["--pin-system", "inspect"]),
    (["eval", "-f", TEXT, "--dense-context", "9223372036854775807"], ["--dense-context: expected 1 to"]),
    (["probe", "-f", TEXT, "--threshold", "1"], ["--threshold"]),
    (["probe", "-f", TEXT, "--kv", "q3"], ["--kv", "q3"]),
    (["probe", "-f", TEXT, "--policy", "foo"], ["--policy", "foo"]),
    (["probe", "-f", TEXT, "--limit", "-2"], ["--limit", "-1 for all"]),
])
def test_usage(args, words):
    refused(ballast(*args), 2, *words)


def test_missing_file():
    refused(ballast("eval", "-f", "no/such/file"), 4, "no/such/file")


def test_dense_too_small_is_refused_before_any_policy_runs(tokens):
    start = time.monotonic()
    outcome = ballast("eval", "--tokens", tokens(5000), "-c", 64, "--policy", "recompute", "--policy", "dense")
    refused(outcome, 4, "dense cache", "at most 64 tokens", "5000")
    assert SANITIZED or time.monotonic() - start < 60  # recomputation of 5000 tokens would take far longer


class TestGate:
    def run(self, tokens, limit, *policies, n=700):
        args = [a for p in policies for a in ("--policy", p)]
        return ballast("eval", "--tokens", tokens(n), "-c", 128, *args, "--gate", limit, "--json")

    def test_sinks_pass(self, tokens):
        outcome = self.run(tokens, 1.4, "sinks")
        assert outcome.code == 0, outcome.err
        gate = outcome.json["gate"]
        assert gate["passed"] is True and gate["limit"] == 1.4 and 0.8 < gate["ratio"] <= 1.4
        assert gate["reference"]["policy"] == "dense"
        assert len(outcome.json["runs"]) == 1  # the reference is nobody's run

    def test_the_bug_fails_with_5_and_results_are_still_there(self, tokens):
        outcome = self.run(tokens, 1.4, "sinks", "window")
        assert outcome.code == 5
        assert outcome.err.startswith("ballast: gate: ")
        assert "window" in outcome.err
        gate = outcome.json["gate"]
        assert gate["passed"] is False and gate["ratio"] > 1.4 and gate["worst_policy"] == "window"
        assert [r["policy"] for r in outcome.json["runs"]] == ["sinks", "window"]

    def test_too_short_to_roll_over(self, tokens):
        refused(self.run(tokens, 1.4, "sinks", n=129), 4, "too short to roll over", "at least 130 tokens")


class TestPlot:
    def test_curves(self, tmp_path, tokens):
        path = tmp_path / "curves.svg"
        outcome = ballast("eval", "--tokens", tokens(200), "-c", 64, "--policy", "sinks", "--policy", "window",
                          "--plot", path)
        assert outcome.code == 0, outcome.err
        svg = path.read_text()
        ElementTree.fromstring(svg)
        assert "cache of 64 full" in svg and "window: 64, no sinks" in svg and "<script" not in svg

    def test_heat_map(self, tmp_path, tokens):
        path = tmp_path / "map.svg"
        outcome = ballast("probe", "--tokens", tokens(120), "--plot", path)
        assert outcome.code == 0, outcome.err
        ElementTree.fromstring(path.read_text())
        assert path.read_text().count("<title>") == 270

    @pytest.mark.parametrize("command", ["eval", "probe"])
    def test_a_picture_that_cannot_be_written_is_refused_before_any_work(self, tmp_path, tokens, command):
        for path in (tmp_path / "no" / "dir.svg", tmp_path):
            refused(ballast(command, "--tokens", tokens(30), "--plot", path, "-m", "no/model"), 4, str(path))
        assert list(tmp_path.glob("*.svg*")) == []

    @pytest.mark.parametrize("command", ["eval", "probe"])
    def test_a_picture_does_not_replace_what_is_read(self, tmp_path, command):
        text = tmp_path / "text"
        text.write_text("one two three")
        (tmp_path / "link").symlink_to(text)
        for path in (text, tmp_path / "link"):
            refused(ballast(command, "-f", text, "--plot", path), 2, "--plot: expected a file of its own, found that of --file")
        assert text.read_text() == "one two three"

    def test_two_pictures_are_two_files(self, tmp_path, tokens):
        refused(ballast("eval", "--tokens", tokens(30), "--plot", tmp_path / "x", "--report", f"{tmp_path}/./x"), 2,
                "--report: expected a file of its own, found that of --plot")

    def test_results_come_even_when_the_picture_cannot(self, tokens):
        outcome = ballast("eval", "--tokens", tokens(30), "--json", "--plot", "/dev/full")
        assert outcome.code == 1
        assert "/dev/full" in outcome.err and outcome.err.startswith("ballast: ")
        assert outcome.json["tokens"] == 30


def test_probe_json(tokens):
    outcome = ballast("probe", "--tokens", tokens(300), "--json")
    assert outcome.code == 0, outcome.err
    document = outcome.json
    assert document["tokens"] == 300 and document["threshold"] == 0.05
    for key in ("mean", "p10"):
        assert len(document[key]) == 30 and all(len(row) == 9 for row in document[key])
        assert all(0 <= v <= 1 for row in document[key] for v in row)
    heads = [v for row in document["mean"] for v in row]
    assert document["heads_over_threshold"] == pytest.approx(sum(v > 0.05 for v in heads) / 270)
    assert document["verdict"] == "vulnerable"
    assert "%" in document["why"]


def test_probe_limit_of_minus_one_is_all(tokens):
    assert ballast("probe", "--tokens", tokens(40), "--limit", -1, "--json").json["tokens"] == 40
    text = ballast("probe", "--help").text
    assert "(1024)" in text and "dense run" in text


def test_probe_shows_a_plain_map_and_warns_on_short_texts():
    outcome = ballast("probe", "-f", "-", stdin="The keeper of the lighthouse wrote in his log every evening.")
    assert outcome.code == 0
    assert "short text" in outcome.err
    assert "\x1b" not in outcome.text
    assert sum(line[:5].strip().isdigit() for line in outcome.text.splitlines()) == 30


def test_ctrl_c_ends_with_130(tokens):
    process = subprocess.Popen([BALLAST, "eval", "--tokens", tokens(5000), "-c", "2048", "--policy", "recompute"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    assert out == b""
