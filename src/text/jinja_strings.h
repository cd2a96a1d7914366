// Python's string methods on marked text.
//
// Thread safety: pure functions. Invariant: each byte of a result keeps the mark of the byte it came from.
#ifndef BALLAST_TEXT_JINJA_STRINGS_H_
#define BALLAST_TEXT_JINJA_STRINGS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja_text.h"

namespace ballast {

// Characters of `chars` (white space when there is none) off the ends.
MarkedText JinjaStrip(const MarkedText& text, std::optional<std::string_view> chars, bool left, bool right);
// At `separator` (white space when there is none; it must not be empty), at most `limit` times (-1: always).
std::vector<MarkedText> JinjaSplit(const MarkedText& text, std::optional<std::string_view> separator,
                                   int64_t limit, bool from_right);
std::vector<MarkedText> JinjaSplitLines(const MarkedText& text, bool keep_ends);
// As string_view::find, in linear time.
size_t JinjaFind(std::string_view text, std::string_view wanted, size_t from = 0);
// How often `old` stands in text, not overlapping, at most `limit` (-1: all). The empty string stands before
// each character and at the end.
size_t JinjaCount(std::string_view text, std::string_view old, int64_t limit);
MarkedText JinjaReplace(const MarkedText& text, std::string_view old, const MarkedText& with, int64_t limit);

bool JinjaIsLetter(char32_t c);  // str.isalpha
bool JinjaIsNumber(char32_t c);  // str.isnumeric, but for the odd letter that is a number

enum class JinjaCase { kUpper, kLower, kTitle, kCapitalize, kSwap, kWords };  // kWords: the filter `title`
MarkedText JinjaChangeCase(const MarkedText& text, JinjaCase how);

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_STRINGS_H_
