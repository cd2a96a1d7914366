#!/usr/bin/env python3
"""Writes the gallery of bad GGUF files that tests/formats/gguf_gallery_test.cc reads, and the fuzz seeds.

    tools/make_bad_gguf.py                  rewrites tests/formats/bad_gguf/ and fuzz/corpus/gguf/
    tools/make_bad_gguf.py BAD_DIR GOOD_DIR

Each bad file has a line in manifest.tsv: its name, and a piece of the message that must refuse it.
The output is committed, so that tests need no Python; a test checks that this script still makes it.
Only the standard library is used, and the format is written out here a third time (after the reader and the
C++ builder) so that a shared mistake cannot hide.
"""
import struct
import sys
from pathlib import Path

import usage

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q",
        I64: "<q", F64: "<d"}
T_F32, T_F16, T_Q4_0, T_Q4_1, T_Q8_0, T_BF16 = 0, 1, 2, 3, 8, 30


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return u64(len(raw)) + raw


def value(kind, v):
    return text(v) if kind == STRING else struct.pack(PACK[kind], v)


def meta(key, kind, v):
    return text(key) + u32(kind) + value(kind, v)


def array(key, kind, values):
    return text(key) + u32(ARRAY) + u32(kind) + u64(len(values)) + b"".join(value(kind, v) for v in values)


def raw_array(key, kind, count, body=b""):
    return text(key) + u32(ARRAY) + u32(kind) + u64(count) + body


def tensor(name, dims, kind=T_F32, offset=0):
    return text(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)


def gguf(metas=(), tensors=(), data=b"", version=3, magic=b"GGUF", n_meta=None, n_tensors=None, align=32):
    """A whole file; n_meta and n_tensors are what the header claims."""
    out = magic + u32(version)
    out += u64(len(tensors) if n_tensors is None else n_tensors)
    out += u64(len(metas) if n_meta is None else n_meta)
    out += b"".join(metas) + b"".join(tensors)
    if data:
        out += b"\0" * (-len(out) % align) + data
    return out


ARCH = meta("general.architecture", STRING, "llama")
ROW = b"\0\0\x80\x3f" * 8  # eight ones
ONE = [tensor("w", [8])]
TOKENS = array("tokenizer.ggml.tokens", STRING, ["<s>", "a", "b"])


def not_gguf_at_all():
    yield "empty", b"", "found an empty file"
    yield "one_byte", b"G", "found plain text"
    yield "html", b"<!DOCTYPE html>\n<html><head><title>404</title>", "an HTML page"
    yield "html_after_blank", b"\n  <HTML lang=en>", "an HTML page"
    yield "xml", b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document"
    yield "json", b'{"error": "Repository not found"}', "found JSON text"
    yield "git_lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "a git-lfs pointer"
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    yield "safetensors", u64(len(header)) + header + b"\0\0\0\0", "a safetensors file"
    yield "zip", b"PK\x03\x04\x14\0\0\0\0\0archive/data.pkl", "a zip archive"
    yield "gzip", b"\x1f\x8b\x08\0\0\0\0\0", "a gzip archive"
    yield "zstd", b"\x28\xb5\x2f\xfd\0\0\0\0", "a zstd archive"
    yield "plain_text", b"Not found\n", "found plain text"
    yield "zeros", b"\0" * 64, "only zero bytes"
    yield "text_utf8", "d\u00e9sol\u00e9: mod\u00e8le introuvable\n".encode(), "found plain text"
    yield "noise", bytes(range(128, 192)), "starts with 80 81 82"
    yield "ggml", b"lmgg" + u32(32000), "a GGML file"
    yield "ggjt", b"tjgg" + u32(3), "a GGJT file"
    yield "magic_reversed", b"FUGG" + u32(3), "bytes reversed"


