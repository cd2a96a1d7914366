"""nginx before an application written with Python's own http.server: two services, two logs."""
import contextlib
import http.client
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

from common import Service, free_port, wait_port

AGENTS = ["Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Firefox/115.0",
          "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
          "curl/7.88.1", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
          "Prometheus/2.42.0"]
WORDS = ["chair", "table", "lamp", "desk", "sofa", "oak", "walnut", "shelf", "mirror", "rug", "vase", "clock"]


def application(port, log):
    """A small shop. Run as a process of its own: web.py PORT LOG."""
    import http.server
    import json
    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    shop, store = logging.getLogger("shop"), logging.getLogger("shop.store")
    stock = {i: {"name": WORDS[i % len(WORDS)], "left": 1000} for i in range(200)}
    full = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, form, *values):
            shop.info("%s %s", self.address_string(), form % values)

        def answer(self, code, value):
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            try:
                self.route()
            except (KeyError, ValueError, OSError):
                shop.exception("request failed: %s", self.path)
                self.answer(500, {"error": "internal"})

        do_POST = do_GET

        def route(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            path = self.path.split("?")[0]
            if path == "/api/slow":
                time.sleep(1.5)
            elif path == "/api/fill":
                full.append(1)
            elif path == "/api/unfill":
                full.clear()
            elif path == "/api/order":
                order = json.loads(body)
                item = stock[order["item"]]
                item["left"] -= order["count"]
                store.info("order %d: %d x %s, %d left", order["id"], order["count"], item["name"], item["left"])
                with open("/dev/full" if full else "/dev/null", "wb", buffering=0) as f:
                    f.write(body)
            elif path == "/api/memory":
                store.error("cache: cannot allocate %d bytes, dropping %d entries", 1 << 31, 512)
                store.warning("cache is cold, reading from disk")
            elif path == "/api/login":
                store.warning("login of user %r failed: wrong password (attempt %d)", "admin", len(body))
                return self.answer(401, {})
            elif path.startswith("/api/item/"):
                return self.answer(200, stock[int(path.rsplit("/", 1)[1])])
            self.answer(200, {"ok": True})

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.request_queue_size = 64
    logging.getLogger("shop").info("listening on 127.0.0.1:%d, %d items in stock", port, len(stock))
    server.serve_forever()


class App(Service):
    name = "app"

    def start(self):
        self.port = free_port()
        self.launch()

    def launch(self):
        self.process = subprocess.Popen([sys.executable, __file__, str(self.port), str(self.log)],
                                        stderr=subprocess.DEVNULL)
        wait_port(self.port)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def ask(self, path, method="GET", body=None, headers=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=10)
        try:
            connection.request(method, path, body, {"User-Agent": self.random.choice(AGENTS), **(headers or {})})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def order(self, item=None):
        body = '{"id": %d, "item": %d, "count": %d}' % (self.random.randrange(100000, 999999),
                                                       self.random.randrange(200) if item is None else item,
                                                       self.random.randint(1, 4))
        self.ask("/api/order", "POST", body)

    def load(self):
        for _ in range(6):
            if self.random.random() < 0.3:
                self.order()
            else:
                self.ask(f"/api/item/{self.random.randrange(200)}")

    def killed(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.launch()

    def disk_full(self):
        self.ask("/api/fill")
        for _ in range(3):
            self.order()
        self.ask("/api/unfill")

    def kinds(self):
        trace = rb"request failed|^Traceback|^  |Error: |\" 500 -"
        return [
            ("service killed", self.killed, rb"listening on"),
            ("stack trace: no such item", lambda: self.order(item=977), trace),
            ("stack trace: no JSON", lambda: self.ask("/api/order", "POST", "{broken"), trace),
            ("disk full", self.disk_full, trace + rb"|/api/fill"),
            ("memory", lambda: self.ask("/api/memory"), rb"cannot allocate|cache is cold|/api/memory"),
            ("authentication failures", lambda: [self.ask("/api/login", "POST", "x" * n) for n in range(1, 7)],
             rb"login|/api/login"),
            ("bad request line", lambda: self.raw(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"), rb"code 400|\" 400 -"),
        ]

    def raw(self, data):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(data)
            s.recv(4096)


class Nginx(App):
    name = "nginx"

    def start(self):
        self.back_port, self.front_port = free_port(), free_port()
        root = self.dir / "www"
        (root / "static").mkdir(parents=True)
        for i in range(12):
            (root / "static" / f"{WORDS[i]}.{['css', 'js', 'png'][i % 3]}").write_text("x" * 100 * (i + 1))
        (root / "index.html").write_text("<p>shop")
        (root / "private").mkdir()
        (root / "private" / "index.html").write_text("p")
        (self.dir / "users").write_text("admin:$apr1$8YQ2Zt1d$0aL0m1WbYx6pFZfyHqZtu/\n")
        self.body = self.tiny_disk("body", 64, "www-data")
        (self.dir / "nginx.conf").write_text(CONF.format(dir=self.dir, front=self.front_port, back=self.back_port))
        self.launch_back()
        self.nginx = subprocess.Popen(["nginx", "-p", self.dir, "-c", self.dir / "nginx.conf", "-e", self.log])
        wait_port(self.front_port)

    def launch_back(self):
        self.process = subprocess.Popen([sys.executable, __file__, str(self.back_port), "/dev/null"],
                                        stderr=subprocess.DEVNULL)
        wait_port(self.back_port)

    def stop(self):
        super().stop()
        self.nginx.terminate()
        self.nginx.wait()

    def get(self, path, method="GET", body=None, headers=None):
        self.ask(path, method, body, headers, self.front_port)

    def load(self):
        r = self.random
        for _ in range(8):
            kind = r.random()
            if kind < 0.35:
                i = r.randrange(12)
                self.get(f"/static/{WORDS[i]}.{['css', 'js', 'png'][i % 3]}?v={r.randrange(9)}")
            elif kind < 0.6:
                self.get(f"/api/item/{r.randrange(200)}")
            elif kind < 0.75:
                self.get(f"/search?q={r.choice(WORDS)}+{r.choice(WORDS)}&page={r.randrange(1, 9)}")
            elif kind < 0.85:
                self.get("/api/order", "POST", '{"id": %d, "item": %d, "count": 1}' %
                         (r.randrange(100000, 999999), r.randrange(200)))
            elif kind < 0.97:
                self.get("/")
            else:
                self.get("/favicon.ico")  # not there: an ordinary 404

    def backend_killed(self):
        self.process.kill()
        self.process.wait()
        for i in range(4):
            self.get(f"/api/item/{i}")
        self.launch_back()

    def worker_killed(self):
        for pid in subprocess.run(["pgrep", "-P", str(self.nginx.pid)], capture_output=True, text=True).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.5)
        wait_port(self.front_port)

    def forbidden(self):
        target = self.dir / "www" / "static" / f"{WORDS[0]}.css"
        target.chmod(0)
        self.get(f"/static/{WORDS[0]}.css")
        self.get(f"/static/{WORDS[0]}.css")
        target.chmod(0o644)

    def kinds(self):
        return [
            ("service killed", self.backend_killed, rb"Connection refused|\" 502 "),
            ("worker killed", self.worker_killed, rb"\[alert\]|\[notice\]"),
            ("disk full", lambda: [self.get("/api/order", "POST", "x" * 200000) for _ in range(2)],
             rb"No space left|\" 500 "),
            ("permission denied", self.forbidden, rb"Permission denied|\" 403 "),
            ("authentication failures", lambda: [
                self.get("/private/", headers={"Authorization": f"Basic YWRtaW46cGFzc3dvcmQ{n}"}) for n in range(6)],
             rb"password mismatch|/private/"),
            ("timeout", lambda: self.get("/api/slow"), rb"timed out|\" 504 "),
            ("error in the application", lambda: self.get("/api/item/977"), rb"\" 500 "),
        ]


CONF = """
daemon off; master_process on; worker_processes 2; pid {dir}/pid; user www-data; error_log {dir}/nginx.log notice;
events {{ worker_connections 256; }}
http {{
  include /etc/nginx/mime.types; access_log {dir}/nginx.log combined; client_body_temp_path {dir}/body;
  client_body_buffer_size 1k; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
  scgi_temp_path {dir}/s; proxy_read_timeout 1s;
  server {{
    listen 127.0.0.1:{front}; root {dir}/www;
    location /api/ {{ proxy_pass http://127.0.0.1:{back}; }}
    location /search {{ return 200 "found"; }}
    location /private/ {{ auth_basic shop; auth_basic_user_file {dir}/users; }}
  }}
}}
"""

if __name__ == "__main__":
    application(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
