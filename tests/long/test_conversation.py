"""A conversation that outgrows its cache many times: every reply comes, as soon as at first, out of the same memory.

Two hundred turns with the default model through 1,024 slots, once for each unit of eviction (BALLAST_TURNS: fewer). The last
turns may take 1.2 times what the twentieth took; where the machine itself has become slower meanwhile, 1.2 times what the same
conversation takes beside them that was left at its twentieth turn, in a process of its own."""
import http.client
import json
import os
import pathlib
import socket
import statistics
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from serve_process import Server  # noqa: E402
from test_serve import held_kib  # noqa: E402

TURNS = int(os.environ.get("BALLAST_TURNS", "200"))
CONTEXT = 1024
REPLY = 32
BEGIN = "<|im_start|>"  # of a message


def events(answer):
    for line in answer:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


class Talk:
    """One session, asked over a connection for each turn: the server ends those that are left idle."""

    def __init__(self, server, session, evict):
        self.server, self.session, self.evict = server, session, evict

    def say(self, turn):
        """Seconds to the first text, the reply, its finish reason, its usage."""
        line = http.client.HTTPConnection(self.server.address.hostname, self.server.address.port, timeout=120)
        began = time.perf_counter()
        line.request("POST", "/v1/chat/completions", json.dumps({
            "session": self.session, "evict": self.evict, "stream": True, "stream_options": {"include_usage": True},
            "max_tokens": REPLY, "seed": turn, "messages": [
                {"role": "user", "content": f"This is question number {turn:03d}. Please tell me something about the number "
                                            f"{turn:03d} that you have not told me before, and say why it matters."}]}))
        answer = line.getresponse()
        assert answer.status == 200, answer.read()
        first, text, finish, usage = None, "", None, None
        for event in events(answer):
            assert "error" not in event, event
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
            if text and first is None:
                first = time.perf_counter() - began
            usage = event.get("usage") or usage
        line.close()
        return first, text, finish, usage


class Watcher:
    """What the session's cache shows, ten times a second: where the window begins, and the texts of all positions."""

    def __init__(self, server, session):
        self.line = http.client.HTTPConnection(server.address.hostname, server.address.port, timeout=600)
        self.line.request("GET", f"/v1/sessions/{session}/cache")
        self.answer = self.line.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.sinks, self.starts, self.texts, self.over = 0, set(), {}, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            for view in events(self.answer):
                self.sinks = view["sinks"]
                self.starts.add(view["start"])
                self.texts.update((cell["position"], cell["text"]) for cell in view["fresh"])
        except (OSError, http.client.HTTPException):
            assert self.over

    def close(self):
        self.over = True
        self.line.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()
        self.line.close()

    def begins_a_turn(self, position):
        position += self.texts[position] == "\n"  # behind the end of a reply: the next turn's
        return [self.texts[position], self.texts[position + 1]] == [BEGIN, "user"]


@pytest.mark.parametrize("evict", ["token", "turn"])
def test_turn_200_is_answered_as_turn_20_was(evict):
    server, other = Server("-c", CONTEXT), Server("-c", CONTEXT)
    old, young = Talk(server, "old", evict), Talk(other, "young", evict)
    times, beside, before, watcher = {}, [], None, None
    for turn in range(1, TURNS + 1):
        if turn > TURNS - 10 and turn % 2:
            beside.append(young.say(turn)[0])
        first, text, finish, usage = old.say(turn)
        told = usage["ballast"]
        assert text.strip() and finish in ("stop", "length"), (turn, text, finish)
        times[turn] = first
        # What was there, what was sent, what was said and the closing mark of a reply that was cut: nothing else.
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert told["position"] == (before["position"] if before else 0) + usage["total_tokens"] + (finish == "length"), usage
        visible = told["position"] - told["evicted_tokens"]
        assert told["sinks"] < visible <= CONTEXT and told["context"] == CONTEXT, (turn, told)
        assert told["evicted_tokens"] >= (before["evicted_tokens"] if before else 0)
        if told["evicted_tokens"] and evict == "token":
            assert visible == CONTEXT, "token by token the window stays full"
        before = told
        if turn == 1 and evict == "turn":
            watcher = Watcher(server, "old")
        if turn == 20:
            assert told["evicted_tokens"] > 0, "turn 20 is told as from a full window"
        if turn <= 20:
            young.say(turn)
        if turn == 30:
            time.sleep(3)
            held = held_kib(server)
        if turn > TURNS - 10 and turn % 2 == 0:
            beside.append(young.say(turn)[0])
    assert server.metric("ballast_kv_rollovers_total") >= TURNS // 20
    assert server.metric("ballast_kv_evicted_tokens_total") >= before["evicted_tokens"]
    early = statistics.median(times[turn] for turn in range(15, 26))
    late = statistics.median(times[turn] for turn in range(TURNS - 9, TURNS + 1))
    now = statistics.median(beside)
    time.sleep(3)
    grown = held_kib(server) - held
    print("ms to the first token, by twenty turns:", *(round(statistics.median(
        times[turn] for turn in range(begin, begin + 20)) * 1000) for begin in range(1, TURNS, 20)))
    print(f"{evict}: position {before['position']}, {server.metric('ballast_kv_rollovers_total'):.0f} roll-overs; first token "
          f"at turn 20 after {early * 1000:.0f} ms, at turn {TURNS} after {late * 1000:.0f} ms ({late / early:.2f}), of the one "
          f"left at turn 20 after {now * 1000:.0f} ms ({late / now:.2f}, bar 1.2); RssAnon + VmSwap grew by {grown} KiB", flush=True)
    assert grown <= 1024
    assert late <= 1.2 * max(early, now)
    if watcher:
        watcher.close()
        moved = [start for start in watcher.starts if start > watcher.sinks]
        assert len(moved) > TURNS / 2
        for start in moved:
            assert watcher.begins_a_turn(start), [watcher.texts.get(t) for t in range(start - 3, start + 4)]
    assert server.stop() == 0 and other.stop() == 0
