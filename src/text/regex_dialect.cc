// Oniguruma's dialect, rewritten for PCRE2. The differences (Oniguruma's doc/RE against pcre2pattern(3)):
//   \s \d \w     by Unicode properties; PCRE2 10.42's \w lacks marks and connectors, its \s has U+180E
//   \h \H        a hexadecimal digit, or not; in PCRE2 a blank
//   X{n,m}+      a repeated repeat; in PCRE2 possessive. X{,m} is X{0,m}
//   [a[bc]]      a union of classes; PCRE2 takes '[' for itself
//   \p{Han}      the script; PCRE2 10.40 and later takes script extensions
//   (?m:...)     '.' takes line breaks too, PCRE2's (?s:...)
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "text/regex.h"
#include "text/tokenizer_base.h"

namespace ballast {
namespace {

constexpr std::string_view kSpaces = R"(\p{Z}\x09-\x0D\x{85})";
// With the superscripts and fractions of Latin-1, which Oniguruma counts too.
constexpr std::string_view kWords = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kHex = "0-9A-Fa-f";

constexpr std::string_view kScripts[] = {
    "Han",       "Hiragana",  "Katakana", "Hangul",  "Latin",      "Greek",    "Cyrillic", "Arabic",
    "Hebrew",    "Thai",      "Lao",      "Tibetan", "Devanagari", "Bengali",  "Tamil",    "Telugu",
    "Kannada",   "Malayalam", "Sinhala",  "Myanmar", "Georgian",   "Armenian", "Ethiopic", "Khmer",
    "Mongolian", "Gujarati",  "Gurmukhi", "Oriya",   "Bopomofo",   "Common",   "Inherited"};

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      Status status;
      switch (in_[at_]) {
        case '\\':
          status = Escape(false);
          break;
        case '[':
          status = Class(0);
          break;
        case '{':
          status = Braces();
          break;
        case '(':
          status = Group();
          break;
        default:
          out_ += in_[at_++];
      }
      if (!status.ok()) return status;
    }
    return out_;
  }

 private:
  Status Refuse(std::string_view what) const {
    return Status::Expected(Code::kModel, "regular expression " + QuoteForMessage(in_),
                            "constructs that can be rewritten for PCRE2", what);
  }
  char Peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  // A class, or its complement, inside a class or on its own.
  void Put(std::string_view members, bool negated, bool in_class) {
    if (in_class) {
      out_ += members;
    } else {
      out_.append(negated ? "[^" : "[").append(members).append("]");
    }
  }

  Status Escape(bool in_class) {
    const char c = Peek(1);
    if (c == '\0') return Refuse("a lone backslash");
    at_ += 2;
    switch (c) {
      case 's':
        Put(kSpaces, false, in_class);
        return Status();
      case 'S':
        if (in_class) {
          out_ += R"(\P{White_Space})";
        } else {
          Put(kSpaces, true, false);
        }
        return Status();
      case 'w':
        Put(kWords, false, in_class);
        return Status();
      case 'd':
        out_ += R"(\p{Nd})";
        return Status();
      case 'D':
        out_ += R"(\P{Nd})";
        return Status();
      case 'h':
        Put(kHex, false, in_class);
        return Status();
      case 'W':
      case 'H':
        if (in_class) return Refuse("\\W or \\H inside a class");
        Put(c == 'W' ? kWords : kHex, true, false);
        return Status();
      case 'p':
      case 'P':
        return Property(c);
      case 'u': {  // \uHHHH
        if (at_ + 4 > in_.size()) return Refuse("a short \\u");
        out_.append("\\x{").append(in_.substr(at_, 4)).append("}");
        at_ += 4;
        return Status();
      }
      default:
        out_ += '\\';
        out_ += c;
        return Status();
    }
  }

  Status Property(char letter) {
    out_ += '\\';
    out_ += letter;
    if (Peek(0) != '{') return Status();
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return Refuse("a property without its end");
    std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    out_ += '{';
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    for (const std::string_view script : kScripts) {
      if (name == script) out_ += "sc:";
    }
    for (const char c : name) {
      if (c != ' ' && c != '-') out_ += c;
    }
    out_ += '}';
    return Status();
  }

  // From '[' to its ']'. `depth`: classes around it, whose union it joins.
  Status Class(int depth) {
    ++at_;
    if (depth == 0) out_ += '[';
    if (Peek(0) == '^') {
      if (depth > 0) return Refuse("a negated class inside a class");
      out_ += in_[at_++];
    }
    bool first = true;
    for (; at_ < in_.size(); first = false) {
      const char c = in_[at_];
      if (c == ']' && !first) {
        ++at_;
        if (depth == 0) out_ += ']';
        return Status();
      }
      if (c == '&' && Peek(1) == '&') return Refuse("an intersection of classes");
      if (c == '[' && Peek(1) == ':') {
        const size_t end = in_.find(":]", at_);
        if (end == std::string_view::npos) return Refuse("a named class without its end");
        out_ += in_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else if (c == '[') {
        if (depth > 8) return Refuse("classes inside classes");
        BALLAST_RETURN_IF_ERROR(Class(depth + 1));
      } else if (c == '\\') {
        BALLAST_RETURN_IF_ERROR(Escape(true));
      } else {
        if (c == ']') out_ += '\\';
        out_ += c;
        ++at_;
      }
    }
    return Refuse("a class without its end");
  }

  // "{n,m}" as a repeat; any other brace stands for itself.
  Status Braces() {
    const size_t end = in_.find('}', at_);
    const std::string_view body = end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = body.find(',');
    const auto digits = [](std::string_view text) {
      for (const char c : text) {
        if (c < '0' || c > '9') return false;
      }
      return text.size() <= 5;
    };
    const std::string_view low = body.substr(0, comma);
    const std::string_view high = comma == std::string_view::npos ? low : body.substr(comma + 1);
    if (body.empty() || body == "," || !digits(low) || !digits(high)) {
      out_ += "\\{";
      ++at_;
      return Status();
    }
    at_ = end + 1;
    const std::string least(low.empty() ? "0" : low);
    if (Peek(0) != '+') {
      out_ += "{" + least + (comma == std::string_view::npos ? "" : "," + std::string(high)) + "}";
      return Status();
    }
    // One or more runs of n to m reach every length from n on when they overlap; else it cannot be said.
    const long n = std::stol(least), m = high.empty() ? n * 2 + 1 : std::stol(std::string(high));
    if (n > 1 && m < 2 * n - 1) return Refuse("a repeat of a counted repeat");
    ++at_;
    out_ += "{" + least + ",}";
    return Status();
  }

  Status Group() {
    out_ += in_[at_++];
    if (Peek(0) != '?') return Status();
    // Option letters up to ':' or ')': m is PCRE2's s.
    size_t end = at_ + 1;
    while (end < in_.size() && (std::islower(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == '-'))
      ++end;
    if (end >= in_.size() || (in_[end] != ':' && in_[end] != ')')) return Status();
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
    return Status();
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateOniguruma(std::string_view pattern) {
  constexpr size_t kMaxPattern = 16 << 10;
  if (pattern.size() > kMaxPattern) {
    return Status::Expected(Code::kModel, "regular expression", "at most 16384 bytes",
                            std::to_string(pattern.size()));
  }
  return Translator(pattern).Run();
}

}  // namespace ballast
