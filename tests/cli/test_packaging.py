"""What operators get: the unit's readiness, man page, completions, dashboard, container check, `make install`."""
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from conftest import BALLAST, LIMIT, MODELS, ROOT, environment
from test_serve_http import Server

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
from make_completions import CHOICES, kind  # noqa: E402
from make_man import read_program  # noqa: E402

INSTALL = ["sh", "packaging/install.sh"]


@pytest.fixture(scope="module")
def program():
    return read_program(BALLAST)


def install(action, folder, prefix="/usr"):
    env = environment(PREFIX=prefix, DESTDIR=folder, BALLAST=BALLAST, BALLAST_MADE_DIR=f"{folder}-made",
                      BALLAST_MODELS_DIR=MODELS, PYTHON=sys.executable)
    subprocess.run([*INSTALL, action], cwd=ROOT, env=env, check=True, timeout=LIMIT)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packaging") / "root"
    install("install", folder)
    return folder / "usr"


# The same, from the words of the screens alone: parse_help must not be able to lose a flag unseen.
def flags_on_screen(command):
    text = subprocess.run([BALLAST, *command, "--help"], capture_output=True, text=True, env=environment()).stdout
    return set(re.findall(r"^  (?:-\w,)?(--[a-z0-9-]+)", text, re.M))


def test_every_flag_of_help_is_read(program):
    top, commands = program
    assert {flag.long for flag in top.flags} == flags_on_screen([])
    assert {"chat", "run", "eval", "probe", "inspect", "bench", "serve", "watch"} <= {command.name for command in commands}
    for command in commands:
        assert {flag.long for flag in command.flags} == flags_on_screen([command.name]), command.name
        assert all(flag.help for flag in command.flags), command.name


@pytest.mark.parametrize("where", ["/", "@"])
def test_systemd_is_told(where, tmp_path, monkeypatch):
    """A path, and a name in the abstract namespace."""
    name = str(tmp_path / "notify") if where == "/" else f"@ballast-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name if where == "/" else "\0" + name[1:])
        manager.settimeout(LIMIT)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        server = Server("-c", 256, wait=False)
        assert manager.recv(4096) == b"READY=1"
        assert server.ask("GET", "/health")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert manager.recv(4096) == b"STOPPING=1"
        assert server.process.wait(timeout=LIMIT) == 0


