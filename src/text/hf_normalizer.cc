#include <algorithm>
#include <utility>

#include "text/byte_table.h"
#include "text/hf_steps.h"
#include "text/unicode.h"

namespace ballast {
namespace {

using Kind = HfNormalizer::Kind;

std::string Strip(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = text.size(), bytes = 0;
  while (left && begin < end && IsSpace(DecodeUtf8(text, begin, &bytes))) begin += bytes;
  while (right && end > begin) {
    size_t at = end - 1;
    while (at > begin && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!IsSpace(DecodeUtf8(text, at, &bytes))) break;
    end = at;
  }
  return std::string(text.substr(begin, end - begin));
}

template <typename Keep>
std::string Filter(std::string_view text, const Keep& keep) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t c = DecodeUtf8(text, at, &bytes);
    if (keep(c)) out.append(text.substr(at, bytes));
  }
  return out;
}

std::string ByteCharacters(std::string_view text) {
  std::string out;
  for (const char c : text) AppendByteChar(static_cast<uint8_t>(c), &out);
  return out;
}

std::string Nmt(std::string_view text) {
  std::string out;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t c = DecodeUtf8(text, at, &bytes);
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
      continue;
    }
    const bool blank = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    if (blank) {
      out += ' ';
    } else {
      out.append(text.substr(at, bytes));
    }
  }
  return out;
}

std::string Replace(std::string_view text, const HfNormalizer& step, const std::optional<Regex>& regex,
                    RegexMatcher* matcher) {
  std::string out;
  out.reserve(text.size());
  if (!regex.has_value()) {
    size_t at = 0;
    for (size_t found; (found = text.find(step.pattern.text, at)) != std::string_view::npos;) {
      out.append(text.substr(at, found - at)).append(step.content);
      at = found + step.pattern.text.size();
    }
    return out.append(text.substr(at));
  }
  std::vector<TextSpan> matches;
  matcher->FindAll(*regex, text, &matches);
  size_t at = 0;
  for (const TextSpan& match : matches) {
    out.append(text.substr(at, match.begin - at)).append(step.content);
    at = match.end;
  }
  return out.append(text.substr(at));
}

}  // namespace

Result<HfNormalizerChain> HfNormalizerChain::Create(std::vector<HfNormalizer> steps) {
  HfNormalizerChain chain;
  for (HfNormalizer& step : steps) {
    std::optional<Regex> regex;
    if (step.kind == Kind::kReplace) {
      if (step.pattern.text.empty()) continue;
      if (step.pattern.regex) {
        BALLAST_ASSIGN_OR_RETURN(regex, Regex::FromOniguruma(step.pattern.text));
      }
    }
    chain.regexes_.push_back(std::move(regex));
    chain.steps_.push_back(std::move(step));
  }
  return chain;
}

std::string HfNormalizerChain::Apply(std::string_view text, bool prepend, RegexMatcher* matcher,
                                     bool* head_kept) const {
  std::string out(text);
  size_t bytes = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const HfNormalizer& step = steps_[i];
    switch (step.kind) {
      case Kind::kNfc:
        out = Normalize(NormalForm::kNfc, out);
        break;
      case Kind::kNfd:
        out = Normalize(NormalForm::kNfd, out);
        break;
      case Kind::kNfkc:
        out = Normalize(NormalForm::kNfkc, out);
        break;
      case Kind::kNfkd:
        out = Normalize(NormalForm::kNfkd, out);
        break;
      case Kind::kLowercase:
        out = LowerCase(out);
        break;
      case Kind::kStrip:
        if (step.left && !out.empty() && IsSpace(DecodeUtf8(out, 0, &bytes))) *head_kept = false;
        out = Strip(out, step.left, step.right);
        break;
      case Kind::kStripAccents:
        if (!out.empty() && IsMark(DecodeUtf8(out, 0, &bytes))) *head_kept = false;
        out = Filter(out, [](uint32_t c) { return !IsMark(c); });
        break;
      case Kind::kReplace:
        out = Replace(out, step, regexes_[i], matcher);
        break;
      case Kind::kPrepend:
        if (prepend && !out.empty()) out.insert(0, step.content);
        break;
      case Kind::kByteLevel:
        out = ByteCharacters(out);
        break;
      case Kind::kNmt:
        out = Nmt(out);
        break;
    }
  }
  return out;
}

}  // namespace ballast
