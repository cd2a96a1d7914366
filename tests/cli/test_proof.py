"""The gate on dense, its reference and interval, the report, runs that survive a kill, profiles, StreamEval."""
import html.parser
import json
import math
import os
import pathlib
import subprocess
import time

import pytest
import tiny_model
from conftest import BALLAST, LIMIT, ballast, environment, refused

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_model.make(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return tiny_model.text(tmp_path_factory.mktemp("text") / "text.txt", 2000)


def evaluate(tiny, text, *args, limit=1200):
    return ballast("eval", "-m", tiny, "-f", text, "--limit", limit, "-t", 1, *args)


class TestGate:
    def test_dense_beyond_the_trained_length_is_judged(self, tiny, text):
        """It used to be left out, so that the one policy that needs no eviction to fail could not fail."""
        outcome = evaluate(tiny, text, "--policy", "dense", "--gate", 0.5, "--json")
        assert outcome.code == 5, outcome.err
        assert "beyond the trained length (dense)" in outcome.err
        gate = outcome.json["gate"]
        assert gate["reference"]["policy"] == "sinks" and gate["reference"]["context"] == 256
        assert gate["tokens"] == 1200 - 1 - 256
        assert gate["passed"] is False and gate["conclusive"] is True
        assert evaluate(tiny, text, "--policy", "dense", "--gate", 2, "--json").code == 0

    def test_dense_within_it_is_the_reference_and_not_judged(self, tiny, text):
        refused(evaluate(tiny, text, "--policy", "dense", "--gate", 2, limit=256), 2, "--gate", "dense alone")
        gate = evaluate(tiny, text, "--policy", "dense", "--policy", "sinks", "-c", 64, "--gate", 2, "--json",
                        limit=256).json["gate"]
        assert [j["policy"] for j in gate["judged"]] == ["sinks"] and gate["reference"]["policy"] == "dense"

    def test_the_interval_is_that_of_the_paired_differences(self, tiny, text):
        """Batch means by hand, out of the values per token of two plain runs."""
        args = ("-c", 64, "--policy", "sinks", "--policy", "window", "--per-token", "--json")
        document = evaluate(tiny, text, *args, "--gate", 2, "--reference", "window").json
        sinks, window = (run["nll"] for run in document["runs"])
        differences = [a - b for a, b in zip(sinks[64:], window[64:])]
        judged = document["gate"]["judged"][0]
        assert judged["tokens"] == len(differences) == 1135
        assert judged["ratio"] == pytest.approx(math.exp(sum(differences) / 1135), abs=1e-5)
        width = judged["batch_tokens"]
        means = [sum(differences[i:i + width]) / width for i in range(0, 1135 - width + 1, width)]
        assert judged["batches"] == len(means) and 8 <= len(means) <= 32
        centre = sum(means) / len(means)
        error = math.sqrt(sum((m - centre) ** 2 for m in means) / (len(means) - 1) / len(means))
        assert 1.9 * error < math.log(judged["ratio"] / judged["ci_low"]) < 2.4 * error
        assert 1.9 * error < math.log(judged["ci_high"] / judged["ratio"]) < 2.4 * error
        assert document["gate"]["judged"][1]["ratio"] == 1  # the window beside itself
        assert document["gate"]["reference"]["policy"] == "window"

    def test_the_same_command_gives_the_same_interval(self, tiny, text):
        gates = [evaluate(tiny, text, "-c", 64, "--gate", 2, "--json").json["gate"] for _ in range(2)]
        for gate in gates:
            for part in (gate["reference"], *gate["reference"]["blocks"]):
                for cost in ("seconds", "cpu_seconds", "rss_bytes"):
                    part.pop(cost, None)
        assert gates[0] == gates[1]

    def test_a_run_is_never_its_own_reference(self, tiny, text):
        """Without -c the judged cache and that of the reference were both as large as the trained length."""
        for policies in ([], ["--policy", "sinks"], ["--policy", "window"]):
            document = evaluate(tiny, text, *policies, "--gate", 2, "--json").json
            assert (document["runs"][0]["context"], document["gate"]["reference"]["context"]) == (128, 256)
            assert document["gate"]["ratio"] != 1
        refused(evaluate(tiny, text, "-c", 256, "--gate", 2), 2, "--gate", "sinks at 256 tokens for both", "-c C")
        refused(evaluate(tiny, text, "-c", 64, "--gate", 2, "--reference", "window", "--policy", "window"), 2, "--gate")
        both = evaluate(tiny, text, "-c", 256, "--gate", 2, "--policy", "sinks", "--policy", "window", "--json")
        assert [j["ratio"] == 1 for j in both.json["gate"]["judged"]] == [True, False]
        assert evaluate(tiny, text, "-c", 256, "--gate", 2, "--reference-context", 512).code == 0

    def test_the_folder_of_checkpoints_is_made_or_named(self, tiny, text, tmp_path):
        assert evaluate(tiny, text, "-c", 64, "--checkpoint", tmp_path / "new").code == 0
        assert [p.name for p in (tmp_path / "new").iterdir()] == ["sinks-64-4-q8.ckpt"]
        refused(evaluate(tiny, text, "-c", 64, "--checkpoint", tmp_path / "no/folder"), 4, "--checkpoint", "no/folder")
        refused(evaluate(tiny, text, "-c", 64, "--checkpoint", text), 4, "--checkpoint", "a folder")
        refused(evaluate(tiny, text, "-c", 64, "--checkpoint", tmp_path / "new", limit=600), 4, "at least 1200 tokens",
                "found 600")

    def test_references_can_be_chosen(self, tiny, text):
        gate = evaluate(tiny, text, "-c", 32, "--gate", 2, "--json", "--reference", "recompute",
                        limit=300).json["gate"]
        assert (gate["reference"]["policy"], gate["reference"]["context"]) == ("recompute", 32)
        gate = evaluate(tiny, text, "-c", 32, "--gate", 2, "--json", "--reference", "sinks",
                        "--reference-context", 128).json["gate"]
        assert (gate["reference"]["policy"], gate["reference"]["context"]) == ("sinks", 128)

    def test_a_reference_too_small_for_the_text_is_refused_before_any_work(self, tiny, text):
        refused(evaluate(tiny, text, "-c", 32, "--gate", 2, "--reference", "dense", "--reference-context", 100), 4,
                "dense cache", "at most 100 tokens")

    def test_a_text_too_short_for_an_interval_is_inconclusive(self, tiny, text):
        outcome = evaluate(tiny, text, "-c", 64, "--gate", 2, "--json", limit=150)
        gate = outcome.json["gate"]
        assert outcome.code == 0 and gate["ci_low"] is None and gate["conclusive"] is False
        assert "inconclusive" in evaluate(tiny, text, "-c", 64, "--gate", 2, limit=150).text

    @pytest.mark.parametrize("args,words", [
        (["--reference", "dense"], ["--reference", "--gate R"]),
        (["--gate", "1.1", "--reference", "best"], ["--reference", "best"]),
        (["--gate", "1.1", "--reference-context", "-1"], ["--reference-context"]),
        (["--block", "0"], ["--block"]),
        (["--checkpoint", ".", "--per-token"], ["--checkpoint", "--per-token"]),
    ])
    def test_usage(self, text, args, words):
        refused(ballast("eval", "-f", text, "-m", "no/model", *args), 2, *words)


class Page(html.parser.HTMLParser):
    """What a page would fetch, and whether its elements are closed in order."""
    VOID = {"meta", "link", "br", "img", "rect", "line", "path"}

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [f"{tag} {value}" for name, value in attrs if name in ("src", "href", "data")]

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


class TestReport:
    def test_one_page_holds_everything_and_fetches_nothing(self, tiny, text, tmp_path):
        path = tmp_path / "report.html"
        outcome = evaluate(tiny, text, "-c", 64, "--policy", "sinks", "--policy", "window", "--gate", 0.9,
                           "--report", path)
        assert outcome.code == 5
        source = path.read_text()
        page = Page()
        page.feed(source)
        assert page.open == [] and page.fetched == []
        assert "<script" not in source and "url(" not in source and "@import" not in source
        assert source.count("<svg") == 2  # curves and the sink map
        sha256 = evaluate(tiny, text, "-c", 64, "--json", limit=10).json["model"]["sha256"]
        for words in ("Gate failed", sha256, "--policy window", "sinks: 4 + 60", "(reference)", "prefers-color-scheme:dark",
                      "ballast 0.", "not recall", "UTC"):
            assert words in source, words

    def test_what_the_user_typed_is_escaped(self, tiny, text, tmp_path):
        odd = tmp_path / "<b>&'.txt"
        odd.write_bytes(text.read_bytes())
        path = tmp_path / "report.html"
        assert evaluate(tiny, odd, "-c", 64, "--report", path).code == 0
        assert "<b>" not in path.read_text() and "&lt;b&gt;&amp;" in path.read_text()

    def test_refused_before_any_work(self, text, tmp_path):
        refused(ballast("eval", "-f", text, "-m", "no/model", "--report", tmp_path / "no/page.html"), 4, "no/page.html")


def results(document):
    """What a run found, without what it cost."""
    runs = [{k: run[k] for k in ("policy", "mean_nll", "perplexity", "evicted_tokens")} for run in document["runs"]]
    blocks = [[(b["from"], b["to"], b["perplexity"]) for b in run["blocks"]] for run in document["runs"]]
    gate = document.get("gate", {})
    return runs, blocks, gate.get("ratio"), gate.get("ci_low"), gate.get("ci_high")


class TestCheckpoint:
    ARGS = ("-c", 96, "--gate", 2, "--reference", "sinks", "--reference-context", 192, "--json", "--block", 512)

    def test_killed_at_any_moment_it_goes_on_bit_for_bit(self, tiny, tmp_path):
        text = tiny_model.text(tmp_path / "text.txt", 10000, seed=2)
        whole = evaluate(tiny, text, *self.ARGS, limit=60000)
        assert whole.code == 0, whole.err
        folder = tmp_path / "state"
        folder.mkdir()
        command = [BALLAST, "eval", "-m", tiny, "-f", text, "--limit", 60000, "-t", 1, *self.ARGS, "--checkpoint",
                   folder, "--checkpoint-every", 4096]
        for name in ("sinks-96-4-q8.ckpt", "sinks-192-4-q8.ckpt"):  # once in the run, once in its reference
            process = subprocess.Popen([str(a) for a in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=environment())
            end = time.monotonic() + LIMIT
            while not (folder / name).exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
            process.kill()
            process.communicate()
        outcome = ballast(*command[1:])
        assert outcome.code == 0, outcome.err
        assert "went on from token" in outcome.err
        assert results(outcome.json) == results(whole.json)

    def test_a_longer_text_goes_on_from_the_end(self, tiny, text, tmp_path):
        args = ("-c", 64, "--json", "--checkpoint", tmp_path)
        assert evaluate(tiny, text, *args, limit=1024).code == 0
        longer = evaluate(tiny, text, *args, limit=2048)
        assert "went on from token 1,024" in longer.err
        plain = evaluate(tiny, text, "-c", 64, "--json", limit=2048)
        assert results(longer.json) == results(plain.json)

    def test_another_text_or_a_damaged_file_is_refused(self, tiny, text, tmp_path):
        args = ("-c", 64, "--json", "--checkpoint", tmp_path)
        assert evaluate(tiny, text, *args, limit=600).code == 0
        other = tiny_model.text(tmp_path / "other.txt", 500, seed=9)
        refused(evaluate(tiny, other, *args, limit=700), 4, "checkpoint: text")
        refused(evaluate(tiny, text, *args, limit=500), 4, "checkpoint: text")
        path = tmp_path / "sinks-64-4-q8.ckpt"
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        refused(evaluate(tiny, text, *args, limit=700), 4, f"{path}: stream snapshot: content")

    @pytest.mark.parametrize("make,found", [
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.mkdir(), "a directory"),
        (os.mkfifo, "a pipe"),
    ], ids=["empty", "folder", "pipe"])
    def test_what_is_no_checkpoint_is_refused(self, tiny, text, tmp_path, make, found):
        """A file of the evaluation, not of the model; and a pipe is not waited for."""
        path = tmp_path / "sinks-64-4-q8.ckpt"
        make(path)
        refused(evaluate(tiny, text, "-c", 64, "--checkpoint", tmp_path), 4, f"'{path}': expected a", f"found {found}")

    def test_the_long_run_survives_a_kill(self, tiny, tmp_path):
        """The driver of `make bench-long`, on a small scale."""
        text = tiny_model.text(tmp_path / "text.txt", 10000, seed=3)
        env = environment(LONG_TEXT=text, LONG_TOKENS=60000, LONG_SHORT=4096, LONG_CONTEXT=64, LONG_BLOCK=2048,
                          BALLAST=BALLAST, BALLAST_MODEL=tiny, BALLAST_THREADS=1)
        command = ["sh", ROOT / "tools/bench_long.sh"]
        calm = subprocess.run([*command, tmp_path / "calm"], env=env, capture_output=True, text=True, timeout=LIMIT)
        assert calm.returncode == 0, calm.stderr
        hurt = tmp_path / "hurt"
        process = subprocess.Popen([*command, hurt], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        end = time.monotonic() + LIMIT
        while not list(hurt.glob("state/*.ckpt")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        os.killpg(process.pid, 9)
        process.wait()
        again = subprocess.run([*command, hurt], env=env, capture_output=True, text=True, timeout=LIMIT)
        assert again.returncode == 0, again.stderr
        for name in ("q8", "f16", "f32"):
            first, second = (json.loads((tmp_path / run / f"{name}.json").read_text()) for run in ("calm", "hurt"))
            assert results(first) == results(second)
        table = (hurt / "summary.md").read_text()
        assert table.count("\n| ") == 31 and "MiB per million tokens" in table and "f32 cache" in table


class TestCalibrate:
    ARGS = ("--contexts", "48,96", "--sinks-list", "0,2,4", "-t", 1)

    def test_a_profile_that_run_reads(self, tiny, text, tmp_path):
        path = tmp_path / "profile.json"
        outcome = ballast("calibrate", "-m", tiny, "-f", text, "--limit", 600, *self.ARGS, "--profile", path, "--json")
        assert outcome.code == 0, outcome.err
        document = outcome.json
        assert json.loads(path.read_text()) == document
        cells = document["cells"]
        assert [(c["context"], c["sinks"]) for c in cells] == [(c, s) for c in (48, 96) for s in (0, 2, 4)]
        assert document["compared"] == 600 - 1 - 96
        best = min(cells, key=lambda c: c["perplexity"])
        assert best == document["best"] and best["to_best"] == 1
        small_enough = [c for c in cells if c["to_best"] <= 1.005]
        assert (document["context"], document["sinks"]) == (small_enough[0]["context"], small_enough[0]["sinks"])

        def usage(*args):
            outcome = ballast("run", "-m", tiny, "-p", "abc", "-n", 2, "--temp", 0, "--json", "-t", 1, *args)
            assert outcome.code == 0, outcome.err
            own = outcome.json["usage"]["ballast"]
            return (own["context"], own["sinks"]), outcome.err

        chosen = (document["context"], document["sinks"])
        found, said = usage("--profile", path)
        assert found == chosen and f"[profile {path}: -c {chosen[0]} --sinks {chosen[1]}]" in said
        assert usage("--profile", path, "-c", 77, "--sinks", 1) == ((77, 1), "")  # flags win
        assert usage() == ((256, 4), "")

    def test_it_lies_beside_the_model(self, text, tmp_path):
        model = tiny_model.make(tmp_path / "model")
        outcome = ballast("calibrate", "-m", model, "-f", text, "--limit", 400, *self.ARGS)
        assert outcome.code == 0 and (model / "ballast.json").exists()
        assert "The smallest within 0.5% of the best: -c " in outcome.text
        with_it = ballast("run", "-m", model, "-p", "abc", "-n", 1)
        assert with_it.code == 0 and "[profile" in with_it.err
        without = ballast("run", "-m", model, "-p", "abc", "-n", 1, "--no-profile")
        assert without.code == 0 and without.err == ""
        chat = ballast("chat", "-m", model, "--chat-format", "chatml", "-n", 1, stdin="abc\n")
        assert "[profile" in chat.err

    @pytest.mark.parametrize("contents,words", [
        ("{", ["something else"]),
        ('{"ballast_profile":2}', ["something else"]),
        ('{"ballast_profile":1,"model":{"sha256":"00"},"context":4,"sinks":4}', ["cache can have"]),
        ('{"ballast_profile":1,"model":{"sha256":"0123"},"context":64,"sinks":4}', ["of this model", "0123"]),
        ("", ["something else"]),
    ])
    def test_a_damaged_or_foreign_profile_is_passed_over_with_one_line(self, tiny, tmp_path, contents, words):
        path = tmp_path / "profile.json"
        path.write_text(contents)
        outcome = ballast("run", "-m", tiny, "-p", "abc", "-n", 1, "--profile", path)
        assert outcome.code == 0
        assert outcome.err.count("\n") == 1 and outcome.err.startswith("ballast: warning: profile ignored: ")
        for word in words:
            assert word in outcome.err

    def test_one_that_does_not_fit_memory_says_how_to_go_on(self, tiny, tmp_path):
        path = tmp_path / "profile.json"
        sha256 = ballast("inspect", tiny, "--hash", "--json").json["sha256"]
        path.write_text(json.dumps({"ballast_profile": 1, "model": {"sha256": sha256}, "context": 1 << 32, "sinks": 4}))
        for command, *more in (["run", "-p", "abc"], ["chat", "--chat-format", "chatml"]):
            outcome = ballast(command, "-m", tiny, "-n", 1, "--profile", path, *more)
            assert outcome.code == 2 and "--context: expected a KV cache that fits in memory" in outcome.err
            assert f"hint: it is the profile {path} that asks for it: --no-profile goes on without" in outcome.err

    def test_of_a_profile_without_end_only_a_megabyte_is_read(self, tiny):
        outcome = ballast("run", "-m", tiny, "-p", "abc", "-n", 1, "--profile", "/dev/zero")
        assert outcome.code == 0
        assert outcome.err == "ballast: warning: profile ignored: /dev/zero: expected at most 1048576 bytes, found more\n"

    def test_refused(self, tiny, text, tmp_path):
        refused(ballast("run", "-m", tiny, "-p", "a", "--profile", tmp_path / "none.json"), 4, "none.json")
        args = ("calibrate", "-m", tiny, "-f", text, "--no-profile")
        refused(ballast(*args, "--limit", 50, *self.ARGS), 4, "too short to roll over")
        weights = tiny / "model.safetensors"
        refused(ballast("calibrate", "-m", weights, "-f", text, "--profile", weights), 2,
                "--profile: expected a file of its own, found that of --model")
        refused(ballast("calibrate", "-m", tiny, "-f", text, "--profile", text), 2, "found that of --file")
        refused(ballast(*args, "--contexts", "a"), 2, "--contexts")
        refused(ballast(*args, "--contexts", "4"), 2, "--context")
        refused(ballast(*args, "-c", 64), 2, "--contexts and --sinks-list")
        refused(ballast(*args, "--tolerance", -1), 2, "--tolerance")
        refused(ballast("calibrate", "-m", tiny, "-f", text, "--profile", tmp_path / "no/p.json"), 4, "no/p.json",
                "--profile FILE")


class TestStreamEval:
    def test_near_is_known_and_far_is_not(self):
        """The real model: what stands in the window is looked up, what has left it is guessed."""
        outcome = ballast("streameval", "-c", 256, "--distance", 1, "--distance", 81, "--questions", 16, "--json")
        assert outcome.code == 0, outcome.err
        document = outcome.json
        near, far = document["points"]
        assert near["visible"] == 1 and far["visible"] == 0
        assert near["accuracy"] > 0.4 and near["likelihood"] > 3 * document["chance"]
        assert far["accuracy"] < 0.3 and far["accuracy_ci"][0] <= document["chance"] <= far["accuracy_ci"][1] + 0.1
        assert near["tokens"] < 256 < far["tokens"]

    def test_a_vocabulary_without_the_words_is_refused(self, tiny):
        refused(ballast("streameval", "-m", tiny, "-c", 64), 3, "streameval: the vocabulary")

    def test_usage(self):
        refused(ballast("streameval", "--distance", 0, "-m", "no/model"), 2, "--distance")
        refused(ballast("streameval", "--questions", 0, "-m", "no/model"), 2, "--questions")
