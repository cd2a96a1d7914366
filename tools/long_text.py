#!/usr/bin/env python3
"""Makes one long text out of Debian's documentation, without a paragraph that comes twice.

    tools/long_text.py OUT.txt [--cache DIR] [--bytes N] [--packages NAME ...]

The packages are fetched with apt-get and unpacked into the cache folder; nothing is installed. English prose (a
book of essays, Debian's handbook) and technical text (kernel documentation, manual pages) take turns by their
shares of the whole, document by document, in an order that depends on their names alone: the same packages give the
same text. A short list of what went in is printed.
"""
import argparse
import gzip
import hashlib
import html.parser
import pathlib
import re
import subprocess
import sys

# Kept out: translations, and files that are tables of addresses rather than text.
PROSE = ["usr/share/doc/anarchism/markdown/*.md.gz", "usr/share/doc/debian-handbook/html/en-US/*.html",
         "usr/share/debian-reference/*.en.html"]
TECHNICAL = ["usr/share/doc/linux-doc-*/Documentation/**/*.rst.gz", "usr/share/doc/linux-doc-*/Documentation/**/*.txt.gz",
             "usr/share/man/man*/*.gz"]
SKIP = re.compile(r"/(translations|devicetree|ABI|features)/|/(changelog|copyright)")
PACKAGES = ["anarchism", "debian-handbook", "debian-reference-common", "debian-reference-en", "linux-doc-6.1",
            "manpages", "manpages-dev", "mandoc"]


def fetch(cache, packages):
    """The folder that the packages are unpacked in."""
    root = cache / "root"
    for name in packages:
        done = cache / f"{name}.unpacked"
        if done.exists():
            continue
        folder = cache / "debs" / name
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-q", "download", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for archive in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, root], check=True)
        done.touch()
    return root


class PlainText(html.parser.HTMLParser):
    """The words of a page, a blank line between its blocks."""
    BLOCKS = {"p", "div", "li", "h1", "h2", "h3", "h4", "h5", "pre", "tr", "td", "dt", "dd", "title"}
    HIDDEN = {"script", "style", "head", "nav"}

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in self.HIDDEN
        if tag in self.BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag):
        self.hidden -= tag in self.HIDDEN and self.hidden > 0
        if tag in self.BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def plain(path, root):
    """A document's text, or "" for one that is none."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if "/man/man" in str(path):
        if data.lstrip().startswith(b".so "):
            return ""
        tool = root / "usr/bin/mandoc"
        shown = subprocess.run([tool, "-T", "utf8", "-O", "width=100"], input=data, capture_output=True, check=False)
        data = re.sub(rb".\x08", b"", shown.stdout)
    text = data.decode("utf-8", "replace")
    if path.suffix == ".html":
        page = PlainText()
        page.feed(text)
        text = "".join(page.parts)
    return text.replace("\r\n", "\n")


class Once:
    """Drops paragraphs that were there before; short ones may come again."""

    def __init__(self):
        self.seen = set()

    def __call__(self, text):
        kept = []
        for paragraph in re.split(r"\n[ \t]*\n+", text):
            paragraph = paragraph.strip("\n").rstrip()
            letters = sum(c.isalpha() for c in paragraph)
            if 2 * letters < len(paragraph) or len(paragraph) > 20000:
                continue  # a drawing, a table of numbers, a dump
            key = hashlib.blake2b(" ".join(paragraph.split()).encode(), digest_size=12).digest()
            if len(paragraph) >= 40:
                if key in self.seen:
                    continue
                self.seen.add(key)
            kept.append(paragraph)
        return "\n\n".join(kept)


def documents(root, patterns):
    paths = {p for pattern in patterns for p in root.glob(pattern) if p.is_file() and not p.is_symlink()}
    paths = [p for p in paths if not SKIP.search("/" + str(p.relative_to(root)))]
    return sorted(paths, key=lambda p: hashlib.blake2b(str(p.relative_to(root)).encode()).digest())


def assemble(root, limit):
    """The text, and (name, bytes, documents) of both kinds."""
    once, kinds = Once(), []
    for name, patterns in (("prose", PROSE), ("technical", TECHNICAL)):
        texts = []
        for path in documents(root, patterns):
            text = once(plain(path, root))
            if len(text) >= 500:
                texts.append(text)
        kinds.append({"name": name, "texts": texts, "all": sum(map(len, texts)), "used": 0, "next": 0})
    out, size = [], 0
    while size < limit:
        left = [k for k in kinds if k["next"] < len(k["texts"])]
        if not left:
            break
        kind = min(left, key=lambda k: k["used"] / k["all"])
        text = kind["texts"][kind["next"]]
        kind["next"] += 1
        kind["used"] += len(text)
        out.append(text)
        size += len(text.encode())
    return "\n\n\n".join(out) + "\n", kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("build/long"))
    parser.add_argument("--bytes", type=int, default=1 << 40, help="stop after about so many")
    parser.add_argument("--packages", nargs="*", default=PACKAGES)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    text, kinds = assemble(fetch(arguments.cache.resolve(), arguments.packages), arguments.bytes)
    partial = arguments.out.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(arguments.out)
    for kind in kinds:
        print(f"{kind['name']}: {kind['next']} of {len(kind['texts'])} documents, {kind['used']:,} characters")
    if not text.strip():
        sys.exit("long_text: no text in these packages")


if __name__ == "__main__":
    main()
