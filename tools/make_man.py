#!/usr/bin/env python3
"""Prints ballast(1), made from what the program says of itself under --help.

    tools/make_man.py build/release/ballast > ballast.1

Nothing is written by hand but the words that --help has no room for, so that the page cannot fall behind the
program. SOURCE_DATE_EPOCH sets its date. read_program() is also what tools/make_completions.py starts from.
"""
import dataclasses
import os
import re
import subprocess
import sys
import time

import usage


@dataclasses.dataclass
class Flag:
    names: list  # ["-m", "--model"]; a positional has one, without dashes
    value: str  # "PATH"; empty for a switch
    help: str

    @property
    def long(self):
        return next((name for name in self.names if name.startswith("--")), "")


@dataclasses.dataclass
class Command:
    name: str
    about: str
    usage: str = ""
    groups: dict = dataclasses.field(default_factory=dict)  # heading -> flags, in the order of --help
    footer: list = dataclasses.field(default_factory=list)  # lines after the flags

    @property
    def flags(self):
        return [flag for flags in self.groups.values() for flag in flags if flag.names[0].startswith("-")]


def ask(program, *arguments):
    # The environment's BALLAST_* must not change what is printed.
    env = {name: value for name, value in os.environ.items() if not name.startswith("BALLAST_")}
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, env=env).stdout


def parse_help(name, text):
    """One screen of --help: a title, the usage, groups of entries, and closing lines."""
    lines = text.rstrip("\n").split("\n")
    command = Command(name, lines[0])
    group = None
    for line in lines[1:]:
        if line.startswith("Usage: "):
            command.usage = line[len("Usage: "):]
        elif not command.footer and re.fullmatch(r"\S.*:", line):
            group = command.groups.setdefault(line[:-1], [])
        elif group is not None and re.match(r"  \S", line):
            entry = re.fullmatch(r"  (\S+)(?: (\S+))?(?:  +(.*))?", line)
            if entry is None:
                raise SystemExit(f"make_man: no entry of --help: {line!r}")
            group.append(Flag(entry[1].split(","), entry[2] or "", entry[3] or ""))
        elif group and re.match(r" {20,}\S", line):  # a long name pushed its text to the next line
            group[-1].help = (group[-1].help + " " + line.strip()).strip()
        elif line:
            group = None  # closing words; they may be indented like entries
            command.footer.append(line)
        elif command.footer:
            command.footer.append(line)
        else:
            group = None
    return command


def read_program(program):
    """The program as a Command, and those it has."""
    top = parse_help("ballast", ask(program, "--help"))
    commands = []
    for entry in top.groups.pop("Subcommands"):
        command = parse_help(entry.names[0], ask(program, entry.names[0], "--help"))
        # What every screen ends with is said once.
        command.footer = [line for line in command.footer if line not in top.footer or line == ""]
        while command.footer and command.footer[-1] == "":
            command.footer.pop()
        commands.append(command)
    return top, commands


def roff(text):
    """Text of the user's as roff shows it: no escapes, real hyphens, no line taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("`", "\\(ga")
    text = text.replace("'", "\\(aq").replace("^", "\\(ha")
    return "\\&" + text if text.startswith(".") else text


def entry(flag):
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in flag.names)
    value = f" \\fI{roff(flag.value)}\\fR" if flag.value else ""
    return [".TP", names + value, roff(flag.help) or "\\&"]


def prose(lines):
    """Closing words; indented lines are shown as they stand."""
    out, example = [], False
    for line in lines:
        if line.startswith("  ") != example and line:
            out += [".fi", ".RE"] if example else [".PP", ".RS 4", ".nf"]
            example = not example
        if line:
            out.append(roff(line.strip()))
        elif not example:
            out.append(".PP")
    return ([".PP"] if out else []) + out + ([".fi", ".RE"] if example else [])


def manual(program):
    top, commands = read_program(program)
    version = ask(program, "--version").split()[-1]
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    out = [f'.TH BALLAST 1 "{date}" "Ballast {version}" "User Commands"', ".SH NAME",
           "ballast \\- " + roff(top.about[0].lower() + top.about[1:].rstrip(".")), ".SH SYNOPSIS"]
    for command in commands:
        out += [f".B ballast {command.name}", roff(command.usage.split(" ", 2)[2]), ".br"]
    out += [".SH DESCRIPTION",
            "Streams text without end through a key\\-value cache of fixed size: the first tokens stay pinned, a",
            "window slides over the rest. It gives stability, not recall: what has left the window is not seen",
            "again."]
    # A flag that means the same in every command is described once; the rest under its command.
    def shared(flag):
        return all(flag in command.flags for command in commands)

    out += [".SH OPTIONS OF EVERY COMMAND"]
    for flag in filter(shared, commands[0].flags):
        out += entry(flag)
    out += [".SH COMMANDS"]
    for command in commands:
        out += [f".SS ballast {command.name}", roff(command.about) + "."]
        for title, flags in command.groups.items():
            own = [flag for flag in flags if not shared(flag)]
            if own and title not in ("Options", "Positionals"):
                out += [".PP", f"\\fI{roff(title)}\\fR"]
            for flag in own:
                out += entry(flag)
        out += prose(command.footer)
    out += [".SH ENVIRONMENT"] + prose([line for line in top.footer if "COMMAND --help" not in line])
    out += [".SH EXIT STATUS"]
    for code, meaning in (("0", "done"), ("1", "a fault of the program"), ("2", "usage"), ("3", "model refused"),
                          ("4", "input refused"), ("5", "a gate of eval failed"), ("130", "interrupted")):
        out += [".TP", f".B {code}", meaning]
    return "\n".join(line for line in out if line) + "\n"


if __name__ == "__main__":
    usage.begin(__doc__)
    if len(sys.argv) != 2:
        sys.exit("usage: make_man.py PROGRAM")
    sys.stdout.write(manual(sys.argv[1]))
