"""A model whose output is no number: every measurement says so, and none passes."""
import json

import pytest
import tiny_gguf
from conftest import ballast, refused
from serve_process import Server

WORDS = "expected a number, found none, since the model's output is not finite"


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Finite weights, which loading accepts, whose products overflow."""
    return tiny_gguf.write(tmp_path_factory.mktemp("model") / "broken.gguf", norm=3e38)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(b"".join(b"line %d of the log\n" % i for i in range(40)))
    return path


def run(broken, command, *args):
    return ballast(command, *args, "-m", broken, "-t", 1)


def strict(text):
    """JSON knows no NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_eval_prints_what_there_is_and_fails(broken, text):
    outcome = run(broken, "eval", "-f", text, "-c", 64, "--json", "--per-token")
    assert outcome.code == 3 and f"ballast: perplexity (sinks): {WORDS}" in outcome.err
    assert strict(outcome.text)["runs"][0]["perplexity"] is None
    table = run(broken, "eval", "-f", text, "-c", 64)
    assert table.code == 3 and "no number" in table.text and "nan" not in table.text


def test_the_gate_fails_and_is_not_conclusive(broken, text, tmp_path):
    report = tmp_path / "report.html"
    args = ("-f", text, "-c", 64, "--gate", 1.1)
    outcome = run(broken, "eval", *args, "--json", "--report", report)
    assert outcome.code == 5 and "found no number, since the model's output is not finite" in outcome.err
    gate = strict(outcome.text)["gate"]
    assert (gate["passed"], gate["conclusive"], gate["ratio"]) == (False, False, None)
    assert "nan" not in report.read_text().replace("provenance", "")
    assert "gate: failed: sinks is not to be compared with dense at 750 after roll-over" in run(broken, "eval", *args).text


def test_calibrate_writes_no_profile(broken, text, tmp_path):
    profile = tmp_path / "profile.json"
    outcome = run(broken, "calibrate", "-f", text, "--contexts", "64,128", "--sinks-list", "0,4", "--profile", profile)
    refused(outcome, 3, f"calibrate: the best perplexity: {WORDS}")
    assert not profile.exists()


def test_watch_does_not_call_it_no_surprise(broken, text):
    refused(run(broken, "watch", text, "--once", "-c", 64), 3, f"surprise of a line: {WORDS}")


def test_probe_does_not_call_it_not_vulnerable(broken, text):
    refused(run(broken, "probe", "-f", text), 3, f"the sink map: {WORDS}")


@pytest.mark.parametrize("what", ["run", "chat"])
def test_a_reply_ends_with_the_reason(broken, what):
    args = ["-p", "abc", "-n", 4] if what == "run" else ["--chat-format", "chatml"]
    outcome = ballast(what, *args, "--on-collapse", "stop", "-m", broken, "-t", 1, stdin=b"" if what == "run" else b"hi\n")
    assert outcome.code == 3 and "expected a finite logit, found none in 257" in outcome.err


def test_serve_says_whose_fault_it_is_and_raises_the_alarm(broken):
    server = Server("-m", broken, "-t", 1)
    status, answer = server.json("POST", "/v1/completions", {"prompt": "abc", "max_tokens": 4})
    assert (status, answer["error"]["code"]) == (500, "model_failed") and "finite logit" in answer["error"]["message"]
    assert server.metric('ballast_collapse_alarms_total{reason="non_finite"}') == 1
    assert server.json("GET", "/health")[0] == 200  # others' sessions go on
    assert server.stop() == 0


def test_trial_notices_and_fails(broken, text):
    outcome = run(broken, "trial", "-f", text, "-c", 64, "--json")
    assert outcome.code == 3 and WORDS in outcome.err
    assert strict(outcome.text)["alarms"][0]["reason"] == "non-finite"
