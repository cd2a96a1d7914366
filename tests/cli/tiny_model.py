"""A network of a few thousand random weights, trained on 256 tokens by its own word, for tests of plumbing."""
import json
import pathlib
import random
import shutil

FAMILIES = pathlib.Path(__file__).resolve().parents[1] / "goldens/families"
LETTERS = "abcdefghijklmnopqrstuvwxyz.,:-"
VOCAB = 48


def make(folder, family="llama"):
    """A Hugging Face folder: the weights of tests/goldens, and a tokenizer of single letters."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(FAMILIES / family / name, folder / name)
    letters = [*LETTERS, "\u0120", "\u010a"]  # a space and a line's end, as byte-level vocabularies spell them
    tokenizer = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def text(path, words, seed=1):
    """So many words of letters, five each."""
    chosen = random.Random(seed)
    path.write_text(" ".join("".join(chosen.choices(LETTERS[:26], k=5)) for _ in range(words)) + "\n")
    return path
