#!/usr/bin/env python3
"""Makes tests/goldens/hf_tokenizers/: tokenizer.json files of the kinds in use, and the ids that Hugging Face's `tokenizers` gives.

Each kind is a pipeline as a published family has it, with a small vocabulary trained here on a small text; then 1,000 random Unicode strings
are encoded, every second one with the template (BOS, EOS). The ids of the first 12 strings are stored as they are, of all as 32-bit FNV-1a.
Needs: pip install tokenizers (0.23).   Usage: tools/make_tokenizer_goldens.py [--check]
"""
import argparse
import json
import pathlib
import random
import sys
import unicodedata

import usage

usage.begin(__doc__, "tokenizers")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "goldens" / "hf_tokenizers"
MARK = "\u2581"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

EXTRA = """
Привет, как дела? Это небольшой текст на русском языке.  Γειά σου Κόσμε. こんにちは世界。これは日本語の文章です。 你好，世界！这是一个测试。
안녕하세요 세계. مرحبا بالعالم، كيف حالك؟ नमस्ते दुनिया। สวัสดีชาวโลก Café naïve résumé Straße ÀÉÎÕÜ. def main(argc, argv):\n    return 42  # done
I'm sure they'll say we've don't it's you're HE'S. 1234567890 3.14159 12,345 2024-01-01\n\n\n\tif (x != y) { z += 1; }   // 😀 👍🏽 🇩🇪
"""


def byte_level(add_prefix_space=False, use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bpe(pre, norm=None, special=("<|endoftext|>",), post=None, size=460, **model):
    """Byte-level BPE."""
    tok = Tokenizer(models.BPE(**model))
    if norm:
        tok.normalizer = norm
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tok.train_from_iterator(TRAIN, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False))
    if post:
        tok.post_processor = post(tok)
    return tok


def template(single):
    def make(tok):
        names = [piece for piece in single.split() if piece != "$A"]
        return processors.TemplateProcessing(single=single, special_tokens=[(n, tok.token_to_id(n)) for n in names])
    return make


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def sentencepiece(norm=None, pre=None, special=("<unk>", "<s>", "</s>"), post=None, decoder=None, size=640, added=()):
    """BPE with byte fallback, as converted from SentencePiece. Byte tokens are in the vocabulary, not added."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if norm:
        tok.normalizer = norm
    if pre:
        tok.pre_tokenizer = pre
    tok.decoder = decoder or decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # Trained word by word, then run with the pipeline's own cuts.
    train = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    train.pre_tokenizer = pre_tokenizers.Metaspace()
    train.train_from_iterator(TRAIN, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special) + BYTES, show_progress=False))
    js = json.loads(tok.to_str())
    trained = json.loads(train.to_str())
    js["model"]["vocab"] = trained["model"]["vocab"]
    js["model"]["merges"] = trained["model"]["merges"]
    js["added_tokens"] = [t for t in trained["added_tokens"] if t["content"] not in BYTES]
    tok = Tokenizer.from_str(json.dumps(js))
    tok.add_tokens(list(added))
    if post:
        tok.post_processor = post(tok)
    return tok


def unigram(norm, pre, special=("<pad>", "</s>", "<unk>"), post=None, size=400, byte_fallback=False):
    tok = Tokenizer(models.Unigram())
    if norm:
        tok.normalizer = norm
    tok.pre_tokenizer = pre
    tok.decoder = decoders.Metaspace()
    special = list(special) + (BYTES if byte_fallback else [])
    tok.train_from_iterator(TRAIN, trainers.UnigramTrainer(vocab_size=size + len(special), special_tokens=special, unk_token="<unk>", show_progress=False))
    if byte_fallback:
        js = json.loads(tok.to_str())
        js["model"]["byte_fallback"] = True
        js["added_tokens"] = [t for t in js["added_tokens"] if t["content"] not in BYTES]
        js["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}]}
        tok = Tokenizer.from_str(json.dumps(js))
    if post:
        tok.post_processor = post(tok)
    return tok


def words(pre, norm=None, size=360, **model):
    """BPE over characters, with an unknown token."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", **model))
    if norm:
        tok.normalizer = norm
    tok.pre_tokenizer = pre
    options = {k: v for k, v in model.items() if k in ("continuing_subword_prefix", "end_of_word_suffix")}
    tok.train_from_iterator(TRAIN, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"], show_progress=False, limit_alphabet=120, **options))
    return tok


def with_spaces(tok):
    tok.add_tokens([AddedToken(" " * n, normalized=True, special=False) for n in range(24, 1, -1)])
    return tok


def with_odd_tokens(tok):
    tok.add_tokens([AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True), AddedToken("word", single_word=True),
                    AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("Café", normalized=True)])
    return tok


