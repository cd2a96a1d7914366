#!/usr/bin/env python3
"""Installs the Python packages that the server's tests use (the official openai client) into build/venv.

Never fails: without a package index the tests that need them are skipped, and build/venv/unavailable says why.
"""
import pathlib
import shutil
import subprocess
import sys

import usage

PACKAGES = ["openai>=1.60"]
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "build/venv"


def main():
    done, why = FOLDER / "installed", FOLDER / "unavailable"
    wanted = "\n".join(PACKAGES)
    if done.exists() and done.read_text() == wanted:
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    # --target leaves the system's own Python as it is, and needs no venv module.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
               "--root-user-action=ignore", "--retries", "2", "--timeout", "30", "--target", str(FOLDER), *PACKAGES]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=280)
        fault = "" if outcome.returncode == 0 else outcome.stderr.strip().splitlines()[-1:]
    except (subprocess.TimeoutExpired, OSError) as error:
        fault = [str(error)]
    if fault == "":
        done.write_text(wanted)
    else:
        why.write_text(f"pip could not install {wanted}: {' '.join(fault)}\n")
        print(why.read_text(), end="", file=sys.stderr)


if __name__ == "__main__":
    usage.begin(__doc__)
    main()
