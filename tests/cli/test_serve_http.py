"""`ballast serve` as its clients meet it: the official openai client, plain sockets, signals.

Without the openai package (tools/test_packages.py installs it) the tests that use it are skipped.
"""
import concurrent.futures
import json
import resource
import signal
import socket
import sys
import time

import pytest
from conftest import LIMIT, ROOT, SANITIZED, ballast, refused
from serve_process import Server

PACKAGES = ROOT / "build/venv"
sys.path.append(str(PACKAGES))
try:
    import openai
except ImportError:
    openai = None


def why_skipped():
    why = PACKAGES / "unavailable"
    return why.read_text().strip() if why.exists() else "no openai package: run tools/test_packages.py"


needs_openai = pytest.mark.skipif(openai is None, reason=why_skipped())


@pytest.fixture(scope="module")
def server():
    running = Server("-c", 512, "--max-body", 1)
    yield running
    assert running.stop() == 0, running.log.decode()


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


SAY = [{"role": "user", "content": "Name three colours."}]


@needs_openai
def test_chat_through_the_official_client(client):
    reply = client.chat.completions.create(model=client.models.list().data[0].id, messages=SAY, max_tokens=12,
                                           temperature=0)
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert 1 <= reply.usage.completion_tokens <= 12
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    told = reply.usage.model_extra["ballast"]
    assert told["context"] == 512 and told["evicted_tokens"] == 0


@needs_openai
def test_a_stream_equals_the_whole_reply_and_ends_with_usage(client):
    options = dict(model=client.models.list().data[0].id, messages=SAY, max_tokens=16, temperature=0)
    whole = client.chat.completions.create(**options).choices[0].message.content
    text, usage = "", None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **options):
        assert usage is None, "nothing comes after usage"
        usage = chunk.usage
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    assert text == whole
    assert usage.completion_tokens <= 16


@needs_openai
def test_seed_stop_n_and_logprobs(client):
    options = dict(model=client.models.list().data[0].id, messages=SAY, max_tokens=10)
    first, again = (client.chat.completions.create(seed=7, temperature=1, **options) for _ in range(2))
    assert first.choices[0].message.content == again.choices[0].message.content
    several = client.chat.completions.create(n=3, seed=1, temperature=1.5, **options)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    whole = first.choices[0].message.content
    stop = whole[len(whole) // 2:][:3]
    cut = client.chat.completions.create(seed=7, temperature=1, stop=[stop], **options)
    assert stop not in cut.choices[0].message.content and cut.choices[0].finish_reason == "stop"
    scored = client.chat.completions.create(logprobs=True, top_logprobs=3, temperature=0, **options)
    tokens = scored.choices[0].logprobs.content
    assert len(tokens) >= scored.usage.completion_tokens - 1
    for token in tokens:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy


@needs_openai
def test_completions_of_text_and_of_ids(client):
    model = client.models.list().data[0].id
    text = client.completions.create(model=model, prompt="The capital of France is", max_tokens=3, temperature=0)
    assert text.choices[0].text and text.choices[0].finish_reason == "length"
    assert text.usage.completion_tokens == 3
    scored = client.completions.create(model=model, prompt=[504, 3575], max_tokens=2, logprobs=2)
    assert len(scored.choices[0].logprobs.token_logprobs) == 2


@needs_openai
def test_responses_go_on_from_the_one_before(client):
    model = client.models.list().data[0].id
    first = client.responses.create(model=model, input="My name is Ada.", max_output_tokens=8)
    assert first.output_text and first.status in ("completed", "incomplete")
    second = client.responses.create(model=model, input="What is my name?", previous_response_id=first.id,
                                     max_output_tokens=8)
    assert second.previous_response_id == first.id
    told = second.usage.model_extra["ballast"]
    assert told["position"] > second.usage.output_tokens + 10  # the first turn is still there
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=model, input="x", previous_response_id="resp_unknown")
    types = [event.type for event in client.responses.create(model=model, input="Hi", stream=True,
                                                             max_output_tokens=4)]
    assert types[0] == "response.created" and types[-1] in ("response.completed", "response.incomplete")


