#include "text/utf8.h"

#include <cstdint>

namespace ballast {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Kind { kValid, kInvalid, kUnfinished };
struct Sequence {
  size_t length;  // bytes it spans, 1 to 4
  Kind kind;
};

// What the bytes open with: one well-formed character (Unicode 15, table 3-7), a maximal invalid subpart, or
// a prefix that the end of the bytes cuts short. REQUIRES: not empty.
Sequence Scan(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  if (lead < 0x80) return {1, Kind::kValid};
  if (lead < 0xC2 || lead > 0xF4) return {1, Kind::kInvalid};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte has ranges of its own: no overlong forms, no surrogates, nothing past U+10FFFF.
  uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, Kind::kUnfinished};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < low || byte > high) return {i, Kind::kInvalid};
    low = 0x80;
    high = 0xBF;
  }
  return {length, Kind::kValid};
}

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  std::string out;
  out.reserve(bytes.size());
  size_t copied = 0;  // bytes before this are in `out`
  size_t at = 0;
  while (at < bytes.size()) {
    const Sequence next = Scan(bytes.substr(at));
    if (next.kind == Kind::kUnfinished) break;
    if (next.kind == Kind::kInvalid) {
      out += bytes.substr(copied, at - copied);
      out += kReplacement;
      copied = at + next.length;
    }
    at += next.length;
  }
  out += bytes.substr(copied, at - copied);
  held_ = bytes.substr(at);
  return out;
}

std::string Utf8Stream::Finish() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return unfinished ? std::string(kReplacement) : std::string();
}

bool IsValidUtf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Sequence next = Scan(bytes.substr(at));
    if (next.kind != Kind::kValid) return false;
    at += next.length;
  }
  return true;
}

}  // namespace ballast
