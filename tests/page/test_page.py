"""The page in headless Chromium: against the mock server, against a real one named by BALLAST_PAGE_URL, or against
BALLAST_PAGE_BINARY, which is started for it.

Screenshots go to BALLAST_PAGE_SHOTS when that is set. Tests marked `mock_only` steer the server's faults."""
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import browser as chromium
import mock_server

URL = os.environ.get("BALLAST_PAGE_URL", "")
BINARY = os.environ.get("BALLAST_PAGE_BINARY", "")
REAL = bool(URL or BINARY)
SHOTS = os.environ.get("BALLAST_PAGE_SHOTS", "")
SECONDS = 180 if REAL else 20  # a reply of a real model takes its time

pytestmark = pytest.mark.skipif(chromium.missing() is not None, reason=chromium.missing() or "")
mock_only = pytest.mark.skipif(REAL, reason="steers the mock server")

RUNNING = "document.querySelector('#send').classList.contains('stop')"
REPLY = "[...document.querySelectorAll('#lane-main .message.assistant .body')].at(-1)"
POSITION = "Number((document.querySelector('#band .n-position dd').textContent.match(/[0-9]/g) || []).join(''))"


@pytest.fixture(scope="module")
def server():
    if REAL:
        yield None
        return
    running = mock_server.serve(context=256, rate=120)
    yield running
    running.shutdown()


@pytest.fixture(scope="module")
def url(server):
    if not BINARY:
        yield URL or f"http://127.0.0.1:{server.server_address[1]}/"
        return
    model = Path(__file__).resolve().parents[2] / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    process = subprocess.Popen([BINARY, "serve", "--port", "0", "-c", "256", "-m", model], stdout=subprocess.PIPE, text=True)
    yield re.match(r"Ballast is at (\S+)", process.stdout.readline())[1]
    process.terminate()
    assert process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def driver():
    one = chromium.Browser()
    yield one
    one.close()


