"""ballast inspect: what a file holds, streamable or why not, token ids, and its checksum."""
import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

import pytest
import tiny_gguf
from conftest import BALLAST, GEMMA, LIMIT, SANITIZED, SMOL, ballast, environment, refused


def gguf(*entries):
    """A GGUF file of string entries and no tensors."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    for key, value in entries:
        out += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", 8)
        out += struct.pack("<Q", len(value)) + value.encode()
    return out


def test_the_default_model():
    j = ballast("inspect", "--json").json
    assert j["architecture"] == "llama" and j["streamable"] is True and j["loadable"] is True
    assert j["chat_format"] == "chatml"
    assert j["tokenizer"]["vocab"] == 49152 and j["tokenizer"]["add_bos"] is False
    # 30 layers, keys and values, 3 kv heads of 64: int8 and a float scale, or 2 or 4 bytes per element.
    assert j["cache_bytes_per_token"] == {"q8": 30 * 2 * 3 * (64 + 4), "f16": 30 * 2 * 3 * 128, "f32": 30 * 2 * 3 * 256}
    assert len(j["tensors"]) == 272 and j["recommended_sinks"] == 4
    assert sum(t["bytes"] for t in j["tensors"]) == sum(t["bytes"] for t in j["types"].values())
    text = ballast("inspect").text
    assert "streamable" in text and "byte-level BPE" in text and "\x1b" not in text
    assert "blk.0.attn_q.weight" not in text
    assert "blk.0.attn_q.weight" in ballast("inspect", SMOL, "--verbose").text


@pytest.mark.skipif(not GEMMA.exists(), reason="make models brings it")
def test_a_second_family_is_described():
    outcome = ballast("inspect", "-m", GEMMA, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["architecture"] == "gemma3" and outcome.json["streamable"] is True
    assert outcome.json["reason"] and outcome.json["chat_format"] is None  # a base model


def test_an_architecture_that_cannot_be_streamed_is_explained_not_refused(tmp_path):
    path = tmp_path / "gpt2.gguf"
    path.write_bytes(gguf(("general.architecture", "gpt2"), ("general.name", "old")))
    outcome = ballast("inspect", path, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["streamable"] is False and "position" in outcome.json["reason"]
    assert ballast("inspect", path).code == 0
    refused(ballast("run", "-p", "x", "-m", path), 3)


def test_tokenize_prints_the_ids_of_the_exact_bytes(tmp_path):
    text = tmp_path / "t"
    text.write_bytes(b"<|im_start|>user\nHi\0 \xff<|im_end|>\r\n")
    ids = ballast("inspect", "--tokenize", text, "--json").json["ids"]
    assert ids[0] == 1 and 2 in ids  # special tokens are parsed; no BOS of its own
    assert ballast("inspect", "--tokenize", text).text == " ".join(map(str, ids)) + "\n"
    assert ballast("inspect", "--tokenize", "-", "--json", stdin=text.read_bytes()).json["ids"] == ids
    text.write_bytes(b"")
    assert ballast("inspect", "--tokenize", text, "--json").json["ids"] == []
    refused(ballast("inspect", "--tokenize", tmp_path / "none"), 4, "none")


def test_flags_of_other_commands_are_held_to_their_values():
    for args in (["--policy", "foo"], ["--kv", "q3"], ["--compute", "slow"], ["-c", "-5"], ["--sinks", "-1"],
                 ["-t", "5000"]):
        refused(ballast("inspect", *args), 2, args[1])


def test_an_empty_path_is_named():
    refused(ballast("inspect", "--tokenize", ""), 2, '--tokenize: expected a value, found ""')


def test_the_checksum_is_sha256_at_every_padding(tmp_path):
    """FIPS 180-4 pads to 64 bytes: every length modulo 64 once, and the whole default model."""
    path = tmp_path / "m.gguf"
    base = gguf(("general.architecture", "x"))
    for extra in list(range(0, 66)) + [1000]:
        data = gguf(("general.architecture", "x" * (1 + extra)))
        path.write_bytes(data)
        outcome = ballast("inspect", path, "--hash", "--json")
        assert outcome.code == 0, outcome.err
        assert outcome.json["sha256"] == hashlib.sha256(data).hexdigest(), len(data) - len(base)
    expected = hashlib.sha256(SMOL.read_bytes()).hexdigest()
    assert ballast("inspect", "--hash", "--json").json["sha256"] == expected


def test_not_a_model(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04" + b"\0" * 64)
    refused(ballast("inspect", path), 3, "x.gguf")
    refused(ballast("inspect", "--tokenize", path, "-m", path), 3)


def test_the_readme_lists_the_families_that_run():
    outcome = ballast("inspect", "--families")
    readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
    table = readme.split("<!-- families:")[1].split("\n", 1)[1].split("<!-- /families -->")[0]
    assert outcome.code == 0 and table == outcome.out.decode()


def test_ctrl_c_ends_the_hash_of_a_large_file(tmp_path):
    path = tiny_gguf.write(tmp_path / "large.gguf")
    os.truncate(path, 1 << 36)  # 64 GiB, nearly all of it a hole
    process = subprocess.Popen([BALLAST, "inspect", path, "--hash"], env=environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    time.sleep(0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert SANITIZED or time.monotonic() - began < 10