@needs_openai
def test_errors_are_the_clients_own_exceptions(server, client):
    model = client.models.list().data[0].id
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=SAY, temperature=9)
    assert caught.value.param == "temperature" and caught.value.request_id
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-5", messages=SAY)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 3000}],
                                       extra_body={"truncation": "disabled"})
    assert caught.value.code == "context_length_exceeded"


def test_a_session_sends_only_what_is_new(server):
    def turn(text):
        status, reply = server.json("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": text}], "max_tokens": 8, "session": "http-test"})
        assert status == 200, reply
        return reply["usage"]["ballast"]
    first, second = turn("Hello there."), turn("And again.")
    assert second["session"] == "http-test"
    assert second["position"] > first["position"]
    status, session = server.json("GET", "/v1/sessions/http-test")
    assert status == 200 and session["position"] >= second["position"]
    status, fork = server.json("POST", "/v1/sessions/http-test/fork", {"to": "http-copy"})
    assert status == 200 and fork["id"] == "http-copy"
    assert server.json("DELETE", "/v1/sessions/http-test")[0] == 200
    assert server.json("GET", "/v1/sessions/http-test")[0] == 404
    assert server.json("DELETE", "/v1/sessions/http-copy")[0] == 200


def test_health_answers_while_a_long_prompt_is_read(server):
    words = 2000 if SANITIZED else 20000
    with concurrent.futures.ThreadPoolExecutor() as pool:
        long = pool.submit(server.json, "POST", "/v1/completions", {"prompt": "word " * words, "max_tokens": 1})
        times = []
        while not long.done():
            began = time.perf_counter()
            assert server.ask("GET", "/health")[0] == 200
            times.append(time.perf_counter() - began)
            time.sleep(0.01)
        status, reply = long.result()
    assert status == 200, reply
    assert reply["usage"]["ballast"]["evicted_tokens"] > words - 1000 and reply["usage"]["ballast"]["warnings"]
    times.sort()
    # Beside the prompt, not behind it (tests/long states the milliseconds).
    assert len(times) > 10 and times[len(times) // 2] < sum(times) / 10, times[-5:]


def test_a_client_that_vanishes_frees_the_engine(server):
    body = json.dumps({"prompt": "Once", "max_tokens": 100000, "stream": True, "logit_bias": {"0": -100}}).encode()
    sock = socket.create_connection((server.address.hostname, server.address.port))
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert sock.recv(1000)
    sock.close()
    end = time.monotonic() + LIMIT  # tests/long states the milliseconds
    while server.metric("ballast_requests_running") > 0:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_large_bodies_are_413_and_the_limit_itself_is_not(server):
    assert server.ask("POST", "/tokenize", b'{"content":"' + b"a " * 500000 + b'"}')[0] == 200
    assert server.ask("POST", "/tokenize", b" " * (1024 * 1024 + 1))[0] == 413


def test_tokens_agree_with_inspect(server, tmp_path):
    text = "grüße, 你好 \U0001f600\n"
    (tmp_path / "text").write_text(text)
    ids = ballast("inspect", "--tokenize", tmp_path / "text", "--json").json["ids"]
    assert server.json("POST", "/tokenize", {"content": text})[1]["tokens"] == ids
    assert server.json("POST", "/detokenize", {"tokens": ids})[1]["content"] == text


def test_the_page_is_there(server):
    status, headers, body = server.ask("GET", "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert b"http://" not in body.replace(b"http://www.w3.org", b"") and b"https://" not in body


def test_keys_guard_and_separate(tmp_path):
    (tmp_path / "keys").write_text("# ours\nalpha\n\nbeta\n")
    running = Server("-c", 256, "--api-key-file", tmp_path / "keys")
    alpha, beta = ({"Authorization": f"Bearer {key}"} for key in ("alpha", "beta"))
    assert running.ask("GET", "/v1/models")[0] == 401
    assert running.ask("GET", "/v1/models", headers={"Authorization": "Bearer alph"})[0] == 401
    body = {"messages": SAY, "max_tokens": 2, "session": "mine"}
    assert running.json("POST", "/v1/chat/completions", body, alpha)[0] == 200
    assert running.json("GET", "/v1/sessions/mine", headers=alpha)[0] == 200
    assert running.json("GET", "/v1/sessions/mine", headers=beta)[0] == 404
    assert running.json("GET", "/v1/sessions", headers=beta)[1]["data"] == []
    assert running.stop() == 0
    assert b"alpha" not in running.log


def test_sigterm_drains_and_ends_with_0():
    running = Server("-c", 256, "--log-format", "json")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        reply = pool.submit(running.json, "POST", "/v1/completions", {"prompt": "Once", "max_tokens": 60})
        while running.metric("ballast_requests_running") == 0 and not reply.done():
            time.sleep(0.005)
        assert running.stop() == 0
        assert reply.result()[0] == 200  # what ran has ended
    for line in running.log.decode().splitlines():
        assert json.loads(line)["level"]


def test_a_disk_that_is_full_loses_no_reply_and_is_told_at_the_end(tmp_path):
    folder = tmp_path / "sessions"
    limit = 100_000  # bytes of a file: too few for any session
    running = Server("-c", 256, "--sessions-dir", folder,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    body = {"messages": SAY, "max_tokens": 2, "session": "mine"}
    assert running.json("POST", "/v1/chat/completions", body)[0] == 200
    status, answer = running.json("POST", "/v1/sessions/mine/save")
    assert status == 500 and "File too large" in answer["error"]["message"], answer
    assert answer["error"]["code"] == "internal_error"
    assert running.json("POST", "/v1/chat/completions", body)[0] == 200  # it is still there
    assert list(folder.iterdir()) == []
    assert running.stop() == 1  # ended by itself, and not as if all were well
    assert b"every session saved" in running.log


def test_health_is_503_while_loading_and_a_second_signal_forces():
    running = Server("-c", 256, wait=False)
    running.wait_ready()
    body = json.dumps({"prompt": "Once", "max_tokens": 100000, "stream": True, "logit_bias": {"0": -100}}).encode()
    sock = socket.create_connection((running.address.hostname, running.address.port))
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert sock.recv(1000)
    running.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + LIMIT  # a busy machine takes its time to hand the signal over
    while running.ask("GET", "/health")[0] != 503:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert running.stop() == 130
    sock.close()


def test_bad_flags_are_usage_errors(tmp_path):
    refused(ballast("serve", "--port", 70000), 2, "--port", "70000")
    refused(ballast("serve", "--host", "no.such.host.invalid"), 2, "--host")
    refused(ballast("serve", "--evict", "all"), 2, "--evict")
    refused(ballast("serve", "--api-key", ""), 2, "--api-key")
    for name in ("BALLAST_API_KEY", "BALLAST_API_KEY_FILE"):  # as from a compose file with a typo
        refused(ballast("serve", env={name: ""}), 2, name)
    (tmp_path / "none").write_text("# nothing\n")
    outcome = ballast("serve", "--sessions-dir", tmp_path / "none")
    refused(outcome, 2, "--sessions-dir", "Not a directory")
    assert outcome.out == b""  # no address of a server that will not be
    refused(ballast("serve", "--api-key-file", tmp_path / "none"), 2, "at least one key")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(ballast("serve", "--port", taken.getsockname()[1]), 2, "free address")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"not a model")
    outcome = ballast("serve", "--port", 0, "-m", bad)
    assert outcome.code == 3 and "bad.gguf" in outcome.err
