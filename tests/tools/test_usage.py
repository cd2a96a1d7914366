"""tools/: every script says what it is for, also where the packages it needs are not."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = [path for folder in ("tools", "bench") for path in sorted((ROOT / folder).glob("*.py"))
           if "__main__" in path.read_text()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_needs_nothing_and_does_nothing(script, tmp_path):
    outcome = subprocess.run([sys.executable, "-B", script, "--help"], capture_output=True, text=True, cwd=tmp_path,
                             timeout=60)
    assert outcome.returncode == 0 and outcome.stderr == "" and outcome.stdout.strip(), outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path):
    """Also where torch, which stands for them all, is installed."""
    code = ("import sys, importlib.util; find = importlib.util.find_spec; "
            "importlib.util.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more); "
            f"sys.path.insert(0, {str(ROOT / 'tools')!r}); sys.argv = ['x.py', 'out']; import make_family_goldens")
    outcome = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert outcome.returncode == 1 and "found no torch" in outcome.stderr and "Traceback" not in outcome.stderr
