// GPT-2's table of bytes as printable characters: bytes that print stand for themselves (as Latin-1); the
// others, in order, are U+0100 and up. Thread safety: pure functions.
#ifndef BALLAST_TEXT_BYTE_TABLE_H_
#define BALLAST_TEXT_BYTE_TABLE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/utf8_scan.h"

namespace ballast {

inline constexpr size_t kByteChars = 256 + 68;
struct ByteTable {
  std::array<uint16_t, 256> to_char{};
  std::array<int16_t, kByteChars> to_byte{};
};
constexpr ByteTable MakeByteTable() {
  ByteTable table;
  table.to_byte.fill(-1);
  uint16_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    table.to_char[b] = prints ? static_cast<uint16_t>(b) : next++;
    table.to_byte[table.to_char[b]] = static_cast<int16_t>(b);
  }
  return table;
}
inline constexpr ByteTable kByteTable = MakeByteTable();

inline void AppendByteChar(uint8_t byte, std::string* out) {
  const uint16_t c = kByteTable.to_char[byte];
  if (c < 0x80) {
    *out += static_cast<char>(c);
  } else {
    *out += static_cast<char>(0xC0 | (c >> 6));
    *out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// The bytes that `text` stands for; false when one of its characters stands for no byte.
inline bool ByteCharsToBytes(std::string_view text, std::string* out) {
  for (size_t at = 0; at < text.size();) {
    const size_t n = Utf8CharBytes(text, at);
    if (n == 0 || n > 2) return false;
    unsigned c = static_cast<unsigned char>(text[at]);
    if (n == 2) c = ((c & 0x1F) << 6) | (static_cast<unsigned char>(text[at + 1]) & 0x3F);
    if (c >= kByteChars || kByteTable.to_byte[c] < 0) return false;
    *out += static_cast<char>(kByteTable.to_byte[c]);
    at += n;
  }
  return true;
}

}  // namespace ballast

#endif  // BALLAST_TEXT_BYTE_TABLE_H_
