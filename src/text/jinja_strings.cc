#include "text/jinja_strings.h"

#include <string.h>  // memmem
#include <utf8proc.h>

#include <algorithm>

namespace ballast {
namespace {

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Begin of the character that ends at `end`.
size_t CharBefore(std::string_view text, size_t end) {
  for (size_t back = std::min<size_t>(4, end); back > 1; --back) {
    if (JinjaCharBytes(text, end - back) == back) return end - back;
  }
  return end - 1;
}

std::vector<MarkedText> SplitSpaces(const MarkedText& text, int64_t limit) {
  std::vector<MarkedText> parts;
  const std::string& s = text.str();
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < s.size()) {
      size_t bytes = 1;
      if (JinjaIsSpace(JinjaDecode(s, at, &bytes)) != spaces) break;
      at += bytes;
    }
  };
  for (skip(true); at < s.size(); skip(true)) {
    const size_t from = at;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Sub(from, s.size() - from));
      break;
    }
    skip(false);
    parts.push_back(text.Sub(from, at - from));
  }
  return parts;
}

std::vector<MarkedText> RightSplitSpaces(const MarkedText& text, int64_t limit) {
  std::vector<MarkedText> parts;
  const std::string& s = text.str();
  size_t end = s.size();
  const auto skip = [&](bool spaces) {
    while (end > 0) {
      const size_t before = CharBefore(s, end);
      size_t bytes = 1;
      if (JinjaIsSpace(JinjaDecode(s, before, &bytes)) != spaces) break;
      end = before;
    }
  };
  for (skip(true); end > 0; skip(true)) {
    const size_t to = end;
    if (static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Sub(0, to));
      break;
    }
    skip(false);
    parts.push_back(text.Sub(end, to - end));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Where `old` stands in text, first to last, not overlapping, at most `limit` times (-1: always).
template <typename Take>
void ForEachMatch(std::string_view text, std::string_view old, int64_t limit, const Take& take) {
  size_t at = 0;
  for (int64_t n = 0; limit < 0 || n < limit; ++n) {
    at = old.empty() ? (at <= text.size() ? at : std::string_view::npos) : JinjaFind(text, old, at);
    if (at == std::string_view::npos) return;
    take(at);
    at += !old.empty() ? old.size() : at < text.size() ? JinjaCharBytes(text, at) : 1;
  }
}

bool Cased(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

void AppendUpper(char32_t c, bool title, std::string* out) {
  if (c == 0xDF) {  // the only common character whose capital is two
    *out += title ? "Ss" : "SS";
    return;
  }
  const auto wide = static_cast<utf8proc_int32_t>(c);
  JinjaEncode(static_cast<char32_t>(title ? utf8proc_totitle(wide) : utf8proc_toupper(wide)), out);
}

void AppendLower(char32_t c, std::string* out) {
  JinjaEncode(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

}  // namespace

bool JinjaIsLetter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool JinjaIsNumber(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

MarkedText JinjaStrip(const MarkedText& text, std::optional<std::string_view> chars, bool left, bool right) {
  const std::string& s = text.str();
  const auto drops = [&](size_t at, size_t bytes) {
    if (chars.has_value())
      return chars->find(std::string_view(s).substr(at, bytes)) != std::string_view::npos;
    size_t n = 1;
    return JinjaIsSpace(JinjaDecode(s, at, &n));
  };
  size_t from = 0, to = s.size();
  while (left && from < to) {
    const size_t bytes = JinjaCharBytes(s, from);
    if (!drops(from, bytes)) break;
    from += bytes;
  }
  while (right && to > from) {
    const size_t before = CharBefore(s, to);
    if (!drops(before, to - before)) break;
    to = before;
  }
  return text.Sub(from, to - from);
}

std::vector<MarkedText> JinjaSplit(const MarkedText& text, std::optional<std::string_view> separator,
                                   int64_t limit, bool from_right) {
  if (!separator.has_value()) {
    return from_right && limit >= 0 ? RightSplitSpaces(text, limit) : SplitSpaces(text, limit);
  }
  const std::string& s = text.str();
  std::vector<size_t> cuts;
  if (from_right && limit >= 0) {
    size_t end = s.size();
    while (static_cast<int64_t>(cuts.size()) < limit && end >= separator->size()) {
      const size_t at = s.rfind(*separator, end - separator->size());
      if (at == std::string::npos) break;
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    ForEachMatch(s, *separator, limit, [&](size_t at) { cuts.push_back(at); });
  }
  std::vector<MarkedText> parts;
  size_t from = 0;
  for (const size_t cut : cuts) {
    parts.push_back(text.Sub(from, cut - from));
    from = cut + separator->size();
  }
  parts.push_back(text.Sub(from, s.size() - from));
  return parts;
}

std::vector<MarkedText> JinjaSplitLines(const MarkedText& text, bool keep_ends) {
  std::vector<MarkedText> lines;
  const std::string& s = text.str();
  size_t from = 0;
  for (size_t at = 0; at < s.size();) {
    size_t bytes = 1;
    const char32_t c = JinjaDecode(s, at, &bytes);
    if (!IsLineEnd(c)) {
      at += bytes;
      continue;
    }
    const size_t end = at + (c == '\r' && at + 1 < s.size() && s[at + 1] == '\n' ? 2 : bytes);
    lines.push_back(text.Sub(from, (keep_ends ? end : at) - from));
    from = at = end;
  }
  if (from < s.size()) lines.push_back(text.Sub(from, s.size() - from));
  return lines;
}

size_t JinjaFind(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* at = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return at == nullptr ? std::string_view::npos : static_cast<const char*>(at) - text.data();
}

size_t JinjaCount(std::string_view text, std::string_view old, int64_t limit) {
  size_t count = 0;
  ForEachMatch(text, old, limit, [&](size_t) { ++count; });
  return count;
}

MarkedText JinjaReplace(const MarkedText& text, std::string_view old, const MarkedText& with, int64_t limit) {
  MarkedText out;
  size_t from = 0;
  ForEachMatch(text.str(), old, limit, [&](size_t at) {
    out.AppendRange(text, from, at - from);
    out.Append(with);
    from = at + old.size();
  });
  out.AppendRange(text, from, text.size() - from);
  return out;
}

MarkedText JinjaChangeCase(const MarkedText& text, JinjaCase how) {
  MarkedText out;
  bool first = true, after_letter = false;
  for (const MarkedText::Run& run : text.Runs()) {
    std::string mapped;
    for (size_t at = 0; at < run.text.size();) {
      size_t bytes = 1;
      const char32_t c = JinjaDecode(run.text, at, &bytes);
      const bool stray = bytes == 1 && c >= 0x80;
      bool up = how == JinjaCase::kUpper || (how == JinjaCase::kCapitalize && first) ||
                (how == JinjaCase::kTitle && !after_letter) || (how == JinjaCase::kWords && first);
      if (how == JinjaCase::kSwap) up = utf8proc_category(static_cast<int32_t>(c)) == UTF8PROC_CATEGORY_LL;
      if (stray) {
        mapped.append(run.text.substr(at, bytes));
      } else if (up) {
        AppendUpper(c, how == JinjaCase::kTitle || how == JinjaCase::kCapitalize, &mapped);
      } else {
        AppendLower(c, &mapped);
      }
      after_letter = Cased(c);
      first = how == JinjaCase::kWords &&
              (JinjaIsSpace(c) ||
               (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos));
      at += bytes;
    }
    out.Append(mapped, run.data);
  }
  return out;
}

}  // namespace ballast
