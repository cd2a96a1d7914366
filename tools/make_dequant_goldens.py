#!/usr/bin/env python3
"""Writes tests/goldens/dequant.json: random blocks of every type and their values by the `gguf` package.

Usage: make_dequant_goldens.py > tests/goldens/dequant.json   (pip install gguf numpy)
"""
import json

import usage

usage.begin(__doc__, "gguf", "numpy")
import gguf  # noqa: E402
import numpy as np  # noqa: E402

# Where the f16 scales of a block lie; their bytes are drawn as ordinary numbers, the rest at random.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
BLOCK = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q2_K": 84, "Q3_K": 110, "Q4_K": 144,
         "Q5_K": 176, "Q6_K": 210}


def main():
    rng = np.random.default_rng(20260101)
    cases = []
    for name, size in BLOCK.items():
        blocks = 2 if size < 40 else 1
        raw = rng.integers(0, 256, size=(blocks, size), dtype=np.uint8)
        for at in HALVES[name]:
            scale = rng.uniform(-0.1, 0.1, size=blocks).astype(np.float16)
            raw[:, at:at + 2] = scale.view(np.uint8).reshape(blocks, 2)
        values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).reshape(-1)
        cases.append({"type": name, "bytes": raw.tobytes().hex(), "values": values.tolist()})
    for name, dtype in (("F32", np.float32), ("F16", np.float16)):
        x = rng.normal(size=16).astype(dtype)
        cases.append({"type": name, "bytes": x.tobytes().hex(), "values": x.astype(np.float32).tolist()})
    x = (rng.normal(size=16).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    values = gguf.quants.dequantize(x.view(np.uint8), gguf.GGMLQuantizationType.BF16).reshape(-1)
    cases.append({"type": "BF16", "bytes": x.tobytes().hex(), "values": values.tolist()})
    print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")


if __name__ == "__main__":
    main()