@pytest.fixture
def page(driver, url, server):
    """A fresh profile's page at desktop size; fails when the console shows anything unexpected."""
    if server:
        steer(url)
    else:
        await_model(url)
    driver.size(1440, 900)
    driver.prefer("light")
    driver.go(url)
    driver.js("localStorage.clear(); sessionStorage.clear()")
    driver.go("about:blank")
    driver.cdp("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes="indexeddb")
    driver.log()
    driver.go(url)
    ready(driver)
    driver.expected = []
    yield driver
    bad = [entry["message"] for entry in driver.log() if not any(text in entry["message"] for text in driver.expected)]
    assert bad == []


def await_model(url):
    for _ in range(600):
        try:
            urllib.request.urlopen(url + "health", timeout=5).close()
            return
        except urllib.error.HTTPError:
            time.sleep(0.1)  # 503: loading


def ready(page):
    page.wait("return document.querySelector('#app').dataset.ready === 'yes'")


def steer(url, **faults):
    request = urllib.request.Request(url + "mock", data=json.dumps(faults).encode(), method="POST")
    urllib.request.urlopen(request, timeout=5).close()


def ask_mock(url):
    with urllib.request.urlopen(url + "mock", timeout=5) as answer:
        return json.load(answer)


def send(page, text):
    page.type("#text", text)
    page.press("Enter")
    page.wait(f"return {RUNNING}", 5, "the reply to begin")


def finish(page):
    page.wait(f"return !{RUNNING}", SECONDS, "the reply to end")


def say(page, text):
    send(page, text)
    finish(page)


def shot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.shot(f"{SHOTS}/{name}.png")


def colours(page, selector):
    """How many different colours a canvas shows."""
    return page.js("""const c = document.querySelector(arguments[0]);
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
      for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
      return seen.size""", selector)


def picture(page, selector):
    return page.js("return document.querySelector(arguments[0]).toDataURL()", selector)


def overflow(page):
    return page.js("return document.documentElement.scrollWidth - innerWidth")


def test_a_reply_streams_and_the_composer_is_free_again(page):
    send(page, "Tell me of the sea.")
    page.wait(f"return {REPLY} && {REPLY}.textContent.length > 20", SECONDS)
    first = page.js(f"return {REPLY}.textContent.length")
    page.wait(f"return {REPLY}.textContent.length > {first} || !{RUNNING}", SECONDS, "more text")
    shot(page, "streaming")
    finish(page)
    assert page.js("return document.querySelector('#text').value") == ""
    assert page.js("return document.querySelectorAll('#lane-main .message').length") == 2
    assert page.js("return document.querySelector('#title').textContent") == "Tell me of the sea."


def test_a_second_turn_sends_only_what_is_new(page, url):
    say(page, "One.")
    say(page, "Two.")
    assert page.js("return document.querySelectorAll('#lane-main .message').length") == 4
    if not REAL:
        body = ask_mock(url)["requests"][-1]
        assert [each["content"] for each in body["messages"]] == ["Two."]
        assert body["stream_options"] == {"include_usage": True}


def test_escape_stops_and_the_talk_goes_on(page):
    send(page, "Count for a long time.")
    page.wait(f"return {REPLY} && {REPLY}.textContent.length > 20", SECONDS)
    page.press("Escape")
    page.wait(f"return !{RUNNING}", 5, "the stop")
    assert "stopped" in page.js("return [...document.querySelectorAll('#lane-main .foot')].at(-1).textContent")
    say(page, "And now?")
    assert page.js("return document.querySelectorAll('#lane-main .message').length") == 4


def test_a_reload_keeps_the_transcript_and_the_session(page):
    say(page, "Remember the harbour.")
    before = page.js("return [...document.querySelectorAll('#lane-main .body')].map((each) => each.textContent)")
    page.reload()
    ready(page)
    assert page.js("return [...document.querySelectorAll('#lane-main .body')].map((each) => each.textContent)") == before
    page.wait(f"return {POSITION} > 0", 5, "the cache of the session")


def test_a_reload_in_the_middle_of_a_reply_keeps_what_came(page):
    send(page, "A long one, please.")
    page.wait(f"return {REPLY} && {REPLY}.textContent.length > 200", SECONDS)
    page.reload()
    ready(page)
    assert page.js(f"return {REPLY}.textContent.length") > 20
    assert not page.js(f"return {RUNNING}")
    say(page, "Go on.")


def test_regenerate_and_edit_replace_the_end_of_the_talk(page):
    say(page, "First question.")
    page.js("[...document.querySelectorAll('#lane-main .assistant .tools button')].find((b) => b.textContent === 'Regenerate').click()")
    page.wait(f"return {RUNNING}", 5)
    finish(page)
    assert page.js("return document.querySelectorAll('#lane-main .message').length") == 2
    page.js("[...document.querySelectorAll('#lane-main .user .tools button')].find((b) => b.textContent === 'Edit').click()")
    page.js("document.querySelector('#lane-main .message textarea').value = ''")
    page.type("#lane-main .message textarea", "Another question.")
    page.press("Enter")
    page.wait(f"return {RUNNING}", 5)
    finish(page)
    assert page.js("return document.querySelector('#lane-main .user .body').textContent") == "Another question."
    assert page.js("return document.querySelectorAll('#lane-main .message').length") == 2


def test_the_strip_moves_and_the_heat_map_fills(page):
    send(page, "Fill the cache.")
    page.wait(f"return {POSITION} > 0", SECONDS, "the first event of the cache")
    position, strip = page.js(f"return {POSITION}"), picture(page, ".strip")
    page.wait(f"return {POSITION} > {position}", SECONDS, "the position to move")
    time.sleep(0.2)
    assert picture(page, ".strip") != strip
    finish(page)
    assert colours(page, ".strip") > 4
    assert colours(page, ".heat") > 20
    assert colours(page, ".over-time .chart") > 3


def test_a_slot_tells_its_token_by_keyboard(page):
    say(page, "Hello there.")
    page.js("document.querySelector('.strip').focus()")
    page.press("ArrowLeft")
    page.wait("return /stream position .* in-cache position .* age/.test(document.querySelector('.readout').textContent)", 5)
    assert "slot" in page.js("return document.querySelector('.strip').getAttribute('aria-valuetext')")


def test_a_heads_history_opens_on_a_click(page):
    say(page, "Hello there.")
    page.click(".heat")
    page.wait("return !document.querySelector('.head-history').hidden", 5)
    assert "Layer" in page.js("return document.querySelector('.head-history').textContent")


@mock_only
def test_what_left_the_window_is_dimmed_below_the_water_line(page):
    for text in ("One.", "Two.", "Three."):
        say(page, text)
    assert page.js("return document.querySelectorAll('#lane-main .message[data-seen=gone]').length") >= 2
    assert "no longer sees" in page.js("return document.querySelector('#lane-main .message[data-seen=gone]').textContent")
    assert page.js("return document.querySelector('#lane-main .water-line').isConnected")
    shot(page, "light")
    page.prefer("dark")
    shot(page, "dark")


@mock_only
def test_comparison_shows_the_collapse_beside_the_sinks(page, url):
    say(page, "One.")
    say(page, "Two.")
    page.click("#compare")
    page.wait(f"return {RUNNING}", 5)
    finish(page)
    body = ask_mock(url)["requests"][-1]
    assert body["policy"] == "window" and [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    say(page, "Three.")
    shot(page, "compare")
    lanes = [page.js(f"return [...document.querySelectorAll('{lane} .assistant .body')].at(-1).textContent")
             for lane in ("#lane-main", "#lane-shadow")]
    assert "keel" in lanes[0] and "keel" not in lanes[1]
    assert page.js("return document.querySelectorAll('#band .gauge:not([hidden])').length") == 2
    health = [page.js(f"return document.querySelector('#band .gauge[data-policy={policy}] .health').textContent")
              for policy in ("sinks", "window")]
    assert health == ["", "collapsed: sink loss"]


@mock_only
def test_nobody_watching_costs_nothing(page, url):
    say(page, "One.")
    deadline = time.time() + 5
    while ask_mock(url)["watchers"] != 1 and time.time() < deadline:
        time.sleep(0.1)
    assert ask_mock(url)["watchers"] == 1
    page.click("#toggle-cache")
    deadline = time.time() + 5  # the mock notices at its next ping
    while ask_mock(url)["watchers"] != 0 and time.time() < deadline:
        time.sleep(0.1)
    assert ask_mock(url)["watchers"] == 0


@mock_only
def test_errors_say_what_to_do(page, url):
    page.expected = ["503", "401"]
    steer(url, fail=503)
    page.type("#text", "Hello?")
    page.press("Enter")
    page.wait("return document.querySelector('.failure')", 5, "the error")
    assert "queue is full" in page.js("return document.querySelector('.failure').textContent")
    steer(url, key="secret")
    page.js("document.querySelector('.failure button').click()")
    page.wait("return document.querySelector('#ask').open", 5, "the question for the key")
    page.type("#ask input", "secret")
    page.press("Enter")
    page.wait(f"return {RUNNING}", 5, "the refused message to be sent again")
    finish(page)
    assert page.js("return document.querySelectorAll('.failure').length") == 0
    assert page.js("return sessionStorage.getItem('ballast.key')") == "secret"
    assert page.js("return JSON.stringify(localStorage).includes('secret')") is False


@mock_only
def test_what_is_sent_while_the_model_loads_waits_for_it(page, url):
    page.expected = ["503", "404"]  # the strip looks for a session that is not there yet
    steer(url, fail="loading")
    page.reload()
    page.wait("return document.querySelector('#banner').textContent.includes('loading')", 5, "the banner")
    send(page, "Are you there?")
    time.sleep(1.5)
    assert page.js(f"return {RUNNING}")
    steer(url)
    finish(page)
    assert page.js("return document.querySelector('#banner').hidden")
    assert page.js("return document.querySelectorAll('.failure').length") == 0
    assert page.js(f"return {REPLY}.textContent.length") > 20


@mock_only
def test_a_session_that_the_server_lost_is_sent_again(page, url, server):
    say(page, "One.")
    server.mock.sessions.clear()
    page.expected = ["404"]
    say(page, "Two.")
    assert [each["role"] for each in ask_mock(url)["requests"][-1]["messages"]] == ["user", "assistant", "user"]


def test_model_text_never_becomes_markup(page):
    page.js("""return import('/markdown.js').then(({render}) => {
      const root = document.createElement('div');
      root.id = 'probe';
      document.body.append(root);
      render(root, '<img src=x onerror="window.hacked=1"> [x](javascript:alert(1)) ![p](https://example.org/a.png) **open `half', true);
    })""")
    assert page.js("return document.querySelectorAll('#probe img, #probe [onerror]').length") == 0
    assert page.js("return [...document.querySelectorAll('#probe a')].every((a) => a.href.startsWith('https:'))")
    assert page.js("return document.querySelector('#probe strong code').textContent") == "half"
    page.js("document.querySelector('#probe').remove()")


def test_half_a_markdown_text_renders_at_every_length(page):
    text = mock_server.STORY + "\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n- x\n  - y\n\n    z\n\n***\n# End\n> - q\n\n~~~\ncode"
    same = page.js("""const text = arguments[0];
      return import('/markdown.js').then(({render}) => {
        const grown = document.createElement('div');
        for (let n = 0; n <= text.length; ++n) render(grown, text.slice(0, n), true);
        render(grown, text, false);
        const whole = document.createElement('div');
        render(whole, text, false);
        return grown.innerHTML === whole.innerHTML;
      })""", text)
    assert same


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_paint_their_own_colours(page, scheme):
    page.prefer(scheme)
    page.wait(f"return document.documentElement.dataset.theme === '{scheme}'", 5)
    red = page.js("return Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0])")
    assert (red > 200) == (scheme == "light")
    shot(page, f"empty-{scheme}")


def test_a_phone_shows_everything_in_one_column(page):
    say(page, "A message, and some `code` that is a_very_long_word_without_any_break_in_it_at_all_to_wrap_at.")
    page.size(390, 844, mobile=True, scale=2)
    page.wait("return innerWidth === 390", 5)
    assert overflow(page) <= 0
    time.sleep(0.4)  # the side bar slides out once
    shot(page, "phone")
    page.click("#burger")
    page.wait("return getComputedStyle(document.querySelector('#side')).visibility === 'visible'", 5)
    assert overflow(page) <= 0
    page.press("Escape")
    page.click(".show-instruments")
    page.wait("return document.querySelector('.heat').clientHeight > 100", 5)
    shot(page, "phone-instruments")
    page.click(".hide-instruments")
    page.size(320, 640, mobile=True, scale=2)
    assert overflow(page) <= 0


def test_keys_open_a_conversation_and_focus_the_box(page):
    say(page, "One.")
    page.press("Control", "k")
    page.wait("return document.querySelectorAll('#list li').length === 2", 5)
    assert page.js("return document.querySelectorAll('#lane-main .message').length") == 0
    page.js("document.activeElement.blur()")
    page.press("/")
    assert page.js("return document.activeElement.id") == "text"
    page.js("document.querySelectorAll('#list .item')[1].click()")
    page.wait("return document.querySelectorAll('#lane-main .message').length === 2", 5)