def headers():
    yield "version_0", gguf([ARCH], ONE, ROW, version=0), "version: expected 2 or 3, little-endian, found version 0"
    yield "version_1", gguf([ARCH], ONE, ROW, version=1), "found version 1"
    yield "version_4", gguf([ARCH], ONE, ROW, version=4), "found version 4"
    big = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "big_endian", big, "found a big-endian file of version 3"
    yield "magic_only", b"GGUF", "version: expected 4 bytes, found the end of the file after 0"
    yield "cut_counts", gguf([ARCH], ONE, ROW)[:15], "tensor count: expected 8 bytes"
    yield "metadata_count_huge", gguf([ARCH], ONE, ROW, n_meta=2**64 - 1), "metadata count: expected at most"
    yield "metadata_count_fits_u32", gguf([ARCH], ONE, ROW, n_meta=2**32 + 1), "metadata count: expected at most"
    yield "tensor_count_huge", gguf([ARCH], ONE, ROW, n_tensors=2**63), "tensor count: expected at most"
    yield "metadata_count_one_more", gguf([ARCH], [], n_meta=2), "metadata"
    yield "tensor_count_one_more", gguf([ARCH] * 1, ONE, ROW, n_tensors=2), "tensor 1 (byte"


def metadata():
    def bad(entry):
        return gguf([ARCH, entry], ONE, ROW)

    yield "key_length_giant", bad(u64(2**64 - 1) + b"k"), "name: expected at most 65535 bytes of text"
    yield "key_length_past_end", bad(u64(60000) + b"k"), "name: expected 60000 bytes of text, found the end of"
    yield "key_empty", bad(meta("", U32, 1)), "name: expected at least one byte, found none"
    yield "key_twice", gguf([ARCH, ARCH], ONE, ROW), "'general.architecture' (byte 97): key: expected each key once"
    yield "key_control_bytes", bad(text(b"a\n\x1b[31m\xff") + u32(99)), "metadata 'a\\x0a\\x1b[31m\\xff' (byte"
    yield "value_type_13", bad(text("k") + u32(13) + u64(0)), "value type: expected 0 to 12, found 13"
    yield "value_type_negative", bad(text("k") + u32(2**32 - 1)), "value type: expected 0 to 12, found 4294967295"
    yield "bool_2", bad(text("k") + u32(BOOL) + b"\x02"), "bool: expected 0 or 1, found 2"
    yield "bool_array_255", bad(raw_array("k", BOOL, 2, b"\x01\xff")), "bool 1: expected 0 or 1, found 255"
    yield "string_giant", bad(text("k") + u32(STRING) + u64(2**63)), "string: expected 9223372036854775808 bytes"
    yield "string_wraps", bad(text("k") + u32(STRING) + u64(2**64 - 8)), "string: expected 18446744073709551608"
    yield "array_count_giant", bad(raw_array("k", U32, 2**62)), "array count: expected at most"
    yield "array_count_wraps", bad(raw_array("k", U64, 2**61)), "elements of u64 in the 66 bytes left"
    yield "array_strings_giant", bad(raw_array("k", STRING, 2**60)), "array count: expected at most"
    yield "array_string_long", bad(raw_array("k", STRING, 2, text("a") + u64(2**64 - 1))), "string 1: expected"
    yield "array_type_13", bad(raw_array("k", 13, 1, b"\0")), "array element type: expected 0 to 12, found 13"
    yield "array_nested", bad(raw_array("k", ARRAY, 1, u32(U8) + u64(1) + b"\0")), "found arrays"
    deep = (u32(ARRAY) + u64(1)) * 64
    yield "array_nested_deep", bad(text("k") + u32(ARRAY) + deep), "numbers, bools or strings, found arrays"
    yield "alignment_0", bad(meta("general.alignment", U32, 0)), "a power of two from 8 to 65536, found 0"
    yield "alignment_1", bad(meta("general.alignment", U32, 1)), "a power of two from 8 to 65536, found 1"
    yield "alignment_48", bad(meta("general.alignment", U32, 48)), "a power of two from 8 to 65536, found 48"
    yield "alignment_2_31", bad(meta("general.alignment", U32, 2**31)), "to 65536, found 2147483648"
    yield "alignment_negative", bad(meta("general.alignment", I32, -32)), "to 65536, found -32"
    yield "alignment_u64_max", bad(meta("general.alignment", U64, 2**64 - 1)), "expected an integer below 2^63"
    yield "alignment_text", bad(meta("general.alignment", STRING, "32")), "an integer, found the text '32'"
    yield "alignment_array", bad(array("general.alignment", U32, [32])), "an integer, found an array of 1 integers"
    split = [ARCH, meta("split.no", U16, 1), meta("split.count", U16, 3)]
    yield "split", gguf(split, ONE, ROW), "a whole model in one file, found part 2 of 3"
    yield "split_text", bad(meta("split.count", STRING, "3")), "'split.count': expected an integer, found the text"


