"""Hugging Face folders through the program: every family, templates of their own, and folders that lie."""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import pytest
from conftest import BALLAST, LIMIT, ROOT, SANITIZED, ballast, environment, refused
from test_serve_http import Server

FAMILIES = ROOT / "tests/goldens/families"
MB = 1 << 20
# What `inspect` must say: positions, local layers and their window, layers without rotation.
EXPECTED = {
    "llama": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "llama3": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "mistral": ("RoPE, full (8 dimensions)", 2, 9, 0),
    "smollm3": ("RoPE, full (8 dimensions)", 0, 0, 1),
    "qwen2": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "qwen3": ("RoPE, full (16 dimensions)", 0, 0, 0),
    "gemma2": ("RoPE, full (16 dimensions)", 2, 9, 0),
    "gemma3": ("RoPE, full (16 dimensions)", 3, 9, 0),
    "phi3": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "gptneox": ("RoPE, partial (4 of 8 dimensions)", 0, 0, 0),
    "falcon": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "falcon40": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "mpt": ("ALiBi", 0, 0, 0),
    "stablelm": ("RoPE, partial (4 of 8 dimensions)", 0, 0, 0),
    "olmo2": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "granite": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "cohere": ("RoPE, full (8 dimensions)", 0, 0, 0),
    "cohere2": ("RoPE, full (8 dimensions)", 3, 9, 1),
}
TURNS = ("{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}")


def tokenizer():
    """48 tokens: letters, digits, space, line break and four controls."""
    controls = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    texts = controls + ["Ġ", "Ċ", ":", "."] + [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789")
    texts += ["H", "T"]
    assert len(texts) <= 48
    return {"version": "1.0", "normalizer": None, "truncation": None, "padding": None, "post_processor": None,
            "added_tokens": [{"id": i, "content": text, "special": True, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False} for i, text in enumerate(controls)],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {text: i for i, text in enumerate(texts)}, "merges": []}}


