"""--on-collapse and ballast trial: a stream that loses its sinks is noticed by name, ended or rescued."""
import pytest
from conftest import ROOT, ballast, refused

STREAM = (ROOT / "tests/goldens/stream.txt").read_text()[:1200]
WRITE = ["run", "-p", STREAM, "-c", 96, "-s", 1, "--temp", 1, "-n", 60, "-t", 1]
# What may end the text early is banned: the end of a turn.
BANNED = ["--logit-bias", "0=-inf", "--logit-bias", "2=-inf"]
WINDOW = [*WRITE, "--policy", "window"]


def test_a_warning_is_one_line_and_ends_nothing():
    outcome = ballast(*WINDOW, *BANNED)
    assert outcome.code == 0, outcome.err
    lines = [line for line in outcome.err.splitlines() if "collapse" in line]
    assert len(lines) == 1 and lines[0].startswith("ballast: warning: ") and "sink loss" in lines[0], outcome.err


def test_pinned_sinks_are_well():
    outcome = ballast(*WRITE, *BANNED, "--json")
    assert outcome.json["usage"]["ballast"]["health"] == {"state": "ok", "reason": None, "since": None, "rescues": 0}
    assert "collapse" not in outcome.err


def test_stop_ends_the_text_with_a_reason_and_5():
    outcome = ballast(*WINDOW, *BANNED, "--on-collapse", "stop", "--json")
    assert outcome.code == 5
    assert outcome.json["stop_reason"] == "collapsed"
    assert outcome.json["usage"]["ballast"]["health"]["reason"] == "sink loss"
    assert outcome.json["tokens_out"] < 60
    assert "stopped: the text collapsed, sink loss" in outcome.err


def test_a_rescue_goes_on_behind_sinks():
    outcome = ballast(*WINDOW, *BANNED, "--json", env={"BALLAST_ON_COLLAPSE": "rescue"})
    assert outcome.code == 0, outcome.err
    usage = outcome.json["usage"]["ballast"]
    assert usage["health"] == {"state": "ok", "reason": None, "since": None, "rescues": 1}
    assert usage["sinks"] == 4
    assert outcome.json["tokens_out"] == 60
    assert usage["position"] == outcome.json["tokens_in"] + 60


def test_a_loop_is_named_so():
    outcome = ballast("run", "-p", "one two one two one two one two one two one two", "-n", 600, "-t", 1, "--temp", 0, *BANNED,
                      "--json", "--on-collapse", "stop")
    assert outcome.code == 5
    assert outcome.json["usage"]["ballast"]["health"]["reason"] == "repetition"
    assert outcome.json["tokens_out"] < 600


def test_a_chat_is_rescued_too():
    turns = "\n".join(f"Tell me about the number {i}." for i in range(6))
    outcome = ballast("chat", "-c", 128, "--policy", "window", "-n", 40, "-t", 1, "-s", 2, "--json", "--on-collapse", "rescue",
                      stdin=turns + "\n")
    assert outcome.code == 0, outcome.err
    assert outcome.json["usage"]["ballast"]["health"]["rescues"] >= 1
    assert outcome.json["usage"]["ballast"]["sinks"] == 4


@pytest.mark.parametrize("command", [["run", "-p", "x"], ["chat"], ["serve"]])
def test_another_action_is_refused(command):
    refused(ballast(*command, "--on-collapse", "panic"), 2, "--on-collapse", "warn, stop or rescue", "panic")


def test_a_trial_tells_when_and_why(tmp_path):
    text = tmp_path / "text"
    text.write_text(STREAM * 2)
    run = ["trial", "-f", text, "-c", 96, "-t", 1, "--json"]
    window = ballast(*run, "--policy", "window", "--rescue").json
    assert [alarm["reason"] for alarm in window["alarms"]] == ["sink loss"]
    assert 0 <= window["alarms"][0]["after_roll_over"] < 128
    assert window["after_rescue"]["ratio"] < 1.5
    sinks = ballast(*run).json
    assert sinks["alarms"] == [] and sinks["false_alarms"] == 0


def test_a_trial_of_streams_that_write(tmp_path):
    openings = tmp_path / "openings"
    openings.write_text("Once upon a time\n\nThe sea\n")
    run = ballast("trial", "--streams", 2, "--length", 200, "-f", openings, "-c", 48, "--policy", "window", "--json",
                  "--temp", 1, "-s", 1, "-t", 1).json
    assert run["tokens"] == 400
    assert sorted(alarm["stream"] for alarm in run["alarms"] if alarm["reason"] == "sink loss") == [0, 1]
    refused(ballast("trial", "--streams", 2), 2, "-f")
