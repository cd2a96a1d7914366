"""tools/long_text.py: one text out of many documents, and no paragraph twice."""
import gzip
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import long_text  # noqa: E402


def words(document, paragraph):
    return f"The quick brown fox jumps over the lazy dog, says document {document} in its paragraph {paragraph}. " * 4


def document(folder, number, paragraphs, suffix=".rst.gz", wrap="{}"):
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(wrap.format(p) for p in paragraphs)
    data = text.encode()
    (folder / f"d{number}{suffix}").write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)


def test_paragraphs_come_once_and_drawings_never():
    once = long_text.Once()
    body = words(1, 1).strip()
    assert once(f"{body}\n\n{body}\n\n+----+----+\n| 1  | 22 |\n+----+----+\n\nShort.\n\nShort.") == \
        f"{body}\n\nShort.\n\nShort."
    assert once("  " + body.replace(" ", "\n  ")) == ""  # the same words, wrapped otherwise


def test_pages_lose_their_marks():
    page = long_text.PlainText()
    page.feed("<html><head><title>T</title></head><body><script>x()</script><p>One <b>two</b>.</p><p>Three</p>")
    text = "".join(page.parts)
    assert [p.strip() for p in text.split("\n\n") if p.strip()] == ["One two.", "Three"]


def test_both_kinds_take_turns_and_the_order_depends_on_names_alone(tmp_path):
    for i in range(6):
        document(tmp_path / "usr/share/doc/linux-doc-6.1/Documentation/mm", i, [words(i, p) for p in range(4)])
        document(tmp_path / "usr/share/doc/debian-handbook/html/en-US", i, [words(100 + i, p) for p in range(4)],
                 ".html", "<p>{}</p>")
    document(tmp_path / "usr/share/doc/linux-doc-6.1/Documentation/translations/zh", 9, [words(9, 9)] * 4)
    text, kinds = long_text.assemble(tmp_path, 1 << 40)
    assert [k["next"] for k in kinds] == [6, 6]
    assert "document 9 " not in text
    assert text == long_text.assemble(tmp_path, 1 << 40)[0]
    paragraphs = [p for p in text.split("\n\n") if p.strip()]
    assert len(paragraphs) == len(set(paragraphs)) == 48
    prose = ["document 10" in p for p in paragraphs]
    assert abs(sum(prose[:24]) - 12) <= 4  # neither kind comes as one lump
    short, _ = long_text.assemble(tmp_path, 3000)
    assert 3000 <= len(short) < 6000