def folder(path, family="llama", template=None, edit=None):
    """A whole folder of a tiny model; `edit(files)` may change its JSON files before they are written."""
    path.mkdir()
    shutil.copy(FAMILIES / family / "model.safetensors", path)
    files = {"config.json": json.loads((FAMILIES / family / "config.json").read_text()),
             "tokenizer.json": tokenizer(),
             "tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False}}
    if edit:
        edit(files)
    for name, document in files.items():
        (path / name).write_text(json.dumps(document))
    if template is not None:
        (path / "chat_template.jinja").write_text(template)
    return path


# A process is charged with the memory of the one that started it: a small one in between keeps pytest's out.
LAUNCH = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
with open(sys.argv[1], "w") as out:
    out.write(str(used.ru_maxrss * 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measured(*args, stdin=b"y\n"):
    """Exit code, stdout, stderr, the seconds it took and the most memory that it held, in bytes."""
    with tempfile.NamedTemporaryFile() as held:
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-S", "-E", "-c", LAUNCH, held.name, BALLAST, *map(str, args)],
                              input=stdin, capture_output=True, env=environment(), timeout=LIMIT)
        return done.returncode, done.stdout, done.stderr.decode(), time.monotonic() - began, int(held.read())


@pytest.mark.parametrize("family", EXPECTED)
def test_every_family_is_described_evaluated_and_probed(tmp_path, family):
    model = folder(tmp_path / "m", family)
    j = ballast("inspect", model, "--json").json
    positions, local, window, nope = EXPECTED[family]
    assert j["streamable"] and j["loadable"] and j["positions"].startswith(positions), j["positions"]
    assert (j["local_layers"], j["local_window"], j["nope_layers"]) == (local, window, nope)
    assert j["trained_context"] == 256
    assert j["recommended_sinks"] == 4 and j["cache_bytes_per_token"]["q8"] > 0
    tokens = tmp_path / "t.json"
    tokens.write_text(json.dumps({"tokens": json.loads((FAMILIES / family / "golden.json").read_text())["tokens"]}))
    outcome = ballast("eval", "-m", model, "--tokens", tokens, "-c", 24, "--json", "-t", 1)
    assert outcome.code == 0, outcome.err
    run = outcome.json["runs"][0]
    assert run["evicted_tokens"] > 0 and 1 < run["mean_nll"] < 12
    probe = ballast("probe", "-m", model, "--tokens", tokens, "--json", "-t", 1)
    assert probe.code == 0, probe.err
    assert len(probe.json["mean"]) == j["layers"] and probe.json["verdict"]


def test_a_template_of_its_own_drives_chat(tmp_path):
    model = folder(tmp_path / "m", template=TURNS)
    assert ballast("inspect", model, "--json").json["chat_format"] == "template"
    said = ballast("chat", "-m", model, "--json", "-n", 4, "--temp", 0, stdin="hello\nagain\n")
    assert said.code == 0, said.err
    assert said.json["options"]["format"] == "template" and len(said.json["messages"]) == 4
    prompt = "<|im_start|>user: hello<|im_end|><|im_start|>assistant: "
    by_hand = ballast("run", "-m", model, "-p", prompt, "-n", 4, "--temp", 0, "--json")
    assert said.json["messages"][1]["content"] == by_hand.json["text"]
    forced = ballast("run", "--chat", "--chat-format", "chatml", "-m", model, "-p", "hello", "-n", 1, "--json")
    assert forced.json["tokens_in"] != ballast("run", "--chat", "-m", model, "-p", "hello", "-n", 1,
                                               "--json").json["tokens_in"]
    refused(ballast("run", "--chat", "--chat-format", "nonsense", "-m", model, "-p", "x"), 2, "template")


def test_smollm2_says_what_its_own_template_says():
    """The built-in ChatML puts in the system message that the template puts in."""
    for more in ([], ["--system", "Be brief."]):
        ours, own = (ballast("run", "--chat", "-p", "Hello", "-n", 8, "--temp", 0, "--json", *more, *flags).json
                     for flags in ([], ["--chat-format", "template"]))
        assert ours["tokens_in"] == own["tokens_in"] and ours["text"] == own["text"]


def test_a_template_that_refuses_is_one_line(tmp_path):
    words = "{{ raise_exception('After user comes nobody.') }}"
    model = folder(tmp_path / "m", template=TURNS + "{% if messages[0].content == 'no' %}" + words + "{% endif %}")
    outcome = ballast("run", "--chat", "-m", model, "-p", "no")
    assert outcome.code == 4 and outcome.err == "ballast: After user comes nobody.\n", outcome.err
    server = Server("-m", model)
    try:
        ask = {"messages": [{"role": "user", "content": "no"}], "max_tokens": 2}
        status, body = server.json("POST", "/v1/chat/completions", ask)
        assert status == 400 and body["error"]["message"] == "After user comes nobody."
        assert body["error"]["param"] == "messages"
        ask["messages"][0]["content"] = "yes"
        assert server.json("POST", "/v1/chat/completions", ask)[0] == 200
    finally:
        assert server.stop() == 0


LOOP = "{% for a in range(100000) %}{% for b in range(10000) %}{{ '' }}{% endfor %}{% endfor %}"
NESTED = "{{ " + "(" * 60000 + "1" + ")" * 60000 + " }}"


@pytest.mark.parametrize("template,words", [(LOOP, "steps"), (NESTED, "line 1"), ("{% if %}", "line 1")],
                         ids=["endless", "nested", "no template"])
def test_a_template_that_cannot_be_run_is_named(tmp_path, template, words):
    model = folder(tmp_path / "m", template=template)
    size = sum(file.stat().st_size for file in model.iterdir())
    for args in (["inspect", model], ["chat", "-m", model, "-n", 1, "-t", 1], ["run", "--chat", "-p", "x", "-n", "1", "-m", model]):
        code, out, err, seconds, held = measured(*args)
        assert code == 0, err
        told = out.decode() if args[0] == "inspect" else err
        assert words in told and "chatml" in told, told
        assert args[0] == "inspect" or len(err.splitlines()) == 1, err
        assert SANITIZED or (held < 64 * MB + size and seconds < 30)
    # Without ChatML's tokens there is nothing to fall back on.
    other = folder(tmp_path / "o", template=template,
                   edit=lambda files: files.update({"tokenizer.json": json.loads(
                       json.dumps(files["tokenizer.json"]).replace("<|im_", "<|xx_"))}))
    code, _, err, seconds, held = measured("chat", "-m", other)
    assert code == 3 and words in err.splitlines()[0] and len(err.splitlines()) <= 2, err
    assert SANITIZED or (held < 64 * MB + size and seconds < 30)
    forced = measured("chat", "-m", model, "--chat-format", "template")
    assert forced[0] == 3 and len(forced[2].splitlines()) == 1 and words in forced[2], forced[2]
    server = Server("-m", other)
    try:
        status, body = server.json("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        assert status == 400 and words in body["error"]["message"], body
        assert server.json("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
    finally:
        assert server.stop() == 0
    assert words in server.log.decode()


def shards(path, keep):
    """The weights as two shards, of which `keep` are there."""
    data = (path / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    names = [name for name in header if name != "__metadata__"]
    for shard in keep:
        part = {name: header[name] for name in names[shard::2]}
        out, body = {}, b""
        for name, entry in part.items():
            begin, end = entry["data_offsets"]
            out[name] = {**entry, "data_offsets": [len(body), len(body) + end - begin]}
            body += data[8 + size + begin:8 + size + end]
        text = json.dumps(out).encode()
        text = text.ljust((len(text) + 7) // 8 * 8)
        (path / f"{shard}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (path / "model.safetensors").unlink()
    (path / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {name: f"{i % 2}.safetensors" for i, name in enumerate(names)}}))


def rewrite(path, change):
    """The safetensors file with another header, padded to the old length."""
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    assert len(text) <= size
    data[8:8 + size] = text.ljust(size)
    file.write_bytes(bytes(data))


Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


def transposed(header):
    header["model.embed_tokens.weight"]["shape"] = [32, 48]


def as_integers(header):
    header[Q_PROJ]["dtype"] = "I16"


BAD = {
    "missing shard": (lambda path: shards(path, [0]), None, "1.safetensors"),
    "wrong shape": (lambda path: rewrite(path, transposed), None, "token_embd"),
    "wrong dtype": (lambda path: rewrite(path, as_integers), None, "I16"),
    "config without a key": (None, lambda files: files["config.json"].pop("num_attention_heads"), "num_attention_heads"),
    "tokenizer without merges": (None, lambda files: files["tokenizer.json"]["model"].pop("merges"), "merges"),
    "an activation of no family": (None, lambda files: files["config.json"].update(hidden_act="relu2"), "relu2"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_folder_that_lies_is_one_clear_line(tmp_path, case):
    spoil, edit, words = BAD[case]
    model = folder(tmp_path / "m", edit=edit)
    if spoil:
        spoil(model)
    size = sum(file.stat().st_size for file in model.iterdir())
    code, out, err, seconds, held = measured("run", "-m", model, "-p", "x", "-n", "1")
    assert code == 3 and out == b"", err
    lines = err.splitlines()
    assert len(lines) <= 2 and lines[0].startswith("ballast: ") and words in lines[0], err
    assert SANITIZED or (held < 64 * MB + size and seconds < 30)
    assert measured("inspect", model)[0] in (0, 3)


def test_shards_that_are_all_there_are_read(tmp_path):
    model = folder(tmp_path / "m")
    shards(model, [0, 1])
    assert ballast("run", "-m", model, "-p", "x", "-n", "1").code == 0
