#!/usr/bin/env python3
"""Tiny random models of every family, with the logits that `transformers` and the definition give them.

    make_family_goldens.py OUT_DIR [family ...]       (needs PyPI torch, transformers, safetensors, numpy)
Writes OUT_DIR/<family>/: config.json and model.safetensors (bfloat16) as Hugging Face folders hold them, and
golden.json: token ids, `dense` logits of transformers' own forward pass, and `stream` logits of StreamingLLM by
definition: every key is kept unrotated and rotated anew, at its index inside the cache, for every query
(arXiv 2309.17453, section 3.2); ALiBi distances are those inside the cache; layers trained with a local window
keep it and have no sinks. Everything in float32, on weights that bfloat16 can hold exactly.
tests/model/families_test.cc reads the result; `make test-long` makes it again and compares.
"""
import copy
import json
import pathlib
import shutil
import sys

import usage

usage.begin(__doc__, "torch", "transformers")
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM  # noqa: E402

SEED, VOCAB, DENSE, SINKS, WINDOW, STREAM = 7, 48, 40, 3, 13, 90
EVERY = 3  # logits of every third token are kept: the files stay small

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
             pad_token_id=None, tie_word_embeddings=False, initializer_range=0.3)
UNGROUPED = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
HEAD = dict(head_dim=8)


def rope(theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta, **more))


