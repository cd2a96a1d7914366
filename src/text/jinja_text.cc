#include "text/jinja_text.h"

#include <algorithm>

#include "text/utf8_scan.h"

namespace ballast {

void MarkedText::AppendRange(const MarkedText& other, size_t from, size_t count) {
  if (count == 0) return;
  const auto& flips = other.flips_;
  size_t next = std::upper_bound(flips.begin(), flips.end(), from) - flips.begin();
  SetSide((next & 1) != 0);
  const size_t base = text_.size();
  for (; next < flips.size() && flips[next] < from + count; ++next) {
    flips_.push_back(static_cast<uint32_t>(base + flips[next] - from));
  }
  text_.append(other.text_, from, count);
}

void MarkedText::Append(std::string_view text, bool data) {
  if (text.empty()) return;
  SetSide(data);
  text_.append(text);
}

MarkedText MarkedText::Sub(size_t from, size_t count) const {
  MarkedText out;
  out.AppendRange(*this, from, count);
  return out;
}

std::vector<MarkedText::Run> MarkedText::Runs() const {
  std::vector<Run> runs;
  const std::string_view all = text_;
  size_t at = 0;
  bool data = false;
  for (const uint32_t flip : flips_) {
    if (flip > at) runs.push_back({all.substr(at, flip - at), data});
    at = flip;
    data = !data;
  }
  if (at < all.size()) runs.push_back({all.substr(at), data});
  return runs;
}

size_t JinjaCharBytes(std::string_view text, size_t at) {
  return std::max<size_t>(1, Utf8CharBytes(text, at));
}

char32_t JinjaDecode(std::string_view text, size_t at, size_t* bytes) {
  const size_t n = Utf8CharBytes(text, at);
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  *bytes = std::max<size_t>(1, n);
  if (n <= 1) return byte(0);
  char32_t c = byte(0) & (0x7Fu >> n);
  for (size_t i = 1; i < n; ++i) c = (c << 6) | (byte(i) & 0x3F);
  return c;
}

void JinjaEncode(char32_t c, std::string* out) {
  const auto push = [&](char32_t b) { *out += static_cast<char>(b); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | (c >> 6));
    push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | (c >> 12));
    push(0x80 | ((c >> 6) & 0x3F));
    push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | (c >> 18));
    push(0x80 | ((c >> 12) & 0x3F));
    push(0x80 | ((c >> 6) & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

size_t JinjaCountChars(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += JinjaCharBytes(text, at)) ++count;
  return count;
}

bool JinjaIsSpace(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace ballast
