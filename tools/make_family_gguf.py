#!/usr/bin/env python3
"""The tiny models of make_family_goldens.py as GGUF files, by the conventions of llama.cpp.

    make_family_gguf.py FAMILIES_DIR OUT_DIR [family ...]       (needs PyPI gguf, numpy)
Reads FAMILIES_DIR/<family>/{config.json,model.safetensors} and writes OUT_DIR/<family>.gguf. Tensor names are
those that the gguf package itself maps; what llama.cpp changes in the values is changed here: queries and keys of
Llama's kin permuted to neighbouring pairs, fused rows of GPT-NeoX and Falcon put one kind after another, Gemma's
norms stored whole. No tokenizer: tests/model/families_test.cc feeds ids.
"""
import json
import math
import pathlib
import struct
import sys

import usage

usage.begin(__doc__, "gguf", "numpy")
import gguf  # noqa: E402
import numpy as np  # noqa: E402

BF16, F32 = gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F32
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "smollm3": "smollm3", "qwen2": "qwen2", "qwen3": "qwen3",
                 "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "gpt_neox": "gptneox",
                 "falcon": "falcon", "mpt": "mpt", "stablelm": "stablelm", "olmo2": "olmo2", "granite": "granite",
                 "cohere": "command-r", "cohere2": "cohere2"}
PERMUTED = ("llama", "smollm3", "granite")


def read_safetensors(path):
    """{name: float32 array}. All tensors are bfloat16, which numpy has no name for."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        begin, end = entry["data_offsets"]
        words = np.frombuffer(data[8 + size + begin:8 + size + end], "<u2").astype(np.uint32) << 16
        tensors[name] = words.view(np.float32).reshape(entry["shape"])
    return tensors


class Config:
    def __init__(self, fields):
        self.fields, self.type = fields, fields["model_type"]
        self.layers, self.embed = self.first("num_hidden_layers", "n_layers"), self.first("hidden_size", "d_model")
        self.heads = self.first("num_attention_heads", "n_heads")
        self.kv_heads = self.first("num_key_value_heads", default=self.heads)
        self.head_dim = self.first("head_dim", default=self.embed // self.heads)
        if self.type == "falcon":
            self.kv_heads = fields["num_kv_heads"] if fields["new_decoder_architecture"] else 1
        rope = fields.get("rope_parameters") or {}
        self.rope = rope.get("full_attention", rope)
        self.local_rope = rope.get("sliding_attention")
        self.partial = self.rope.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))

    def first(self, *names, default=None):
        for name in names:
            if self.fields.get(name) is not None:
                return self.fields[name]
        return default


def rope_divisors(config):
    """Llama 3.1's divisor of every frequency, as llama.cpp's rope_freqs holds them."""
    r = config.rope
    original, low, high = r["original_max_position_embeddings"], r["low_freq_factor"], r["high_freq_factor"]
    out = []
    for i in range(0, config.head_dim, 2):
        wave = 2 * math.pi * r["rope_theta"] ** (i / config.head_dim)
        if wave < original / high:
            out.append(1.0)
        elif wave > original / low:
            out.append(r["factor"])
        else:
            smooth = (original / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out, np.float32)


def permute(values, heads):
    """Halves of a rotation, a head apart, become neighbours."""
    shape = values.shape
    return values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def unfuse(values, config):
    """(kv_head, [its queries, key, value], head_dim) rows: all queries, all keys, all values."""
    group = config.heads // config.kv_heads
    rows = values.reshape(config.kv_heads, group + 2, config.head_dim, *values.shape[1:])
    parts = (rows[:, :group], rows[:, group:group + 1], rows[:, group + 1:])
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def convert(name, values, config, architecture):
    if architecture in PERMUTED and ".q_proj." in name:
        return permute(values, config.heads)
    if architecture in PERMUTED and ".k_proj." in name:
        return permute(values, config.kv_heads)
    if architecture in ("gptneox", "falcon") and "query_key_value" in name:
        return unfuse(values, config)
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    return values


def write_keys(w, config, architecture):
    f = config.fields
    w.add_block_count(config.layers)
    w.add_embedding_length(config.embed)
    w.add_head_count(config.heads)
    w.add_head_count_kv(config.kv_heads)
    w.add_context_length(config.first("max_position_embeddings", "max_seq_len", default=2048))
    w.add_feed_forward_length(config.first("intermediate_size", "ffn_hidden_size", default=4 * config.embed))
    rms = architecture in PERMUTED + ("qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2")
    eps = config.first("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default=1e-5)
    (w.add_layer_norm_rms_eps if rms else w.add_layer_norm_eps)(eps)
    if "head_dim" in f:
        w.add_key_length(config.head_dim)
        w.add_value_length(config.head_dim)
    if architecture != "mpt":
        w.add_rope_dimension_count(int(config.partial * config.head_dim))
        w.add_rope_freq_base(config.rope["rope_theta"])
    if config.local_rope:
        w.add_float32(f"{architecture}.rope.freq_base_swa", config.local_rope["rope_theta"])
    if f.get("sliding_window") and f.get("use_sliding_window", True):
        w.add_sliding_window(f["sliding_window"])
        if architecture == "gemma3":  # llama.cpp takes every sixth layer for global; this model has four
            w.add_sliding_window_pattern([kind == "sliding_attention" for kind in f["layer_types"]])
    if architecture in ("gptneox", "stablelm"):
        w.add_parallel_residual(f["use_parallel_residual"])
    if architecture == "gemma2":
        w.add_attn_logit_softcapping(f["attn_logit_softcapping"])
        w.add_final_logit_softcapping(f["final_logit_softcapping"])
    if architecture == "granite":
        w.add_attention_scale(f["attention_multiplier"])
        w.add_embedding_scale(f["embedding_multiplier"])
        w.add_residual_scale(f["residual_multiplier"])
        w.add_logit_scale(f["logits_scaling"])
    if architecture in ("command-r", "cohere2"):
        w.add_logit_scale(f["logit_scale"])
    if architecture == "mpt":
        w.add_clamp_kqv(f["attn_config"]["clip_qkv"])
        w.add_max_alibi_bias(f["attn_config"].get("alibi_bias_max", 8))


def write(folder, out):
    config = Config(json.loads((folder / "config.json").read_text()))
    architecture = ARCHITECTURES[config.type]
    kind = {name: enum for enum, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(kind, config.layers)
    w = gguf.GGUFWriter(out, architecture)
    w.add_name(folder.name)
    write_keys(w, config, architecture)
    if config.rope.get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", rope_divisors(config))
    for name, values in sorted(read_safetensors(folder / "model.safetensors").items()):
        if name == "lm_head.weight" and config.fields.get("tie_word_embeddings"):
            continue
        values = np.ascontiguousarray(convert(name, values, config, architecture), np.float32)
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert gguf_name, name
        if values.ndim == 1:
            w.add_tensor(gguf_name, values, raw_dtype=F32)
        else:
            w.add_tensor(gguf_name, gguf.quants.quantize(values, BF16), raw_dtype=BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for family in sys.argv[3:] or sorted(path.name for path in source.iterdir() if path.is_dir()):
        write(source / family, out / f"{family}.gguf")


if __name__ == "__main__":
    main()
