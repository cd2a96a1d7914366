#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8_scan.h"

namespace ballast {
namespace {

utf8proc_category_t Category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

int CombiningClass(int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Marks that follow a base in the order of their classes (Unicode 15, 3.11), equal ones as they came.
// utf8proc sorts by exchanges, which a run of many marks turns quadratic.
void OrderMarks(std::vector<int32_t>* text) {
  for (size_t at = 0; at < text->size();) {
    if (CombiningClass((*text)[at]) == 0) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text->size() && CombiningClass((*text)[end]) != 0) ++end;
    std::stable_sort(text->begin() + static_cast<long>(at), text->begin() + static_cast<long>(end),
                     [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    at = end;
  }
}

}  // namespace

uint32_t DecodeUtf8(std::string_view text, size_t at, size_t* bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    *bytes = 1;
    return lead;
  }
  if (lead < 0xE0) {
    *bytes = 2;
    return (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  }
  if (lead < 0xF0) {
    *bytes = 3;
    return (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  *bytes = 4;
  return (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

void AppendUtf8(uint32_t c, std::string* out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsNumber(uint32_t c) {
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsPunctuation(uint32_t c) {
  if (c < 0x80)
    return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsMark(uint32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsWordCharacter(uint32_t c) {
  if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  const utf8proc_category_t category = Category(c);
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) ||
                       (c >= 0x1F170 && c <= 0x1F189);  // alphabetic symbols
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) || IsMark(c) ||
         category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || circled || c == 0x200C || c == 0x200D;
}

std::string Normalize(NormalForm form, std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
  if (ascii) return std::string(text);
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  std::vector<int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t bytes = 0;
    const uint32_t c = DecodeUtf8(text, at, &bytes);
    at += bytes;
    int32_t parts[64];  // the longest decomposition has 18
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<int32_t>(c), parts, 64,
                                                       static_cast<utf8proc_option_t>(options), &boundary);
    if (n < 0 || n > 64) {
      points.push_back(static_cast<int32_t>(c));
    } else {
      points.insert(points.end(), parts, parts + n);
    }
  }
  OrderMarks(&points);
  utf8proc_ssize_t length = static_cast<utf8proc_ssize_t>(points.size());
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    length = utf8proc_normalize_utf32(points.data(), length,
                                      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    AppendUtf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), &out);
  return out;
}

std::string LowerCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t bytes = 0;
    const uint32_t c = DecodeUtf8(text, at, &bytes);
    at += bytes;
    if (c == 0x130) {  // the one character whose lower case is two
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(c))), &out);
    }
  }
  return out;
}

}  // namespace ballast
