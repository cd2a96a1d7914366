"""ballast chat: through a pipe and on a terminal."""
import json
import signal
import subprocess
import time

import pytest
from conftest import BALLAST, LIMIT, Terminal, ballast, environment, refused

GREEDY = ["--temp", 0, "-n", 16]
# Where texts are compared across two ways of feeding, or knowledge is asked: with 135M parameters near ties abound,
# and quantised arithmetic rounds them either way.
EXACT = ["--compute", "f32", "--kv", "f32"]


def test_piped_lines_are_messages():
    outcome = ballast("chat", *GREEDY, *EXACT, stdin="What is the capital of France?\n\n   \nAnd of Italy?\n")
    assert outcome.code == 0, outcome.err
    assert "Paris" in outcome.text
    assert len([line for line in outcome.text.splitlines() if line]) >= 2
    assert outcome.err == "" and outcome.text.endswith("\n")
    assert "<|im_end|>" not in outcome.text


def test_a_last_line_without_a_newline_is_a_message():
    assert ballast("chat", *GREEDY, stdin="What is the capital of France?").text.strip()


def test_an_end_without_a_message_leaves_with_0():
    outcome = ballast("chat")
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "")


def test_commands_are_not_sent_and_unknown_ones_are_told():
    outcome = ballast("chat", *GREEDY, "--json", stdin="/nonsense\n/?\n/cache\n/sinks\n/stats\n/bye\nnever read\n")
    assert outcome.code == 0
    assert "/nonsense" in outcome.err
    outcome = ballast("chat", *GREEDY, "--json", stdin="/nonsense\nHello\n")
    document = outcome.json
    assert [m["role"] for m in document["messages"]] == ["user", "assistant"]
    assert document["messages"][0]["content"] == "Hello"
    slash = ballast("chat", *GREEDY, "--json", stdin="//etc is a folder\n").json
    assert slash["messages"][0]["content"] == "/etc is a folder"


def test_the_conversation_is_remembered_within_the_window():
    outcome = ballast("chat", "--temp", 0, "-n", 24, *EXACT,
                      stdin="The secret word is banana.\nWhat is the secret word?\n")
    assert "banana" in outcome.text.splitlines()[-1]


def test_it_tells_when_turns_leave_the_window_once_per_event():
    messages = "".join(f"Tell me about the number {i}.\n" for i in range(8))
    outcome = ballast("chat", "--temp", 0, "-n", 24, "-c", 128, stdin=messages)
    assert outcome.code == 0, outcome.err
    notes = [line for line in outcome.err.splitlines() if "left the window" in line]
    assert notes and len(notes) == len(set(notes))
    assert any("system prompt" in line and "--pin-system" in line for line in notes)
    assert "turn 1" in notes[0] or "turns 1-" in notes[0] or "system prompt" in notes[0]
    assert "4 tokens stay pinned" in notes[0]


def test_pin_system_keeps_the_whole_system_prompt():
    """ollama#8531: the system prompt was silently dropped by an oversized user message."""
    system = "You are a pirate who always answers with the word Ahoy first."
    big = "Here is a long story. " + "The ship sailed on. " * 60 + "Who are you?\n"
    args = ["chat", "--json", "-c", 160, "-n", 24, "--temp", 0, "--system", system]
    pinned = ballast(*args, "--pin-system", stdin=big)
    assert pinned.code == 0, pinned.err
    usage = pinned.json["usage"]["ballast"]
    # <|im_start|>system\n ... <|im_end|>\n around the text.
    assert usage["sinks"] > 12
    assert "system prompt has left" not in pinned.err and "longer than the window" in pinned.err
    loose = ballast(*args, stdin=big)
    assert loose.json["usage"]["ballast"]["sinks"] == 4
    assert "system prompt" in loose.err


def test_pin_system_needs_a_system_prompt():
    refused(ballast("chat", "--pin-system", "--system", "", stdin="x\n"), 2, "--pin-system")


