#!/bin/sh
# Every family again: the tiny models and their logits made anew by `transformers` and compared with the committed
# ones; each model converted to GGUF by llama.cpp's conventions and its logits compared as well.
#   BALLAST_ORACLE_PYTHON   a python that has torch, transformers, safetensors, numpy and gguf; without it they are
#                           installed into build/long/packages (torch for CPUs, about 1 GB unpacked)
set -eu
cd "$(dirname "$0")/../.."
work=build/long/families
mkdir -p "$work"
PYTHON=${BALLAST_ORACLE_PYTHON:-}
if [ -z "$PYTHON" ]; then
  PYTHON=/usr/bin/python3
  PYTHONPATH=$PWD/build/long/packages
  export PYTHONPATH
  pip() { "$PYTHON" -m pip install --quiet --root-user-action=ignore --target "$PYTHONPATH" --upgrade "$@"; }
  if ! "$PYTHON" -c 'import torch, transformers, safetensors, numpy, gguf' 2>/dev/null; then
    pip torch --index-url https://download.pytorch.org/whl/cpu || pip torch
    pip transformers safetensors numpy gguf
  fi
fi
"$PYTHON" tools/make_family_goldens.py "$work/made"
"$PYTHON" - "$work/made" tests/goldens/families <<'EOF'
import json, pathlib, sys
made, kept = map(pathlib.Path, sys.argv[1:])
for folder in sorted(kept.iterdir()):
    a, b = (json.loads((root / folder.name / "golden.json").read_text()) for root in (made, kept))
    assert a["tokens"] == b["tokens"], folder.name
    worst = max(abs(x - y) for k in ("dense", "stream") for r, s in zip(a[k], b[k]) for x, y in zip(r, s))
    print(f"{folder.name:10} made anew: logits differ by at most {worst:.1e}")
    assert worst < 2e-4, folder.name
EOF
"$PYTHON" tools/make_family_gguf.py tests/goldens/families "$work/gguf"
cmake --build --preset release --target model_tests
BALLAST_FAMILIES_GGUF=$PWD/$work/gguf build/release/tests/model_tests --gtest_filter='FamiliesAsGguf.*'
