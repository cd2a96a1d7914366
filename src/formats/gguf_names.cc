// What stored numbers and foreign files are called in messages.
#include <algorithm>
#include <cstring>

#include "formats/gguf.h"

namespace ballast {
namespace {

// Indexed by the stored number. Types 4, 5, 31 to 33 and 36 to 38 were withdrawn by the format, but old files
// still hold them.
constexpr std::string_view kTensorTypeNames[] = {
    "F32",
    "F16",
    "Q4_0",
    "Q4_1",
    "Q4_2 (withdrawn)",
    "Q4_3 (withdrawn)",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q8_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q8_K",
    "IQ2_XXS",
    "IQ2_XS",
    "IQ3_XXS",
    "IQ1_S",
    "IQ4_NL",
    "IQ3_S",
    "IQ2_S",
    "IQ4_XS",
    "I8",
    "I16",
    "I32",
    "I64",
    "F64",
    "IQ1_M",
    "BF16",
    "Q4_0_4_4",
    "Q4_0_4_8",
    "Q4_0_8_8",
    "TQ1_0",
    "TQ2_0",
    "IQ4_NL_4_4",
    "IQ4_NL_4_8",
    "IQ4_NL_8_8",
    "MXFP4",
    "NVFP4",
    "Q1_0",
    "Q2_0",
};

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool StartsWithNoCase(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.begin(), [](char want, char c) {
    return want == (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  });
}

struct Signature {
  std::string_view bytes;
  std::string_view name;
};

constexpr Signature kSignatures[] = {
    {"version https://git-lfs", "a git-lfs pointer (the model itself was not fetched: git lfs pull)"},
    {"PK\x03\x04", "a zip archive (a PyTorch checkpoint?)"},
    {"\x1f\x8b", "a gzip archive"},
    {"\x28\xb5\x2f\xfd", "a zstd archive"},
    {"\xfd"
     "7zXZ",
     "an xz archive"},
    {"7z\xbc\xaf", "a 7z archive"},
    {"\x89HDF", "an HDF5 file"},
    {"%PDF", "a PDF"},
    {"\x7f"
     "ELF",
     "a program (ELF)"},
    {"lmgg", "a GGML file, the unversioned format before GGUF"},
    {"fmgg", "a GGMF file, a format before GGUF"},
    {"tjgg", "a GGJT file, a format before GGUF"},
    {"algg", "a GGLA adapter, a format before GGUF"},
    {"FUGG", "GGUF with its bytes reversed (big-endian)"},
};

// A safetensors file opens with the u64 length of its JSON header.
bool LooksLikeSafetensors(std::span<const uint8_t> bytes) {
  if (bytes.size() < 10 || bytes[8] != '{') return false;
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length >= 2 && length < (uint64_t{1} << 40) &&
         (bytes[9] == '"' || bytes[9] == '}' || bytes[9] == ' ');
}

std::string HexStart(std::span<const uint8_t> bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "a file of another kind (it starts with";
  for (uint8_t b : bytes.first(std::min<size_t>(bytes.size(), 8))) {
    out += ' ';
    out += kHex[b >> 4];
    out += kHex[b & 15];
  }
  return out + ")";
}

}  // namespace

GgufTensorType LookUpGgufTensorType(uint32_t number) {
  if (number >= std::size(kTensorTypeNames)) return {};
  GgufTensorType out{kTensorTypeNames[number], std::nullopt};
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (Info(dtype).name == out.name) out.dtype = dtype;
  }
  return out;
}

std::string DescribeForeignFile(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return "an empty file";
  const std::span<const uint8_t> head = bytes.first(std::min<size_t>(bytes.size(), 512));
  std::string_view text = AsText(head);
  for (const Signature& s : kSignatures) {
    if (text.starts_with(s.bytes)) return std::string(s.name);
  }
  if (LooksLikeSafetensors(head)) return "a safetensors file";
  if (std::all_of(head.begin(), head.end(), [](uint8_t b) { return b == 0; })) {
    return "only zero bytes (a download that was never finished?)";
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const std::string_view body = first == std::string_view::npos ? "" : text.substr(first);
  if (StartsWithNoCase(body, "<!doctype html") || StartsWithNoCase(body, "<html")) {
    return "an HTML page (a download that went to a web page?)";
  }
  if (StartsWithNoCase(body, "<?xml")) return "an XML document (an error from a download?)";
  if (body.starts_with("{") || body.starts_with("[")) return "JSON text";
  // No control bytes, and mostly ASCII: bytes of compressed data seldom are.
  const auto control = [](uint8_t b) {
    return (b < 0x20 && b != '\t' && b != '\n' && b != '\r') || b == 0x7f;
  };
  const auto high = std::count_if(head.begin(), head.end(), [](uint8_t b) { return b >= 0x80; });
  if (std::none_of(head.begin(), head.end(), control) && high * 2 < static_cast<int64_t>(head.size())) {
    return "plain text";
  }
  return HexStart(head);
}

}  // namespace ballast