def test_a_server_that_never_gets_ready_does_not_say_so(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0.2)
        (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
        done = subprocess.run([BALLAST, "serve", "--port", "0", "-m", tmp_path / "bad.gguf"], capture_output=True,
                              env=environment(NOTIFY_SOCKET=tmp_path / "notify"), timeout=LIMIT)
        assert done.returncode == 3  # RestartPreventExitStatus of the unit counts on it
        with pytest.raises(TimeoutError):
            manager.recv(4096)


def plain(roff):
    for escaped, character in (("\\-", "-"), ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ti", "~"), ("\\e", "\\")):
        roff = roff.replace(escaped, character)
    return re.sub(r"\\f[BIR]|\\&", "", roff)


def test_man_page_has_every_command_and_flag(program, installed):
    page = plain((installed / "share/man/man1/ballast.1").read_text())
    top, commands = program
    for command in commands:
        section = page[page.index(f".SS ballast {command.name}\n"):].split("\n.SS", 1)[0].split("\n.SH", 1)[0]
        shared = page[page.index(".SH OPTIONS OF EVERY COMMAND"):].split("\n.SH", 1)[0]
        assert command.about in section
        for flag in command.flags:
            assert any(re.search(rf"(^|, ){flag.long}( |$)", text, re.M) and flag.help in text
                       for text in (section, shared)), f"{command.name} {flag.long}"


@pytest.mark.skipif(not any(os.access(f"{d}/groff", os.X_OK) for d in os.environ["PATH"].split(":")), reason="no groff")
def test_man_page_renders_without_a_warning(installed):
    page = installed / "share/man/man1/ballast.1"
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", page], capture_output=True, timeout=LIMIT)
    assert done.returncode == 0 and done.stderr == b""


COMPLETIONS = ("bash-completion/completions/ballast", "zsh/site-functions/_ballast",
               "fish/vendor_completions.d/ballast.fish")


@pytest.mark.parametrize("path", COMPLETIONS)
def test_completions_have_every_command_and_flag(path, program, installed):
    text = (installed / "share" / path).read_text()
    for command in program[1]:
        lines = re.findall(rf"^.*\b{command.name}\b.*$", text, re.M)
        if path.endswith("_ballast"):
            lines = re.search(rf"^    {command.name}\)\n(.*?);;", text, re.M | re.S)[1].splitlines()
        assert lines, command.name
        for flag in command.flags:
            word = rf"-l {flag.long[2:]}" if path.endswith(".fish") else flag.long
            assert re.search(rf"(?<![\w-]){word}(?![\w-])", "\n".join(lines)), f"{command.name} {flag.long}"


def complete(installed, *words):
    script = 'source "$0"; COMP_WORDS=(ballast "$@"); COMP_CWORD=$#; _ballast; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, installed / "share" / COMPLETIONS[0], *words], cwd=ROOT,
                          capture_output=True, text=True, check=True, timeout=LIMIT)
    return set(done.stdout.split())


def test_bash_completes(installed):
    subprocess.run(["bash", "-n", installed / "share" / COMPLETIONS[0]], check=True)
    assert {"serve", "chat", "--version"} <= complete(installed, "")
    assert complete(installed, "ser") == {"serve"}
    assert complete(installed, "serve", "--log") == {"--log-format"}
    assert complete(installed, "serve", "--log-format", "") == {"text", "json"}
    assert complete(installed, "run", "-f", "README") == {"README.md"}
    assert complete(installed, "chat", "--temp", "") == set()
    assert "docs" in complete(installed, "serve", "--sessions-dir", "do")


def test_words_that_completions_offer_are_taken(program):
    """CHOICES against the program itself: a wrong word is refused before any model is read."""
    serve = next(command for command in program[1] if command.name == "serve")
    assert all(any(kind(f) == words for command in program[1] for f in command.flags if f.long == name)
               for name, words in CHOICES.items())
    of_serve = {name: words for name, words in CHOICES.items() if any(f.long == name for f in serve.flags)}
    assert len(of_serve) >= 7
    for name, words in of_serve.items():
        for word in words.split():
            done = subprocess.run([BALLAST, "serve", "--port", "0", "-m", "/nowhere.gguf", name, word],
                                  capture_output=True, text=True, env=environment(), timeout=LIMIT)
            assert done.returncode == 3 and "/nowhere.gguf" in done.stderr, f"{name} {word}: {done.stderr}"


def test_unit_and_what_is_installed(installed):
    unit = (installed / "lib/systemd/system/ballast.service").read_text()
    for line in ("ExecStart=/usr/bin/ballast serve", "Type=notify", "Restart=on-failure", "RestartSec=3",
                 "DynamicUser=yes", "StateDirectory=ballast", "EnvironmentFile=-/etc/ballast/ballast.env"):
        assert line in unit.splitlines()
    assert os.access(installed / "bin/ballast", os.X_OK)
    files = {path.relative_to(installed).parts[0] for path in installed.parent.rglob("*") if path.is_file()}
    assert files == {"bin", "lib", "share"}  # nothing outside of PREFIX


def test_example_settings_are_flags_of_serve(program):
    serve = next(command for command in program[1] if command.name == "serve")
    twins = {"BALLAST_" + flag.long[2:].replace("-", "_").upper() for flag in serve.flags}
    text = (ROOT / "packaging/ballast.env").read_text()
    named = set(re.findall(r"^#?(BALLAST_\w+)=", text, re.M))
    assert named and named <= twins
    assert not re.search(r"^[^#\n]", text, re.M)  # as delivered it changes nothing


def test_installed_program_finds_its_model(installed, tmp_path):
    env = environment()
    del env["BALLAST_MODEL"]
    if not (installed / "share/ballast/models").exists():
        pytest.skip("no default model here")
    done = subprocess.run([installed / "bin/ballast", "inspect", "--json"], cwd=tmp_path, env=env,
                          capture_output=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr


def test_uninstall_leaves_nothing_but_what_others_put_there(tmp_path):
    install("install", tmp_path / "root", "/opt/a&b|c")
    unit = tmp_path / "root/opt/a&b|c/lib/systemd/system/ballast.service"
    assert "ExecStart=/opt/a&b|c/bin/ballast serve" in unit.read_text().splitlines()
    other = tmp_path / "root/opt/a&b|c/bin/other"
    other.write_text("")
    install("uninstall", tmp_path / "root", "/opt/a&b|c")
    assert [path for path in (tmp_path / "root").rglob("*") if path.is_file()] == [other]


@pytest.fixture(scope="module")
def server():
    running = Server("-c", 256, "--max-sessions", 2)
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def exported(server):
    """The families of /metrics: name -> type."""
    server.ask("GET", "/health")  # requests are counted by route once there was one
    text = server.ask("GET", "/metrics")[2].decode()
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))


def series(exported):
    names = set(exported)
    for name, kind_of in exported.items():
        if kind_of == "histogram":
            names |= {name + "_bucket", name + "_sum", name + "_count"}
    return names


def test_dashboard_asks_for_metrics_that_exist(exported):
    dashboard = json.loads((ROOT / "docs/grafana.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = set(re.findall(r"ballast_\w+", " ".join(queries)))
    assert asked <= series(exported), asked - series(exported)
    # And leaves none out.
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} | asked
    assert set(exported) <= shown, set(exported) - shown
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_documented_metrics_are_those_that_exist(exported):
    text = (ROOT / "docs/server.md").read_text()
    rows = re.findall(r"^\| `(ballast_\w+)(?:\{[^`]*\})?` \| (\w+) \|", text, re.M)
    assert dict(rows) == exported
    assert len(rows) == len(exported)


def test_container_health_check(server):
    check = ["bash", ROOT / "packaging/healthcheck.sh"]
    env = environment(BALLAST_PORT=server.address.port)
    assert subprocess.run(check, env=env, timeout=LIMIT).returncode == 0
    with socket.socket() as closed:  # bound but not listening
        closed.bind(("127.0.0.1", 0))
        env = environment(BALLAST_PORT=closed.getsockname()[1])
        assert subprocess.run(check, env=env, timeout=LIMIT, stderr=subprocess.DEVNULL).returncode == 1
