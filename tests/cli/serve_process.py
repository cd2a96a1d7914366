"""A `ballast serve` process and the few ways in which tests talk to it."""
import atexit
import http.client
import json
import re
import signal
import subprocess
import threading
import time
import urllib.parse

from conftest import BALLAST, LIMIT, environment


class Server:
    def __init__(self, *flags, wait=True, **popen):
        command = [BALLAST, "serve", "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), **popen)
        atexit.register(self.process.kill)  # also when a test fails
        self.log = b""
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        line = self.process.stdout.readline().decode()
        said = re.match(r"Ballast is at (http://[^/ ]+)/ ", line)
        assert said, self.log.decode()
        self.url = said[1]
        self.address = urllib.parse.urlsplit(self.url)
        if wait:
            self.wait_ready()

    def _read_log(self):
        for line in self.process.stderr:
            self.log += line

    def ask(self, method, path, body=None, headers=None, timeout=LIMIT):
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=timeout)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        status, _, data = self.ask(method, path, body, headers)
        return status, json.loads(data)

    def wait_ready(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            status, _, body = self.ask("GET", "/health")
            if status == 200:
                return
            assert status == 503 and json.loads(body)["status"] == "loading"
            time.sleep(0.05)
        raise AssertionError(self.log.decode())

    def metric(self, name):
        _, _, text = self.ask("GET", "/metrics")
        for line in text.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=LIMIT)
        self.reader.join(timeout=5)
        return code
