"""Headless Chromium over the WebDriver protocol, with the standard library only."""
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Shift": "\ue008", "Control": "\ue009", "Escape": "\ue00c", "ArrowLeft": "\ue012", "ArrowRight": "\ue014"}


def missing():
    """Why no browser can be driven here, or None."""
    if not shutil.which("chromedriver"):
        return "no chromedriver (Debian: apt-get install chromium chromium-driver)"
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        return "no Chromium (Debian: apt-get install chromium chromium-driver)"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    def __init__(self, width=1440, height=900):
        port = free_port()
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)  # a group of its own, so that close() ends all of it
        self.base = f"http://127.0.0.1:{port}"
        self.session = None
        for _ in range(100):
            try:
                self.call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                            f"--window-size={width},{height}", "--force-device-scale-factor=1"]}
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        options["binary"] = binary
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = answer["sessionId"]

    def call(self, method, path, body=None):
        where = self.base + (f"/session/{self.session}" if self.session else "") + path
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(where, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def close(self):
        try:
            if self.session:
                self.call("DELETE", "")
        except (AssertionError, OSError):
            pass  # a page that hangs must not keep its browser alive
        finally:
            os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait(timeout=20)

    def go(self, url):
        self.call("POST", "/url", {"url": url})

    def reload(self):
        self.call("POST", "/refresh", {})

    def js(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *names):
        down = [{"type": "keyDown", "value": KEYS.get(name, name)} for name in names]
        up = [{"type": "keyUp", "value": KEYS.get(name, name)} for name in reversed(names)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": down + up}]})

    def wait(self, script, seconds=20, what=""):
        end = time.time() + seconds
        while time.time() < end:
            value = self.js(script)
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds} s for {what or script}")

    def cdp(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height, mobile=False, scale=1):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    def prefer(self, scheme, motion="no-preference"):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                         {"name": "prefers-reduced-motion", "value": motion}])

    def shot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def log(self):
        """Console messages since the last call."""
        return self.call("POST", "/se/log", {"type": "browser"})
