"""`ballast serve` at the sizes that its promises name: many requests, clients that vanish, readers that stall, kills.

Times are printed beside their bars, not asserted: they are the machine's as much as ours. What must never be wrong is asserted.
BALLAST_STORM (1.0) scales the counts."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from serve_process import Server  # noqa: E402

MAX_ACTIVE = 32  # requests in one batch, as serve has it
SCALE = float(os.environ.get("BALLAST_STORM", "1"))


def count(n):
    return max(1, round(n * SCALE))


def post(path, body):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data


def held_kib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return sum(int(re.search(key + r":\s+(\d+)", status)[1]) for key in ("RssAnon", "VmSwap"))


def connect(server):
    return socket.create_connection((server.address.hostname, server.address.port))


class Health:
    """Asks /health a hundred times a second, for as long as it lives."""

    def __init__(self, server):
        self.times, self.failures, self.over = [], [], False
        self.server = server
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        line = http.client.HTTPConnection(self.server.address.hostname, self.server.address.port, timeout=60)
        while not self.over:
            began = time.perf_counter()
            try:
                line.request("GET", "/health")
                answer = line.getresponse()
                answer.read()
                if answer.status != 200:
                    self.failures.append(answer.status)
            except OSError as error:
                self.failures.append(error)
                return
            self.times.append(time.perf_counter() - began)
            time.sleep(0.01)

    def say(self, what):
        assert self.failures == []
        times, self.times = sorted(self.times), []
        p99 = times[int(len(times) * 0.99)] * 1000
        print(f"{what}: /health p50 {times[len(times) // 2] * 1000:.1f} ms, p99 {p99:.1f} ms (bar 50), max {times[-1] * 1000:.1f} ms; "
              f"RssAnon + VmSwap {held_kib(self.server)} KiB", flush=True)

    def close(self):
        self.over = True
        self.thread.join()
        assert self.failures == []


@pytest.fixture
def storm():
    server = Server("-c", 256, "--max-queue", 4096, "--write-timeout", 30)
    health = Health(server)
    yield server, health
    health.close()
    assert server.stop() == 0, server.log.decode()[-2000:]


def short_requests(server, n, threads=8):
    def some(k):
        line = http.client.HTTPConnection(server.address.hostname, server.address.port, timeout=120)
        for i in range(k):
            line.request("POST", "/v1/completions", json.dumps({"prompt": f"Hi {i}", "max_tokens": 1}))
            answer = line.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        line.close()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(some, n // threads) for _ in range(threads)]:
            done.result()


def idle(server, seconds=30):
    """How long until nothing runs or waits."""
    began = time.perf_counter()
    while server.metric("ballast_requests_running") + server.metric("ballast_requests_waiting") > 0:
        assert time.perf_counter() - began < seconds, "work of vanished clients goes on"
        time.sleep(0.005)
    return time.perf_counter() - began


def vanish(server, n, at_once=100):
    def one(_):
        with connect(server) as line:
            line.sendall(post("/v1/completions", {"prompt": "word " * random.choice([1, 50, 300]), "max_tokens": 200,
                                                  "stream": random.random() < 0.5, "logit_bias": {"0": -100}}))
            time.sleep(random.random() * 1.5)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(n)))


def largest(server):
    """The most of all that the storms will ask for at one time, once: what is kept for as long as the process lives."""
    def whole(i):
        status, reply = server.json("POST", "/v1/completions", {"prompt": f"Once {i}", "max_tokens": 64, "logprobs": 3,
                                                                "logit_bias": {"0": -100, "2": -100}})
        assert status == 200, reply
    with concurrent.futures.ThreadPoolExecutor(MAX_ACTIVE) as pool:  # the batch's logits: 192 KiB for each of its rows
        list(pool.map(whole, range(MAX_ACTIVE)))
    lines = [connect(server) for _ in range(count(700))]  # Asio never frees a descriptor's state, and each holds a page
    end = time.monotonic() + 5
    while server.metric("ballast_http_connections") < len(lines) and time.monotonic() < end:
        time.sleep(0.01)
    for line in lines:
        line.close()


def test_storms_leave_nothing_behind(storm):
    server, health = storm
    largest(server)
    vanish(server, count(1000))  # every slot, cache and buffer was used once
    idle(server)
    short_requests(server, 400)
    time.sleep(3)
    health.say("warm")
    before = held_kib(server)
    requests = count(10000)
    short_requests(server, requests)
    time.sleep(3)
    health.say(f"{requests} short requests")
    grown = held_kib(server) - before
    print(f"grown by {grown} KiB (bar 1024 per 10,000 requests)", flush=True)
    assert grown <= 1024 * max(1.0, requests / 10000)
    clients = count(1000)
    vanish(server, clients)
    print(f"{clients} clients vanished: the last one's work was over after {idle(server) * 1000:.0f} ms (bar 200)")
    time.sleep(3)
    health.say("vanished clients")
    grown = held_kib(server) - before
    print(f"grown by {grown} KiB", flush=True)
    assert grown <= 2048

    half_open = [connect(server) for _ in range(count(500))]
    for i, line in enumerate(half_open):
        if i % 2:
            line.sendall(b"GET /he")
    slow = []
    for _ in range(count(200)):
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.connect((server.address.hostname, server.address.port))
        line.sendall(post("/v1/completions", {"prompt": "Once upon", "max_tokens": 100, "stream": True, "logprobs": 3}))
        line.setblocking(False)
        slow.append(line)
    end = time.monotonic() + 40
    while time.monotonic() < end:  # 100 bytes a second each
        for line in slow:
            try:
                line.recv(100)
            except OSError:
                pass
        time.sleep(1)
    health.say(f"{len(slow)} slow readers and {len(half_open)} half-open connections")
    closed = 0
    for line in half_open:
        line.settimeout(0.01)
        try:
            closed += line.recv(10) == b"" or 1  # 408 or the end
        except ConnectionError:
            closed += 1
        except OSError:
            pass
    assert closed == len(half_open), "half-open connections are held"
    for line in slow + half_open:
        line.close()
    idle(server)
    short_requests(server, 400)
    time.sleep(3)
    health.say("after")
    print(f"grown by {held_kib(server) - before} KiB", flush=True)
    assert held_kib(server) - before <= 1024


def test_no_session_sees_another_ones_words_and_replies_equal_a_solo_run():
    """Two sessions with canary words, greedy, in f32, under load with cancellations."""
    canaries = ("zanzibar", "quokka")
    turns = [f"My secret word is {{}}. Tell me about item {i}." for i in range(count(8))]

    def talk(server, word):
        replies = []
        for text in turns:
            status, reply = server.json("POST", "/v1/chat/completions", {
                "session": word, "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": text.format(word)}]})
            assert status == 200, reply
            replies.append(reply["choices"][0]["message"]["content"])
        return replies

    flags = ("-c", 192, "--compute", "f32", "--kv", "f32", "--max-queue", 512)
    alone = []
    for word in canaries:
        server = Server(*flags)
        alone.append(talk(server, word))
        assert server.stop() == 0
    server = Server(*flags)
    over = threading.Event()

    def trouble(seed):
        rng = random.Random(seed)
        while not over.is_set():
            with connect(server) as line:
                line.sendall(post("/v1/completions", {"prompt": "noise " * rng.randint(1, 60), "max_tokens": 50, "stream": True}))
                over.wait(rng.random() * 0.6)
    noise = [threading.Thread(target=trouble, args=(seed,)) for seed in range(4)]
    for each in noise:
        each.start()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        together = [each.result() for each in [pool.submit(talk, server, word) for word in canaries]]
    over.set()
    for each in noise:
        each.join()
    assert server.stop() == 0
    assert together == alone
    for words, other in zip(together, reversed(canaries)):
        assert other not in " ".join(words).lower()


def test_kills_during_saves_leave_every_session_old_or_new(tmp_path):
    """kill -9 at random moments while sessions are saved; the next process brings each one back, whole."""
    rng = random.Random(5)
    folder = tmp_path / "state"
    positions = {}  # name -> positions it may have: since the last one known to be on disk
    kills = count(200)
    for _ in range(kills):
        server = Server("-c", 96, "--sessions-dir", folder, "--max-sessions", 8)
        for name, allowed in positions.items():
            status, session = server.json("GET", f"/v1/sessions/{name}")
            assert status == 200, f"{name} is lost: {session}"
            assert session["position"] in allowed, f"{name} is torn: {session['position']} is none of {sorted(allowed)}"
            positions[name] = {session["position"]}
        death = threading.Timer(rng.random() * 0.4, server.process.send_signal, (signal.SIGKILL,))
        death.start()
        try:
            while True:
                name = f"s{rng.randrange(4)}"
                status, reply = server.json("POST", "/v1/chat/completions", {
                    "session": name, "max_tokens": 2, "messages": [{"role": "user", "content": "Go on."}]})
                assert status == 200, reply
                status, now = server.json("GET", f"/v1/sessions/{name}")
                if name in positions:
                    positions[name].add(now["position"])
                status, saved = server.json("POST", f"/v1/sessions/{name}/save")
                assert status == 200, saved
                positions[name] = {saved["position"]}
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            pass  # the kill
        death.join()
        server.process.wait(timeout=30)
    server = Server("-c", 96, "--sessions-dir", folder)
    for name, allowed in positions.items():
        status, reply = server.json("POST", "/v1/chat/completions", {
            "session": name, "max_tokens": 2, "messages": [{"role": "user", "content": "Go on."}]})
        assert status == 200, reply
    assert server.stop() == 0
    print(f"{kills} kills: {len(positions)} sessions, none torn, none lost")