def tensors():
    def bad(*entries, data=ROW):
        return gguf([ARCH], list(entries), data)

    yield "name_empty", bad(tensor("", [8])), "name: expected at least one byte"
    yield "name_long", bad(tensor("w" * 257, [8])), "name: expected at most 256 bytes of text, found a length of 257"
    yield "name_giant", bad(u64(2**63 + 5) + b"w"), "name: expected at most 256 bytes"
    yield "name_twice", bad(tensor("w", [8]), tensor("w", [8], offset=32), data=ROW * 2), "each tensor once"
    yield "dims_0", bad(tensor("w", [])), "dimension count: expected 1 to 4, found 0"
    yield "dims_5", bad(tensor("w", [8, 1, 1, 1, 1])), "dimension count: expected 1 to 4, found 5"
    yield "dims_giant", bad(text("w") + u32(2**32 - 1)), "expected 1 to 4, found 4294967295"
    yield "dim_zero", bad(tensor("w", [8, 0])), "dimension 1: expected 1 to 2^63 - 1, found 0"
    yield "dim_zero_first", bad(tensor("w", [0, 8])), "dimension 0: expected 1 to 2^63 - 1, found 0"
    yield "dim_2_63", bad(tensor("w", [2**63])), "dimension 0: expected 1 to 2^63 - 1"
    yield "product_wraps", bad(tensor("w", [2**32, 2**32])), "shape: expected a size below 2^63, found [4294967296, 4"
    yield "product_wraps_to_small", bad(tensor("w", [8, 2**62 + 1, 4])), "shape: expected a size below 2^63"
    yield "bytes_wrap", bad(tensor("w", [2**62])), "shape: expected a size below 2^63"
    yield "elements_wrap", bad(tensor("w", [2**31, 2**32], T_Q4_0)), "shape: expected a size below 2^63"
    yield "bytes_wrap_later", bad(tensor("w", [2**30, 2**32])), "shape: expected a size below 2^63"
    yield "product_2_42", bad(tensor("w", [2**42 + 1])), "data: expected 17592186044420 bytes at offset 0"
    yield "row_not_blocks", bad(tensor("w", [33], T_Q8_0)), "row length: expected a multiple of 32 for Q8_0, found 33"
    yield "row_half_block", bad(tensor("w", [16, 2], T_Q4_0)), "a multiple of 32 for Q4_0, found 16"
    yield "row_k_block", bad(tensor("w", [32, 8], 12)), "a multiple of 256 for Q4_K, found 32"
    yield "type_iq4_xs", bad(tensor("w", [256], 23)), "found IQ4_XS (type 23)"
    yield "type_iq2_xxs", bad(tensor("w", [256], 16)), "found IQ2_XXS (type 16)"
    yield "type_q8_1", bad(tensor("w", [32], 9)), "found Q8_1 (type 9)"
    yield "type_q8_k", bad(tensor("w", [256], 15)), "found Q8_K (type 15)"
    yield "type_i8", bad(tensor("w", [8], 24)), "found I8 (type 24)"
    yield "type_f64", bad(tensor("w", [4], 28)), "found F64 (type 28)"
    yield "type_mxfp4", bad(tensor("w", [32], 39)), "found MXFP4 (type 39)"
    yield "type_withdrawn", bad(tensor("w", [32], 4)), "found Q4_2 (withdrawn) (type 4)"
    yield "type_repacked", bad(tensor("w", [32], 31)), "found Q4_0_4_4 (type 31)"
    yield "type_unknown", bad(tensor("w", [8], 99)), "found an unknown type (type 99)"
    yield "type_negative", bad(tensor("w", [8], 2**32 - 1)), "found an unknown type (type 4294967295)"
    yield "offset_unaligned", bad(tensor("w", [4], offset=8)), "offset: expected a multiple of 32, found 8"
    yield "offset_past_end", bad(tensor("w", [8], offset=64)), "32 bytes at offset 64 of the data, found a file with 32"
    yield "offset_wraps", bad(tensor("w", [8], offset=2**64 - 32)), "offset 18446744073709551584 of the data"
    yield "data_one_byte_short", bad(tensor("w", [8]), data=ROW[:-1]), "found a file with 31 bytes of data"
    yield "data_missing", gguf([ARCH], ONE), "found a file with 0 bytes of data"
    two = [tensor("w", [8]), tensor("v", [8], offset=2**63 + 32)]
    yield "sum_wraps", bad(*two, data=ROW * 2), "tensor 'v': data: expected 32 bytes at offset"
    yield "overlap_same", bad(tensor("w", [8]), tensor("v", [8])), "an overlap with tensor"
    yield "overlap_inside", bad(tensor("w", [16]), tensor("v", [8], offset=32), data=ROW * 2), "overlap with tensor 'w'"