def test_regen_replaces_the_last_reply(tmp_path):
    outcome = ballast("chat", "-n", 16, "--temp", 0, *EXACT, "--json", stdin="Hello\nHow are you?\n/regen\n")
    assert outcome.code == 0, outcome.err
    messages = outcome.json["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    plain = ballast("chat", "-n", 16, "--temp", 0, *EXACT, "--json", stdin="Hello\nHow are you?\n").json["messages"]
    assert messages == plain  # greedy: the same history gives the same reply
    again = ballast("chat", stdin="/regen\n")
    assert again.code == 0 and "a reply to replace" in again.err


def test_regen_after_turns_have_left_feeds_what_fits():
    messages = "".join(f"Tell me about the number {i}.\n" for i in range(6))
    outcome = ballast("chat", "--temp", 0, "-n", 20, "-c", 160, "--json", stdin=messages + "/regen\n")
    assert outcome.code == 0, outcome.err
    assert len(outcome.json["messages"]) == 12
    assert outcome.json["usage"]["ballast"]["position"] <= 160 + 20


def test_save_and_load_carry_on_the_same_conversation(tmp_path):
    path = tmp_path / "talk.json"
    first = ballast("chat", *GREEDY, *EXACT, "--json", "--system", "Be brief.",
                    stdin=f"Hello\nHow are you?\n/save {path}\nWhat is water?\n")
    assert first.code == 0, first.err
    saved = json.loads(path.read_text())
    assert saved["system"] == "Be brief." and len(saved["messages"]) == 4
    second = ballast("chat", *GREEDY, *EXACT, "--json", stdin=f"/load {path}\nWhat is water?\n")
    assert second.code == 0, second.err
    assert second.json["messages"] == first.json["messages"]
    assert second.json["system"] == "Be brief."
    assert "4 messages" in second.err


@pytest.mark.parametrize("text", [
    "", "not json", "[]", "{}", '{"messages": 3}', '{"messages": [{"role": "user"}]}',
    '{"messages": [{"role": "assistant", "content": "x"}]}', '{"messages": [{"role": "user", "content": "x"}]}',
    '{"messages": [{"role": "user", "content": 5}, {"role": "assistant", "content": "y"}]}',
    '{"system": 1, "messages": []}', "[" * 5000,
])
def test_a_bad_transcript_is_refused_and_the_conversation_stays(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    outcome = ballast("chat", *GREEDY, "--json", stdin=f"Hello\n/load {path}\n")
    assert outcome.code == 0, outcome.err
    assert "bad.json" in outcome.err and "expected" in outcome.err
    assert len(outcome.json["messages"]) == 2


def test_save_to_a_bad_place_is_told(tmp_path):
    outcome = ballast("chat", stdin="/save /nonexistent/x.json\n/save\n/load /nonexistent\n/save /dev/full\n")
    assert outcome.code == 0
    assert outcome.err.count("expected") == 4


def test_clear_and_system_start_anew():
    outcome = ballast("chat", *GREEDY, "--json", stdin="My name is Ada.\n/clear\nHello\n/system You are terse.\nHi\n")
    assert outcome.code == 0, outcome.err
    document = outcome.json
    assert [m["content"] for m in document["messages"] if m["role"] == "user"] == ["Hello", "Hi"]
    assert document["system"] == "You are terse."


def test_pasted_lines_are_one_message(tmp_path):
    path = tmp_path / "pasted.json"
    terminal = Terminal("chat", "-n", 4)
    terminal.wait_for("› ")
    terminal.send("\x1b[200~first pasted\nsecond pasted\x1b[201~ and typed\n")
    terminal.wait_for("and typed")
    terminal.wait_for("› ")
    terminal.send(f"/save {path}\n")
    terminal.wait_for("saved 2 messages")
    terminal.send("/bye\n")
    assert terminal.wait() == 0
    assert json.loads(path.read_text())["messages"][0]["content"] == "first pasted\nsecond pasted and typed"


def test_an_empty_system_prompt_means_none():
    assert ballast("chat", "--json", "--system", "", *GREEDY, stdin="Hi\n").json["system"] == ""


def test_a_full_dense_cache_ends_a_piped_chat_with_4():
    outcome = ballast("chat", "--policy", "dense", "-c", 48, "-n", 64, stdin="Tell me a story.\n")
    assert outcome.code == 4 and "ballast: " in outcome.err


def test_first_ctrl_c_stops_the_reply_and_the_next_at_the_prompt_leaves():
    terminal = Terminal("chat", "--temp", 1, "-n", 4000, "--logit-bias", "2=-inf", "--logit-bias", "0=-inf")
    terminal.wait_for("/? lists")
    terminal.wait_for("› ")
    terminal.send("Tell me a long story\n")
    terminal.wait_for("story\n")
    time.sleep(1.5)
    terminal.interrupt()
    terminal.wait_for("[stopped")
    terminal.wait_for("› ")
    terminal.interrupt()
    assert terminal.wait() == 130


def test_ctrl_c_at_the_prompt_warns_first():
    terminal = Terminal("chat")
    terminal.wait_for("› ")
    terminal.send("half a li")
    terminal.interrupt()
    terminal.wait_for("press Ctrl-C again or /bye")
    terminal.wait_for("› ")
    terminal.send("/cache\n")  # a sent line starts the count again
    terminal.wait_for("memory")
    terminal.wait_for("› ")
    terminal.interrupt()
    terminal.wait_for("press Ctrl-C again or /bye")
    terminal.interrupt()
    assert terminal.wait() == 130


def test_ctrl_d_and_bye_leave_with_0():
    terminal = Terminal("chat")
    terminal.wait_for("› ")
    terminal.send("\x04")
    assert terminal.wait() == 0
    terminal = Terminal("chat")
    terminal.wait_for("› ")
    terminal.send("/bye\n")
    assert terminal.wait() == 0


ENDLESS = ["--temp", "1", "--logit-bias", "2=-inf", "--logit-bias", "0=-inf"]  # a reply never ends its turn


def piped(*args, stdin=b""):
    """A chat on pipes that has begun to answer `stdin`, or to do what it says."""
    process = subprocess.Popen([BALLAST, "chat", *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment())
    process.stdin.write(stdin)
    process.stdin.flush()
    return process


def test_ctrl_c_ends_a_piped_chat_with_130():
    process = piped(*ENDLESS, "-n", 4000, stdin=b"Tell me a story\nnever answered\n")
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert err == b"[stopped]\n"


def test_ctrl_c_still_prints_the_document():
    """The stopped turn is kept; nothing else is answered."""
    process = piped(*ENDLESS, "-n", 4000, "--json", "--verbose", stdin=b"/stats\nTell me a story\nnever answered\n")
    for line in process.stderr:
        if b"seed" in line:
            break
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert [m["role"] for m in json.loads(out)["messages"]] in (["user", "assistant"], [])


def test_an_error_still_prints_the_document():
    outcome = ballast("chat", "--policy", "dense", "-c", 64, "-n", 8, *ENDLESS, "--json",
                      stdin="Hello\n" + "Tell me a story. " * 20 + "\n")
    assert outcome.code == 4
    assert [m["role"] for m in outcome.json["messages"]] == ["user", "assistant"]


def test_a_stopped_reply_leaves_the_conversation_whole(tmp_path):
    """The turn is closed with its end-of-turn token, so the next one still makes sense."""
    path = tmp_path / "talk.json"
    terminal = Terminal("chat", *ENDLESS, "-n", 4000)
    terminal.wait_for("› ")
    terminal.send("Tell me a story\n")
    terminal.wait_for("story\n")
    time.sleep(1.5)
    terminal.interrupt()
    terminal.wait_for("[stopped; Ctrl-C again leaves]")
    terminal.wait_for("› ")
    terminal.send(f"/save {path}\n")
    terminal.wait_for("saved 2 messages")
    terminal.send("/bye\n")
    assert terminal.wait() == 0
    assert [m["role"] for m in json.loads(path.read_text())["messages"]] == ["user", "assistant"]


def test_a_failed_regen_keeps_the_old_reply():
    # Dense: a reply of 16 fits after two short turns, a second reading under a long system prompt does not.
    outcome = ballast("chat", "--policy", "dense", "-c", 96, "-n", 16, "--temp", 0, "--system", "Hi", "--json",
                      stdin="Hello\n/system " + "Be brief and kind. " * 30 + "\n/regen\n")
    assert outcome.code == 0, outcome.err
    assert [m["role"] for m in outcome.json["messages"]] == ["user", "assistant"]


def test_the_penalties_see_only_what_is_in_the_stream():
    args = [*GREEDY, *EXACT, "--json", "--repeat-penalty", 1.5, "--repeat-last-n", -1]
    once = ballast("chat", *args, stdin="What is water?\n").json["messages"]
    cleared = ballast("chat", *args, stdin="What is water?\n/clear\nWhat is water?\n").json["messages"]
    again = ballast("chat", *args, stdin="What is water?\n/regen\n").json["messages"]
    assert cleared == once and again == once


def test_regen_draws_another_reply_and_the_seed_stays():
    args = ["chat", "--temp", 1.5, "-n", 24, "--seed", 7, "--json"]
    once = ballast(*args, stdin="Tell me a story.\n").json
    again = ballast(*args, stdin="Tell me a story.\n/regen\n").json
    assert once["options"]["seed"] == again["options"]["seed"] == 7
    assert once["messages"][1] != again["messages"][1]
    assert again["messages"] == ballast(*args, stdin="Tell me a story.\n/regen\n").json["messages"]


def test_minus_one_is_no_limit():
    process = piped(*ENDLESS, "-c", 64, "-n", -1, stdin=b"Tell me a story\n")
    assert len(process.stdout.read(2000)) == 2000  # without -n: at most 64 tokens
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130


@pytest.mark.parametrize("redirect", ["< /", "<&-"])
def test_an_unreadable_stdin_is_refused(redirect):
    process = subprocess.run(["sh", "-c", f'exec "$0" chat {redirect}', BALLAST], capture_output=True, timeout=LIMIT,
                             env=environment())
    assert process.returncode == 4
    assert process.stdout == b""
    assert process.stderr.startswith(b"ballast: stdin: expected readable input, found ")
    assert process.stderr.count(b"\n") == 1


def test_one_visible_turn_is_told_as_one():
    outcome = ballast("chat", *GREEDY, stdin="Hello\n/cache\n/sinks\n")
    assert "1 to 2 of 2" in outcome.text
    late = ballast("chat", *ENDLESS, "-c", 48, "-n", 40, stdin="Hello\n/cache\n")  # the question has left
    assert "  turn       2 of 2, and the end of 1\n" in late.text or "  turn       2 of 2\n" in late.text
    assert "all 4 pinned tokens together" in outcome.text and "short context" in outcome.text


def test_a_new_system_prompt_that_will_leave_is_told():
    messages = "".join(f"Tell me about the number {i}.\n" for i in range(6))
    args = ["chat", "--temp", 0, "-n", 24, "-c", 160]
    outcome = ballast(*args, stdin=messages + "/system You are a pirate who answers briefly.\n")
    assert "it leaves the window after" in outcome.err and "--pin-system" in outcome.err
    assert "it leaves the window" not in ballast(*args, stdin="/system You are a pirate.\n").err


def test_the_banner_of_the_window_policy_says_what_it_is_for():
    outcome = ballast("chat", "--policy", "window", "--verbose", stdin="/bye\n")
    assert outcome.code == 0 and "evicts the attention sinks" in outcome.err


def test_a_trailing_backslash_goes_on_in_the_next_line(tmp_path):
    path = tmp_path / "t.json"
    terminal = Terminal("chat", *GREEDY)
    terminal.wait_for("› ")
    terminal.send("one\\\n")
    terminal.wait_for("… ")
    terminal.send("two é\n")
    terminal.wait_for("› ")
    terminal.send(f"/save {path}\n")
    terminal.wait_for("saved 2 messages")
    terminal.send("/bye\n")
    assert terminal.wait() == 0
    assert json.loads(path.read_text())["messages"][0]["content"] == "one\ntwo é"
