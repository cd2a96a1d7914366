#!/usr/bin/env python3
"""Writes shell completions, made from what the program says of itself under --help.

    tools/make_completions.py build/release/ballast build/packaging   # ballast.bash, _ballast, ballast.fish

Commands, flags and their texts come from --help. So do the words a flag may take, wherever its text lists them;
CHOICES only says which flags those are, and a word that --help no longer has stops the run.
"""
import pathlib
import re
import sys

import usage
from make_man import read_program

CHOICES = {
    "--chat-format": "chatml llama2 llama3 mistral gemma",
    "--compute": "fast f32",
    "--evict": "token turn",
    "--kv": "q8 f16 f32",
    "--log-format": "text json",
    "--on-collapse": "warn stop rescue",
    "--policy": "sinks window dense recompute",
    "--reference": "dense sinks recompute window",
    "--weights": "stored q8 q4",
}
NAMES_A_FILE = re.compile(r"PATH|FILE")


def kind(flag):
    """What to offer after `flag`: "" (a switch), "file", "dir", "any" or the words themselves."""
    words = CHOICES.get(flag.long, "")
    for word in words.split():
        if not re.search(rf"\b{word}\b", flag.help):
            sys.exit(f"make_completions: --help of {flag.long} no longer names {word}")
    if words or not flag.value:
        return words
    if flag.value == "DIR":
        return "dir"
    return "file" if NAMES_A_FILE.search(flag.value) or "--file" in flag.names else "any"


def bash(top, commands):
    out = ["# bash completion of ballast, made by tools/make_completions.py", "_ballast() {",
           '  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flags="" words',
           "  COMPREPLY=()",
           "  if [ \"$COMP_CWORD\" -eq 1 ]; then",
           f"    words=\"{' '.join(c.name for c in commands)} {' '.join(n for f in top.flags for n in f.names)}\"",
           '    COMPREPLY=($(compgen -W "$words" -- "$current"))', "    return", "  fi",
           '  case "${COMP_WORDS[1]} $before" in']
    kinds = {}
    for command in commands:
        for flag in command.flags:
            kinds.setdefault(kind(flag), []).extend(f"'{command.name} {name}'" for name in flag.names)
    for what, patterns in kinds.items():
        if what == "":
            continue
        answer = {"file": 'COMPREPLY=($(compgen -f -- "$current"))', "any": "",
                  "dir": 'COMPREPLY=($(compgen -d -- "$current"))'}.get(
                      what, f'COMPREPLY=($(compgen -W "{what}" -- "$current"))')
        if what in ("file", "dir"):
            answer = "compopt -o filenames 2>/dev/null; local IFS=$'\\n'; " + answer
        out += [f"    {'|'.join(patterns)})", f"      {answer + '; ' if answer else ''}return ;;"]
    out += ["  esac", '  case "${COMP_WORDS[1]}" in']
    for command in commands:
        out += [f"    {command.name}) flags=\"{' '.join(n for f in command.flags for n in f.names)}\" ;;"]
    out += ["  esac", '  case "$current" in',
            '    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;',
            "    *) compopt -o filenames 2>/dev/null; local IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$current\")) ;;",
            "  esac", "}", "complete -F _ballast ballast"]
    return out


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_spec(flag):
    text = re.sub(r"([\[\]:\\])", r"\\\1", flag.help)
    what = kind(flag)
    action = {"": "", "file": ":file:_files", "dir": ":folder:_files -/", "any": f":{flag.value.lower()}: "}.get(
        what, f":word:({what})")
    names = f"{{{','.join(flag.names)}}}" if len(flag.names) > 1 else flag.names[0]
    return f"{names}{quoted('[' + text + ']' + action)}"


def zsh(top, commands):
    out = ["#compdef ballast", "# zsh completion of ballast, made by tools/make_completions.py", "_ballast() {",
           "  local -a commands=("]
    out += [f"    {quoted(c.name + ':' + c.about)}" for c in commands]
    out += ["  )", "  if (( CURRENT == 2 )); then", "    _describe command commands",
            "    _arguments " + " ".join(map(zsh_spec, top.flags)), "    return", "  fi",
            "  local command=$words[2]", "  shift words", "  (( CURRENT-- ))", "  case $command in"]
    for command in commands:
        out += [f"    {command.name})", "      _arguments \\"]
        out += [f"        '*'{zsh_spec(f)} \\" for f in command.flags]  # a flag may come again
        out += ["        '*:file:_files' ;;"]
    return out + ["  esac", "}", '_ballast "$@"']


def fish(top, commands):
    def text(words):
        return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def line(condition, flag):
        names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in flag.names)
        what = kind(flag)
        value = {"": "", "file": " -r -F", "dir": " -x -a '(__fish_complete_directories)'", "any": " -x"}.get(
            what, f" -x -a {text(what)}")
        return f"complete -c ballast -n {condition}{names}{value} -d {text(flag.help)}"

    out = ["# fish completion of ballast, made by tools/make_completions.py",
           "complete -c ballast -n __fish_use_subcommand -f"]
    out += [f"complete -c ballast -n __fish_use_subcommand -a {c.name} -d {text(c.about)}" for c in commands]
    out += [line("__fish_use_subcommand", flag) for flag in top.flags]
    for command in commands:
        out += [line(f"'__fish_seen_subcommand_from {command.name}'", flag) for flag in command.flags]
    return out


if __name__ == "__main__":
    usage.begin(__doc__)
    if len(sys.argv) != 3:
        sys.exit("usage: make_completions.py PROGRAM FOLDER")
    folder = pathlib.Path(sys.argv[2])
    program = read_program(sys.argv[1])
    for name, make in (("ballast.bash", bash), ("_ballast", zsh), ("ballast.fish", fish)):
        (folder / name).write_text("\n".join(make(*program)) + "\n", encoding="utf-8")
