"""Flags, their environment twins, and bad input before a model runs: one clear line and the right code."""
import pytest
from conftest import SMOL, ballast, refused


@pytest.mark.parametrize("args,words", [
    (["frobnicate"], ["command", "frobnicate"]),
    (["rnu"], ["did you mean run?"]),
    ([], ["command", "found none"]),
    (["--frob"], ["--frob"]),
    (["run", "--frobnicate", "-p", "x"], ["--frobnicate", "hint: ballast run --help"]),
    (["run", "--tmep", "0"], ["--tmep", "did you mean --temp?"]),
    (["run", "-p", "x", "stray"], ["stray"]),
    (["run", "-p", "x", "-n"], ["--max-tokens", "value"]),
    (["run", "-p", "x", "-n", "two"], ["--max-tokens", '"two"']),
    (["run", "-p", "x", "-n", "5x"], ["--max-tokens", '"5x"']),
    (["run", "-p", "x", "-n", ""], ["--max-tokens"]),
    (["run", "-p", "x", "-n", "99999999999999999999"], ["--max-tokens"]),
    (["run", "-p", "x", "-n", "-2"], ["--max-tokens", "-1 or more"]),
    (["run", "-p", "x", "-t", "-1"], ["--threads"]),
    (["run", "-p", "x", "-t", "100000"], ["--threads"]),
    (["run", "-p", "x", "-t", "3000000000"], ["--threads"]),
    (["run", "-p", "x", "-s", "-1"], ["--seed"]),
    (["run", "-p", "x", "-s", "18446744073709551616"], ["--seed"]),
    (["run", "-p", "x", "-c", "-5"], ["--context"]),
    (["run", "-p", "x", "--sinks", "-1"], ["--sinks"]),
    (["run", "-p", "x", "--temp", "-1"], ["temp", "-1"]),
    (["run", "-p", "x", "--temp", "nan"], ["temp"]),
    (["run", "-p", "x", "--top-p", "1.5"], ["top", "1.5"]),
    (["run", "-p", "x", "--logit-bias", "frog"], ["--logit-bias"]),
    (["run", "-p", "x", "--policy", "magic"], ["magic", "sinks"]),
    (["run", "-p", "x", "--policy", "sinks", "--policy", "window"], ["--policy", "one"]),
    (["run", "-p", "x", "--kv", "q3"], ["--kv", "q3"]),
    (["run", "-p", "x", "--compute", "slow"], ["--compute"]),
    (["run", "-p", "x", "--json=maybe"], ["json"]),
    (["run", "-p", "x", "-f", "y"], ["prompt", "both"]),
    (["run", "-p", "x", "--on-idle", "-1"], ["--on-idle"]),
    (["run", "-p", "x", "--pin-system"], ["--pin-system", "--system"]),
    (["chat", "--chat-format", "nonsense"], ["nonsense"]),
    (["run", "-p", "x", "--chat-format", "zzz"], ["zzz"]),
    (["run", "--frobnicate", "-p", "x"], ["ballast: run: expected one of its flags"]),
    (["--threads", "2", "run", "-p", "x"], ["found --threads before it", "hint: ballast run --threads"]),
    (["run", "-p", "x", "--policy", "magic"], ['found "magic"']),
    (["run", "-p", "x", "--sinks", "9223372036854775807"], ["--sinks: expected 0 to"]),
])
def test_bad_flags_are_usage_errors_on_one_line(args, words):
    refused(ballast(*args), 2, *words)


@pytest.mark.parametrize("name,value,args", [
    ("BALLAST_THREADS", "many", ["run", "-p", "x"]),
    ("BALLAST_SEED", "-3", ["run", "-p", "x"]),
    ("BALLAST_JSON", "perhaps", ["run", "-p", "x"]),
    ("BALLAST_CONTEXT", "1e3", ["chat"]),
    ("BALLAST_ISA", "z80", ["run", "-p", "x"]),
])
def test_a_bad_variable_is_named(name, value, args):
    refused(ballast(*args, env={name: value}), 2, name)


def test_environment_twins_work_and_the_flag_wins():
    env = {"BALLAST_MAX_TOKENS": 3, "BALLAST_JSON": 1, "BALLAST_SEED": 7, "BALLAST_CONTEXT": 128}
    from_env = ballast("run", "-p", "The sea", env=env)
    assert from_env.code == 0, from_env.err
    assert from_env.json["tokens_out"] == 3
    assert from_env.json["seed"] == 7
    assert from_env.json["usage"]["ballast"]["context"] == 128
    flag = ballast("run", "-p", "The sea", "-n", 2, "-s", 9, env=env)
    assert flag.json["tokens_out"] == 2
    assert flag.json["seed"] == 9
    assert ballast("run", "-p", "x", "-n", 0, env={"BALLAST_JSON": "0"}).out == b""


def test_a_prompt_flag_wins_over_the_other_ones_variable(tmp_path):
    (tmp_path / "p").write_text("one two three four five six")
    assert ballast("run", "-p", "x", "-n", 0, "--json", env={"BALLAST_FILE": tmp_path / "p"}).json["tokens_in"] == 1
    assert ballast("run", "-f", tmp_path / "p", "-n", 0, "--json", env={"BALLAST_PROMPT": "x"}).json["tokens_in"] == 6


