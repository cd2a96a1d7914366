"""A stand-in for `ballast serve`: serves the page's files and a mock of the API, with the law of the cache made real.

Used by test_page.py when BALLAST_PAGE_URL names no real server, and by hand while working on the page:
    python3 tests/page/mock_server.py 8099
It keeps the interface of docs and INTERFACES (streams, sessions, cache events), not the engine: words are tokens.
"""
import json
import math
import os
import random
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "src" / "server" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
# As src/server/routes_page.cc sends it: what it forbids must show up as a console error here, too.
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
       "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
LAYERS, HEADS = 30, 9
STORY = """The keel was laid in a dry year, and **nobody** asked what the ship was for. It had a hold of a fixed size, and the
captain kept four stones in it that were never moved.

1. The stones stayed where they were.
2. The cargo came in, and the oldest went out.
3. The line of the water stayed where it was.

> A ship is steady by what it keeps, not by what it has carried.

When the wind rose, `slot(t)` decided where the next crate went, and it was always the place that had just become free.

```python
def slot(t, pinned, window):
    return t if t < pinned else pinned + (t - pinned) % window
```

So it went on, from one harbour to the next that never came, and the log grew longer than any shelf that could hold it. """
COLLAPSE = ["the", " the", " the", ",", " the", "\n", " of", " of", " the", "...", " the"]


class Session:
    def __init__(self, name, policy, context, pinned):
        self.id, self.policy, self.context = name, policy, context
        self.sinks = 0 if policy == "window" else pinned
        self.tokens = []
        self.turns, self.used, self.speed, self.surprise = 0, time.time(), 0.0, []
        self.lock = threading.Lock()
        self.busy = False

    @property
    def position(self):
        return len(self.tokens)

    @property
    def start(self):
        return max(self.sinks, self.position - (self.context - self.sinks))

    @property
    def evicted(self):
        return self.start - self.sinks

    def ballast(self):
        return {"position": self.position, "evicted_tokens": self.evicted, "sinks": self.sinks, "context": self.context,
                "session": self.id, "health": self.health(), "warnings": []}

    def health(self):
        if self.policy == "window" and self.evicted > 0:
            return {"state": "collapsed", "reason": "sink loss", "since": self.context, "rescues": 0}
        return {"state": "ok", "reason": None, "since": None, "rescues": 0}

    def info(self):
        return {"id": self.id, "state": "active" if self.busy else "idle", "policy": self.policy, "position": self.position,
                "evicted_tokens": self.evicted, "sinks": self.sinks, "context": self.context, "turns": self.turns,
                "kv_bytes": self.context * 11520, "idle_seconds": time.time() - self.used}

    def view(self, since):
        position, start, window = self.position, self.start, self.context - self.sinks
        first = max(since, start)
        fresh = [{"position": t, "text": self.tokens[t]} for t in range(min(self.sinks, position)) if t >= since]
        fresh += [{"position": t, "text": self.tokens[t]} for t in range(max(first, self.sinks), position)]
        broken = self.policy == "window" and self.evicted > 0
        mass = [] if self.sinks == 0 else [sink_mass(layer, head, position) for layer in range(LAYERS) for head in range(HEADS)]
        surprise = self.surprise[-8:]
        slot = position if position < self.sinks else self.sinks + (position - self.sinks) % window
        return {"position": position, "start": start, "sinks": self.sinks, "context": self.context,
                "live": min(position, self.sinks) + max(0, position - start), "evicted_tokens": self.evicted,
                "write_slot": slot, "policy": self.policy, "fresh": fresh, "layers": LAYERS, "heads": HEADS,
                "sink_mass": mass, "tokens_per_second": self.speed if self.busy else 0,
                "surprise": sum(surprise) / len(surprise) if surprise and self.busy else 0, "broken": broken,
                "health": self.health()}


def sink_mass(layer, head, position):
    base = 0.02 if layer < 2 else 0.85 * abs(math.sin(layer * 1.7 + head * 2.3)) ** 0.7
    return round(min(0.99, max(0.0, base + 0.04 * math.sin(position / 37 + layer) + random.uniform(-0.02, 0.02))), 4)


def words(text):
    return re.findall(r" ?\w+| ?[^\w\s]+|\s", text)


