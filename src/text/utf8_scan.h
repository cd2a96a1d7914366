// Where UTF-8 characters lie in any bytes.
#ifndef BALLAST_TEXT_UTF8_SCAN_H_
#define BALLAST_TEXT_UTF8_SCAN_H_

#include <cstddef>
#include <string_view>

namespace ballast {

// Bytes of the well-formed character at `at` (Unicode 15, table 3-7: no surrogates, nothing overlong), or 0
// when there is none. REQUIRES: at < text.size().
inline size_t Utf8CharBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  unsigned low = 0x80, high = 0xBF;  // of the second byte
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  if (byte(1) < low || byte(1) > high || !continues(2)) return 0;
  if (lead < 0xF0) return 3;
  return continues(3) ? 4 : 0;
}

}  // namespace ballast

#endif  // BALLAST_TEXT_UTF8_SCAN_H_