@pytest.mark.parametrize("command", ["eval", "probe"])
def test_a_text_flag_wins_over_the_other_ones_variable(tmp_path, command):
    (tmp_path / "text").write_text("one two three four five six")
    (tmp_path / "ids").write_text('{"tokens":[1,2,3]}')
    by_file = ballast(command, "-f", tmp_path / "text", "--json", env={"BALLAST_TOKENS": tmp_path / "ids"})
    assert by_file.code == 0 and by_file.json["tokens"] == 6, by_file.err
    by_ids = ballast(command, "--tokens", tmp_path / "ids", "--json", env={"BALLAST_FILE": tmp_path / "text"})
    assert by_ids.code == 0 and by_ids.json["tokens"] == 3, by_ids.err


@pytest.mark.parametrize("args,flag", [
    (["run", "-p", "x", "-m"], "--model"),
    (["run", "-p", "x", "--profile"], "--profile"),
    (["run", "-f"], "--file"),
    (["run", "-p", "x", "--chat-format"], "--chat-format"),
    (["eval", "-f", "x", "--plot"], "--plot"),
    (["eval", "-f", "x", "--report"], "--report"),
    (["eval", "-f", "x", "--checkpoint"], "--checkpoint"),
    (["eval", "-f", "x", "--gate", "1", "--reference"], "--reference"),
    (["eval", "--tokens"], "--tokens"),
    (["probe", "-f", "x", "--plot"], "--plot"),
    (["calibrate", "-f", "x", "--contexts"], "--contexts"),
    (["inspect"], "file"),
    (["watch", "x", "-o"], "--out"),
    (["watch", "x", "--state"], "--state"),
    (["watch", "x", "--metrics"], "--metrics"),
    (["watch", "x", "--normal"], "--normal"),
    (["serve", "--host"], "--host"),  # would listen on every address
    (["serve", "--api-key-file"], "--api-key-file"),  # would stand open
    (["serve", "--api-key"], "--api-key"),
    (["serve", "--sessions-dir"], "--sessions-dir"),
    (["serve", "--cors-origin"], "--cors-origin"),
    (["serve", "--model-id"], "--model-id"),
])
def test_an_empty_path_or_name_is_refused(args, flag):
    """An unset shell variable in quotes must not switch the flag off in silence."""
    refused(ballast(*args, ""), 2, f'ballast: {flag}: expected a value, found ""')


def test_an_empty_text_is_a_text():
    assert ballast("run", "-p", "Hi", "--system", "", "--stop", "", "-n", 0).code == 0
    refused(ballast("run", "-p", "", "-n", 1), 4, "prompt: expected at least one token")


@pytest.mark.parametrize("args,flag", [
    (["trial", "--streams", -1], "--streams"),
    (["trial", "--length", -1], "--length"),
    (["eval", "--checkpoint-every", -1], "--checkpoint-every"),
])
def test_a_negative_count_is_refused(args, flag):
    refused(ballast(*args, "-f", "x"), 2, flag, "found -1")


def test_an_empty_variable_counts_as_unset():
    assert ballast("run", "-p", "x", "-n", 0, env={"BALLAST_THREADS": ""}).code == 0


def test_the_last_of_a_repeated_flag_counts():
    assert ballast("run", "-p", "The sea", "-n", 9, "-n", 2, "--json").json["tokens_out"] == 2


def test_help_and_version():
    for args in (["--help"], ["run", "--help"], ["chat", "--help"], ["inspect", "--help"], ["eval", "--help"]):
        outcome = ballast(*args)
        assert outcome.code == 0 and outcome.err == "" and "--help" in outcome.text
    assert "BALLAST_CONTEXT" in ballast("run", "--help").text
    for args in (["--version"], ["run", "--version"]):
        outcome = ballast(*args)
        assert outcome.code == 0 and outcome.text.startswith("ballast ")


def test_a_missing_model_is_refused_with_a_cure(tmp_path):
    refused(ballast("run", "-p", "x", "-m", tmp_path / "none.gguf"), 3, "none.gguf", "hint:")
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><html>not found</html>")
    refused(ballast("run", "-p", "x", "-m", page), 3, "page.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    refused(ballast("run", "-p", "x", "-m", tmp_path / "empty.gguf"), 3, "empty.gguf")
    refused(ballast("run", "-p", "x", "-m", tmp_path), 3)


def test_a_truncated_model_is_refused(tmp_path):
    cut = tmp_path / "cut.gguf"
    with open(SMOL, "rb") as whole:
        cut.write_bytes(whole.read(3_000_000))
    refused(ballast("run", "-p", "x", "-m", cut), 3, "cut.gguf")


def test_the_default_model_is_found_from_the_current_folder(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / SMOL.name).symlink_to(SMOL)
    outcome = ballast("run", "-p", "The sea", "-n", 1, "--json", env={"BALLAST_MODEL": ""}, cwd=tmp_path)
    assert outcome.code == 0, outcome.err


def test_a_context_without_room_for_the_pinned_tokens_is_a_usage_error():
    refused(ballast("run", "-p", "x", "-c", 4), 2, "4")  # 4 sinks and no window
    refused(ballast("run", "-p", "x", "-c", 1, "--sinks", 1), 2)
    refused(ballast("chat", "-c", 20, "--pin-system", "--system", "one two three " * 20), 2, "--context", "pinned")
    refused(ballast("run", "-p", "x", "-c", 10**15), 2)