FAMILIES = {
    "llama": ("LlamaConfig", {**SMALL, **HEAD, **rope()}),
    "llama3": ("LlamaConfig", {**SMALL, **HEAD, "attention_bias": True, "rope_parameters": dict(
        rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)}),
    "mistral": ("MistralConfig", {**SMALL, **HEAD, **rope(), "sliding_window": 9}),
    "smollm3": ("SmolLM3Config", {**SMALL, **rope(), "num_hidden_layers": 4, "use_sliding_window": False,
                                  "no_rope_layer_interval": 4, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {**SMALL, **rope(), "use_sliding_window": False}),
    "qwen3": ("Qwen3Config", {**SMALL, "head_dim": 16, **rope(), "use_sliding_window": False}),
    "gemma2": ("Gemma2Config", {**SMALL, "head_dim": 16, **rope(), "sliding_window": 9, "num_hidden_layers": 4,
                                "query_pre_attn_scalar": 16, "attn_logit_softcapping": 20.0,
                                "final_logit_softcapping": 10.0, "tie_word_embeddings": True}),
    "gemma3": ("Gemma3TextConfig", {**SMALL, "head_dim": 16, "sliding_window": 9, "num_hidden_layers": 4,
                                    "num_key_value_heads": 1, "query_pre_attn_scalar": 16,
                                    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
                                    "rope_parameters": {
                                        "sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                                        "full_attention": dict(rope_type="default", rope_theta=1000000.0)},
                                    "tie_word_embeddings": True}),
    "phi3": ("Phi3Config", {**SMALL, **rope(), "sliding_window": None}),
    "gptneox": ("GPTNeoXConfig", {**UNGROUPED, **rope(partial_rotary_factor=0.5), "rotary_pct": 0.5,
                                  "use_parallel_residual": True, "hidden_act": "gelu"}),
    "falcon": ("FalconConfig", {**UNGROUPED, **rope(), "multi_query": True, "new_decoder_architecture": False,
                                "parallel_attn": True, "bias": False, "alibi": False, "ffn_hidden_size": 48}),
    "falcon40": ("FalconConfig", {**UNGROUPED, **rope(), "num_kv_heads": 2, "new_decoder_architecture": True,
                                  "parallel_attn": True, "bias": False, "alibi": False, "ffn_hidden_size": 48}),
    "mpt": ("MptConfig", dict(d_model=32, n_heads=4, n_layers=2, expansion_ratio=4, max_seq_len=256,
                              vocab_size=VOCAB, attn_config=dict(alibi=True, clip_qkv=2.0),
                              initializer_range=0.3, no_bias=True)),
    "stablelm": ("StableLmConfig", {**SMALL, **rope(partial_rotary_factor=0.5), "partial_rotary_factor": 0.5,
                                    "use_qkv_bias": True}),
    "olmo2": ("Olmo2Config", {**SMALL, **rope()}),
    "granite": ("GraniteConfig", {**SMALL, **rope(), "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
                                  "attention_multiplier": 0.2, "logits_scaling": 2.5}),
    "cohere": ("CohereConfig", {**SMALL, **rope(), "logit_scale": 0.3, "tie_word_embeddings": True}),
    "cohere2": ("Cohere2Config", {**SMALL, "head_dim": 8, **rope(), "num_hidden_layers": 4, "sliding_window": 9,
                                  "logit_scale": 0.3, "tie_word_embeddings": True}),
}


class Definition:
    """What one streaming run adds to a model: keys unrotated in a cache that evicts, rotated when they are read."""

    def __init__(self, model, family):
        self.model, self.family, self.config = model, family, model.config
        self.keys, self.values = {}, {}

    def window_of(self, layer):
        kinds = getattr(self.config, "layer_types", None)
        local = kinds[layer] == "sliding_attention" if kinds else getattr(self.config, "sliding_window", None)
        return self.config.sliding_window if local else None

    def update(self, key, value, layer, *_, **__):
        """transformers' cache interface: adds one token, evicts what the law evicts, returns what is visible."""
        keys = torch.cat([self.keys[layer], key], 2) if layer in self.keys else key
        values = torch.cat([self.values[layer], value], 2) if layer in self.values else value
        local = self.window_of(layer)
        sinks, window = (0, local) if local else (SINKS, WINDOW)
        if keys.shape[2] > sinks + window:
            keep = list(range(sinks)) + list(range(keys.shape[2] - window, keys.shape[2]))
            keys, values = keys[:, :, keep], values[:, :, keep]
        self.keys[layer], self.values[layer] = keys, values
        return keys, values

    def rotate(self, x, layer, first):
        """x: (1, heads, tokens, dim) at positions first, first + 1, ..."""
        rotary = getattr(self.model.base_model, "rotary_emb", None)
        interval = getattr(self.config, "no_rope_layer_interval", None)
        if interval and (layer + 1) % interval == 0:
            return x
        if self.config.model_type == "cohere2" and self.window_of(layer) is None:
            return x
        if rotary is None:
            return x
        positions = torch.arange(first, first + x.shape[2])[None]
        kinds = getattr(self.config, "layer_types", None)
        if self.config.model_type == "gemma3_text":
            cos, sin = rotary(x, positions, kinds[layer])
        else:
            cos, sin = rotary(x, positions)
        if self.config.model_type.startswith("cohere"):  # pairs (2i, 2i + 1)
            half = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
            return x * cos[:, None] + half * sin[:, None]
        dims = cos.shape[-1]
        part, rest = x[..., :dims], x[..., dims:]
        half = torch.cat([-part[..., dims // 2:], part[..., :dims // 2]], -1)
        return torch.cat([part * cos[:, None] + half * sin[:, None], rest], -1)

    def attend(self, query, key, value, layer, scale, softcap=None):
        """query: (1, heads, 1, dim) unrotated; key, value: (1, kv_heads, n, dim), the query's own the last."""
        n = key.shape[2]
        query, key = self.rotate(query, layer, n - 1), self.rotate(key, layer, 0)
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = query @ key.transpose(2, 3) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        return torch.softmax(scores, -1) @ value

    # The rest of transformers' cache interface that forward passes ask for.
    is_compileable = False

    def get_seq_length(self, layer=0):
        return self.keys[layer].shape[2] if layer in self.keys else 0

    def get_query_offset(self, layer=0):
        return self.get_seq_length(layer)

    def get_mask_sizes(self, query_length, layer=0):
        return min(self.get_seq_length(layer) + 1, SINKS + WINDOW), 0

    def get_max_cache_shape(self, layer=0):
        return -1

    def __len__(self):
        return len(self.keys)


ACTIVE = None  # the Definition whose run this is


def definition_attention(module, query, key, value, attention_mask, scaling=None, softcap=None, **_):
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    out = ACTIVE.attend(query, key, value, module.layer_idx, scale, softcap)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("definition", definition_attention)
AttentionMaskInterface.register("definition", lambda *args, **kwargs: None)


def stream_by_definition(model, family, tokens):
    """Logits of every token. Positions are all 0, at which a rotation does nothing: Definition rotates."""
    global ACTIVE
    ACTIVE = Definition(model, family)
    if family.startswith("falcon"):
        return stream_falcon(model, tokens)
    if family == "mpt":  # its ALiBi is by index of the keys it is given: those inside the cache
        model.set_attn_implementation("eager") if hasattr(model, "set_attn_implementation") else None
    else:
        model.set_attn_implementation("definition")
    rows = []
    for token in tokens:
        more = {} if family == "mpt" else {"position_ids": torch.zeros(1, 1, dtype=torch.long)}
        out = model(input_ids=torch.tensor([[token]]), past_key_values=ACTIVE, use_cache=True, **more)
        rows.append(out.logits[0, -1])
    return torch.stack(rows)


def stream_falcon(model, tokens):
    """Falcon calls torch's attention by itself: stand in for it."""
    functional = torch.nn.functional
    original = functional.scaled_dot_product_attention
    layer = [0]

    def attention(query, key, value, **_):
        out = ACTIVE.attend(query, key, value, layer[0] % model.config.num_hidden_layers, query.shape[-1] ** -0.5)
        layer[0] += 1
        return out

    rows = []
    functional.scaled_dot_product_attention = attention
    try:
        for token in tokens:
            out = model(input_ids=torch.tensor([[token]]), past_key_values=ACTIVE, use_cache=True,
                        position_ids=torch.zeros(1, 1, dtype=torch.long))
            rows.append(out.logits[0, -1])
    finally:
        functional.scaled_dot_product_attention = original
    return torch.stack(rows)


def make(family, out):
    config_name, fields = FAMILIES[family]
    torch.manual_seed(SEED + sorted(FAMILIES).index(family))
    config = getattr(transformers, config_name)(**fields)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa" if family.startswith("falcon") else "eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "ln_" in name or "layernorm" in name:
                weight.copy_(weight + 0.3 * torch.randn_like(weight))
            elif name.endswith("bias"):
                weight.copy_(0.2 * torch.randn_like(weight))
            weight.copy_(weight.to(torch.bfloat16).float())
    model = model.float().eval()
    folder = out / family
    shutil.rmtree(folder, ignore_errors=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)  # a copy: frequencies must stay float32
    (folder / "generation_config.json").unlink(missing_ok=True)
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(0, VOCAB, (STREAM,), generator=generator).tolist()
    with torch.no_grad():
        dense = model(input_ids=torch.tensor([tokens[:DENSE]]), use_cache=False).logits[0]
        stream = stream_by_definition(model, family, tokens)
    keep = lambda rows: [[round(v, 5) for v in row] for row in rows[EVERY - 1::EVERY].tolist()]
    golden = {"tokens": tokens, "sinks": SINKS, "window": WINDOW, "every": EVERY, "dense_tokens": DENSE,
              "dense": keep(dense), "stream": keep(stream)}
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    # Before anything is evicted the two must agree: a check of the definition itself.
    short = min(SINKS + WINDOW, 9)
    worst = (dense[:short] - stream[:short]).abs().max().item()
    spread = stream.abs().max().item()
    print(f"{family:10} first {short} tokens: dense and definition differ by {worst:.2e}; largest logit {spread:.2f}")
    assert worst < 1e-3, family


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    for family in sys.argv[2:] or FAMILIES:
        make(family, out)


if __name__ == "__main__":
    main()