def old_merges(tok):
    """Merges as "a b", as files of before 2024 have them."""
    js = json.loads(tok.to_str())
    js["model"]["merges"] = [" ".join(m) for m in js["model"]["merges"]]
    return Tokenizer.from_str(json.dumps(js)), js


def kinds():
    S, N = pre_tokenizers.Sequence, normalizers
    yield "gpt2", lambda: bpe(byte_level(), post=lambda t: processors.ByteLevel(trim_offsets=False))
    yield "roberta", lambda: bpe(byte_level(True), special=("<s>", "<pad>", "</s>"),
                                 post=lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))))
    yield "llama3", lambda: bpe(S([split(LLAMA3), byte_level(use_regex=False)]), special=("<|begin_of_text|>", "<|eot_id|>"), ignore_merges=True,
                                post=lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<|begin_of_text|> $A")(t)]))
    yield "qwen2", lambda: bpe(S([split(QWEN2), byte_level(use_regex=False)]), norm=N.NFC(), special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    yield "smollm2", lambda: bpe(S([pre_tokenizers.Digits(individual_digits=True), byte_level()]), special=("<|endoftext|>", "<|im_start|>"))
    yield "granite", lambda: bpe(S([pre_tokenizers.Digits(individual_digits=True), byte_level()]), special=("<|end_of_text|>", "<|start_of_role|>"))
    yield "deepseek_llm", lambda: bpe(S([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
                                         pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=False)]), special=("<｜begin▁of▁sentence｜>",),
                                      post=template("<｜begin▁of▁sentence｜> $A"))
    yield "deepseek_v3", lambda: bpe(S([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3), byte_level(use_regex=False)]))
    yield "falcon", lambda: bpe(S([pre_tokenizers.Punctuation("contiguous"), byte_level(), pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]))
    yield "gpt_neox", lambda: with_spaces(bpe(byte_level(), norm=N.NFC(), special=("<|endoftext|>", "<|padding|>")))
    yield "mpt", lambda: with_spaces(bpe(byte_level(), norm=N.Sequence([N.NFC()]), special=("<|endoftext|>",), post=template("$A <|endoftext|>")))
    yield "llama2", lambda: sentencepiece(norm=N.Sequence([N.Prepend(MARK), N.Replace(" ", MARK)]), post=template("<s> $A"))
    yield "phi3", lambda: sentencepiece(norm=N.Sequence([N.Prepend(MARK), N.Replace(" ", MARK)]), added=(
        AddedToken("<|user|>", rstrip=True, normalized=False, special=True), AddedToken("<|end|>", rstrip=True, normalized=False, special=True)))
    yield "mistral", lambda: sentencepiece(pre=pre_tokenizers.Metaspace(prepend_scheme="first", split=False), post=template("<s> $A"))
    yield "gemma", lambda: sentencepiece(norm=N.Replace(" ", MARK), pre=pre_tokenizers.Split(" ", "merged_with_previous"), special=("<pad>", "<eos>", "<bos>", "<unk>"),
                                         post=template("<bos> $A"), added=(AddedToken("\n\n", normalized=False), AddedToken(MARK * 2, normalized=False)),
                                         decoder=decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]))
    yield "stablelm2", lambda: bpe(S([split(CL100K), byte_level(use_regex=False)]))
    yield "olmo2", lambda: bpe(S([split(CL100K, "removed", True), byte_level(use_regex=False)]))
    yield "cohere", lambda: bpe(S([pre_tokenizers.Digits(individual_digits=True), byte_level()]), norm=N.NFC(), special=("<PAD>", "<BOS_TOKEN>"), post=template("<BOS_TOKEN> $A"))
    yield "bloom", lambda: bpe(S([split(BLOOM), byte_level(use_regex=False)]), special=("<unk>", "<s>", "</s>"))
    yield "o200k", lambda: bpe(S([split(O200K), byte_level(use_regex=False)]), special=("<|endoftext|>",))
    yield "tekken", lambda: bpe(S([split(TEKKEN), byte_level(use_regex=False)]), special=("<s>", "[INST]"), ignore_merges=True, post=template("<s> $A"))
    yield "starcoder2", lambda: with_odd_tokens(bpe(S([pre_tokenizers.Digits(individual_digits=True), byte_level()])))
    yield "odd_tokens_nfkc", lambda: with_odd_tokens(bpe(byte_level(), norm=N.Sequence([N.NFKC(), N.Lowercase()])))
    yield "t5", lambda: unigram(N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), pre_tokenizers.Metaspace(), post=template("$A </s>"))
    yield "xlnet", lambda: unigram(N.Sequence([N.Replace("``", '"'), N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase()]),
                                   S([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), special=("<unk>", "<sep>", "<cls>"), post=template("$A <sep> <cls>"))
    yield "unigram_bytes", lambda: unigram(N.Sequence([N.Strip(), N.NFD()]), pre_tokenizers.Metaspace(prepend_scheme="first"), byte_fallback=True)
    yield "openai_gpt", lambda: words(pre_tokenizers.BertPreTokenizer(), norm=N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]), end_of_word_suffix="</w>")
    yield "whitespace", lambda: words(pre_tokenizers.Whitespace(), fuse_unk=True)
    yield "prefixed", lambda: words(S([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous")]), continuing_subword_prefix="##")
    yield "merged_with_next", lambda: words(S([split(r"\w+", "merged_with_next"), pre_tokenizers.CharDelimiterSplit("e")]), fuse_unk=True)


def random_texts(count=1000):
    """Half of them look like text, half are characters from anywhere in Unicode 13."""
    rng = random.Random(20240601)
    ranges = [(0x20, 0x7E)] * 4 + [(0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xFFF), (0x1000, 0x1FFF),
                                   (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFEF), (0x1F300, 0x1FAFF), (0x1D400, 0x1D7FF)]
    blanks = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2003", " \n ", "     ", "\u0085", "\u200b", "\u2028"]
    pieces = EXTRA.split(" ") + ["<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<left>", " <left> ", "<right>  x", "word", "words", "<both>", "Café", "CAFÉ",
                                 "cafe\u0301", "<0x41>", "\u2581", "<unk>", "``quoted''", "don't", "WE'LL", "'\u017f", "e\u0323\u0307", "ﬁ", "①", "½", "x" * 40, "aaaa" * 9,
                                 "0" * 17, "...", "!!!", "<|user|>", "[INST]", "ΣΑΣ", "İstanbul", "ǅ", "ß", "_a_b", "__init__", "#include <x.h>", "http://a.b/c?d=e&f=1"]

    def character():
        while True:
            c = chr(rng.randint(*rng.choice(ranges)))
            if unicodedata.category(c) not in ("Cn", "Cs", "Co") and unicodedata.ucd_3_2_0.category(c) != "Cn" or c in "😀👍🏽":
                return c

    texts = ["", " ", "Hello", " Hello world", "a", "\n"]
    while len(texts) < count:
        parts = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.5:
                parts.append(rng.choice(pieces) + rng.choice(["", " ", " "]))
            elif kind < 0.65:
                parts.append(rng.choice(blanks))
            elif texts and len(texts) % 2:
                parts.append("".join(character() for _ in range(rng.randint(1, 8))))
            else:
                parts.append("".join(rng.choice("etaoin shrdlu'.,0123456789ETAOIN") for _ in range(rng.randint(1, 12))))
        texts.append("".join(parts))
    return texts


def fnv(ids):
    h = 2166136261
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = (h ^ b) * 16777619 & 0xFFFFFFFF
    return f"{h:08x}"


TRAIN = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare with the stored files instead of writing them")
    args = parser.parse_args()
    if args.check:
        return check()
    text = (ROOT / "tests" / "goldens" / "stream.txt").read_text()[:60000] + EXTRA * 4
    TRAIN.extend(text[i:i + 1000] for i in range(0, len(text), 1000))
    OUT.mkdir(parents=True, exist_ok=True)
    texts = random_texts()
    files = {"texts.json": json.dumps(texts, ensure_ascii=False, separators=(",", ":"))}
    for name, make in kinds():
        tok = make()
        if name in ("falcon", "gpt_neox", "llama2", "smollm2"):
            tok, js = old_merges(tok)
        else:
            js = json.loads(tok.to_str())
        ids = [tok.encode(t, add_special_tokens=i % 2 == 1).ids for i, t in enumerate(texts)]
        record = {"tokenizer": js, "ids": ids[:12], "hashes": "".join(fnv(i) for i in ids)}
        files[name + ".json"] = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    for name, content in files.items():
        (OUT / name).write_text(content)
    print(f"{len(files) - 1} kinds, {sum(len(c.encode()) for c in files.values())} bytes")
    return 0


def check():
    """Training breaks ties as it likes, so the stored vocabularies are compared, not trained again."""
    texts = json.loads((OUT / "texts.json").read_text())
    bad = texts != random_texts()
    for path in sorted(OUT.glob("*.json")):
        if path.name == "texts.json":
            continue
        record = json.loads(path.read_text())
        tok = Tokenizer.from_str(json.dumps(record["tokenizer"]))
        hashes = "".join(fnv(tok.encode(t, add_special_tokens=i % 2 == 1).ids) for i, t in enumerate(texts))
        bad = bad or hashes != record["hashes"]
        print(f"{path.stem}: {'same' if hashes == record['hashes'] else 'differs'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