def good():
    yield "tiny", gguf([ARCH], ONE, ROW)
    yield "no_tensors", gguf([ARCH, TOKENS])
    yield "nothing", gguf()
    yield "version_2", gguf([ARCH], ONE, ROW, version=2)
    kinds = [meta(f"k.{k}", k, 1) for k in PACK] + [meta("k.text", STRING, "\u00e9\0")]
    kinds += [array(f"a.{k}", k, [0, 1, 1]) for k in PACK] + [array("a.empty", STRING, []), TOKENS]
    yield "every_kind", gguf([ARCH] + kinds, ONE, ROW)
    align = [ARCH, meta("general.alignment", U32, 8)]
    yield "align_8", gguf(align, [tensor("w", [2]), tensor("v", [1], offset=8)], ROW[:12], align=8)
    mixed = [tensor("f32", [2, 2]), tensor("f16", [4], T_F16, 32), tensor("q8", [32, 2], T_Q8_0, 64),
             tensor("q4", [64], T_Q4_1, 160), tensor("bf", [1, 1, 1, 3], T_BF16, 224)]
    yield "mixed", gguf([ARCH], mixed, b"\x01" * 230)
    yield "out_of_order", gguf([ARCH], [tensor("w", [8], offset=32), tensor("v", [8])], ROW * 2)
    yield "data_after", gguf([ARCH], ONE, ROW + b"tail")


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)  # deletes nothing: the test notices a file left behind
    for name, data in files.items():
        (folder / name).write_bytes(data)


def main(args):
    root = Path(__file__).resolve().parent.parent
    bad_dir = Path(args[0]) if len(args) > 0 else root / "tests/formats/bad_gguf"
    good_dir = Path(args[1]) if len(args) > 1 else root / "fuzz/corpus/gguf"
    bad, lines = {}, []
    for part in (not_gguf_at_all, headers, metadata, tensors):
        for name, data, fragment in part():
            assert name + ".gguf" not in bad, name
            bad[name + ".gguf"] = data
            lines.append(f"{name}.gguf\t{fragment}\n")
    bad["manifest.tsv"] = "".join(lines).encode()
    write(bad_dir, bad)
    write(good_dir, {f"good_{name}.gguf": data for name, data in good()})
    print(f"{len(lines)} bad files, {len(list(good()))} good ones")


if __name__ == "__main__":
    usage.begin(__doc__)
    main(sys.argv[1:])