class Mock:
    def __init__(self, context=256, pinned=4, rate=60.0):
        self.context, self.pinned, self.rate = context, pinned, rate
        self.sessions, self.lock = {}, threading.Lock()
        self.key, self.fail = None, None   # set through POST /mock
        self.watchers = 0
        self.requests = []                 # bodies of the chat requests, for the tests


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def mock(self):
        return self.server.mock

    def log_message(self, *args):
        pass

    def reply(self, status, value, headers=()):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, message, code=None, headers=()):
        self.reply(status, {"error": {"message": message, "type": "error", "param": None, "code": code}}, headers)

    def begin_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def allowed(self):
        if self.mock.fail == "loading":
            self.error(503, "the model is loading", "loading", [("Retry-After", "2")])
            return False
        if self.mock.key and self.headers.get("Authorization") != f"Bearer {self.mock.key}":
            self.error(401, "this server wants a key: send it as 'Authorization: Bearer KEY'", "invalid_api_key")
            return False
        return True

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/health":
            return self.reply(200, {"status": "ok"})
        if path == "/mock":
            return self.reply(200, {"watchers": self.mock.watchers, "requests": self.mock.requests})
        if not path.startswith("/v1/"):
            return self.file(path)
        if not self.allowed():
            return None
        if path == "/v1/models":
            return self.reply(200, {"object": "list", "data": [{"id": "SmolLM2-135M-Instruct", "object": "model"}]})
        if path == "/v1/sessions":
            return self.reply(200, {"object": "list", "data": [each.info() for each in self.mock.sessions.values()]})
        match = re.fullmatch(r"/v1/sessions/([\w-]{1,64})(/cache)?", path)
        session = match and self.mock.sessions.get(match[1])
        if not session:
            return self.error(404, f"no session {match[1] if match else path}", "session_not_found")
        return self.cache(session) if match[2] else self.reply(200, session.info())

    def do_DELETE(self):
        name = self.path.rsplit("/", 1)[-1]
        if self.allowed():
            found = self.mock.sessions.pop(name, None)
            self.reply(200, {"id": name, "deleted": True}) if found else self.error(404, f"no session {name}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path == "/mock":
            self.mock.key, self.mock.fail = body.get("key"), body.get("fail")
            return self.reply(200, {})
        if not self.allowed():
            return None
        if self.path != "/v1/chat/completions":
            return self.error(404, "no such route")
        if self.mock.fail == 503:
            return self.error(503, "the queue is full", "overloaded", [("Retry-After", "2")])
        return self.chat(body)

    def file(self, path):
        file = (PAGE / (path.lstrip("/") or "index.html")).resolve()
        if PAGE not in file.parents or not file.is_file():
            return self.error(404, f"no file {path}")
        data = file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES.get(file.suffix, "application/octet-stream"))
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return self.wfile.write(data)

    def chat(self, body):
        mock = self.mock
        mock.requests.append(body)
        with mock.lock:
            session = mock.sessions.get(body["session"])
            if not session:
                session = Session(body["session"], body.get("policy", "sinks"), mock.context, mock.pinned)
                mock.sessions[session.id] = session
        try:
            with session.lock:
                session.busy = True
                self.stream(body, session)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            session.busy, session.used = False, time.time()

    def stream(self, body, session):
        self.begin_events()
        before = session.position
        for message in body["messages"]:
            session.tokens += ["<|im_start|>", message["role"], "\n", *words(message["content"]), "<|im_end|>", "\n"]
            time.sleep(0.02)
        session.tokens += ["<|im_start|>", "assistant", "\n"]
        prompt, session.turns = session.position - before, session.turns + 1
        limit = int(body.get("max_tokens") or 160)
        told = words(STORY)
        base = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0, "model": "mock"}
        self.event({**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for n in range(limit):
            broken = session.policy == "window" and session.evicted > 0
            token = random.choice(COLLAPSE) if broken else told[n % len(told)]
            session.tokens.append(token)
            session.surprise.append(random.gauss(10.5, 1.2) if broken else random.gauss(3.1, 0.7))
            session.speed = self.mock.rate + random.uniform(-2, 2)
            self.event({**base, "choices": [{"index": 0, "delta": {"content": token}, "finish_reason": None}]})
            time.sleep(1 / self.mock.rate)
        session.tokens += ["<|im_end|>", "\n"]
        self.event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.event({**base, "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": limit,
                                                     "total_tokens": prompt + limit, "ballast": session.ballast()}})
        self.event("[DONE]")

    def cache(self, session):
        self.begin_events()
        self.mock.watchers += 1
        seen, quiet = -1, 0.0
        try:
            while session.id in self.mock.sessions:
                if session.position != seen:
                    view = session.view(max(0, seen))
                    seen = view["position"]
                    self.event(view)
                    quiet = 0.0
                elif (quiet := quiet + 0.1) > 2:
                    self.wfile.write(b": ping\n\n")
                    self.wfile.flush()
                    quiet = 0.0
                time.sleep(0.1)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.mock.watchers -= 1


class Server(ThreadingHTTPServer):
    daemon_threads = True


def serve(port=0, **options):
    server = Server(("127.0.0.1", port), Handler)
    server.mock = Mock(**options)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    running = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8099, context=int(os.environ.get("MOCK_CONTEXT", 256)),
                    rate=float(os.environ.get("MOCK_RATE", 60)))
    print(f"http://127.0.0.1:{running.server_address[1]}/", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
