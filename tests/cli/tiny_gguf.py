"""A tiny Llama-family network with random weights and one token per byte, as a GGUF file: fast, and no fetch."""
import random
import struct

LAYERS, EMBED, HEADS, HEAD, FFN, TRAINED = 2, 32, 2, 16, 64, 2048


def byte_letters():
    """GPT-2's letters for the 256 bytes."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    extra = iter(range(256, 512))
    return [chr(b if b in plain else next(extra)) for b in range(256)]


def write(path, seed=1, norm=1.0):
    """`norm`: the weights of the norms; huge ones overflow, and the output is no number."""
    rng = random.Random(seed)
    vocab = byte_letters() + ["<end>"]

    def text(s):
        data = s.encode()
        return struct.pack("<Q", len(data)) + data

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        if isinstance(v, float):
            return struct.pack("<If", 6, v)
        if isinstance(v, int):
            return struct.pack("<II", 4, v)
        kind = 8 if not v or isinstance(v[0], str) else 5
        return struct.pack("<IIQ", 9, kind, len(v)) + b"".join(text(x) if kind == 8 else struct.pack("<i", x) for x in v)

    meta = {"general.architecture": "llama", "general.name": "tiny", "llama.block_count": LAYERS,
            "llama.context_length": TRAINED, "llama.embedding_length": EMBED, "llama.feed_forward_length": FFN,
            "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": HEAD,
            "llama.rope.freq_base": 10000.0, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": vocab, "tokenizer.ggml.token_type": [1] * 256 + [3], "tokenizer.ggml.merges": [],
            "tokenizer.ggml.eos_token_id": 256}
    shapes = {"token_embd.weight": (len(vocab), EMBED), "output_norm.weight": (EMBED,)}
    for i in range(LAYERS):
        b = f"blk.{i}."
        shapes |= {b + "attn_norm.weight": (EMBED,), b + "ffn_norm.weight": (EMBED,)}
        shapes |= {b + f"attn_{x}.weight": (EMBED, EMBED) for x in ("q", "k", "v", "output")}
        shapes |= {b + "ffn_gate.weight": (FFN, EMBED), b + "ffn_up.weight": (FFN, EMBED), b + "ffn_down.weight": (EMBED, FFN)}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(meta))
    head += b"".join(text(k) + value(v) for k, v in meta.items())
    data = b""
    for name, shape in shapes.items():
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        head += struct.pack("<IQ", 0, len(data))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data += struct.pack(f"<{count}f", *(norm if len(shape) == 1 else rng.gauss(0, 0.3) for _ in range(count)))
        data += bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path
