// Utf8Stream on any bytes cut anywhere: the output is valid, the held part short, and the cuts do not matter.
// The first byte of the input seeds the cuts.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  uint32_t cut = data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

  ballast::Utf8Stream whole;
  std::string expected = whole.Push(bytes);
  expected += whole.Finish();

  ballast::Utf8Stream stream;
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    cut = cut * 1664525u + 1013904223u;
    const std::string_view piece = bytes.substr(at, (cut >> 24) % 6);
    const std::string shown = stream.Push(piece);
    BALLAST_CHECK(stream.held() <= 3);
    BALLAST_CHECK(ballast::IsValidUtf8(shown));
    out += shown;
    at += piece.size();
  }
  out += stream.Finish();
  BALLAST_CHECK(out == expected);
  BALLAST_CHECK(ballast::IsValidUtf8(out));
  BALLAST_CHECK(!ballast::IsValidUtf8(bytes) || out == bytes);
  return 0;
}
