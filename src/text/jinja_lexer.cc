#include "text/jinja_lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <utility>

#include "text/jinja_text.h"

namespace ballast {
namespace {

using Kind = JinjaToken::Kind;

constexpr size_t kMaxSource = 256 << 10;  // the largest published ones are a tenth of it

// All newlines as \n, and one at the end dropped.
std::string Normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
}
bool IsNameChar(char c) { return IsNameStart(c) || (c >= '0' && c <= '9'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The value of a string literal's inside: Python's unicode_escape.
class Unescape {
 public:
  explicit Unescape(std::string_view in) : in_(in) {}

  bool Run(std::string* out) {
    while (at_ < in_.size()) {
      if (in_[at_] != '\\' || at_ + 1 == in_.size()) {
        *out += in_[at_++];
        continue;
      }
      ++at_;
      if (!Escape(in_[at_], out)) return false;
    }
    return true;
  }

 private:
  bool Escape(char c, std::string* out) {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      *out += kTo[i];
      ++at_;
      return true;
    }
    if (c == '\n') {
      ++at_;
      return true;
    }
    if (c >= '0' && c <= '7') return Number(0, 8, 3, false, out);
    if (c == 'x') return Number(1, 16, 2, true, out);
    if (c == 'u') return Number(1, 16, 4, true, out);
    if (c == 'U') return Number(1, 16, 8, true, out);
    if (c == 'N') return false;
    *out += '\\';
    return true;
  }

  bool Number(size_t skip, int base, size_t max_digits, bool exact, std::string* out) {
    at_ += skip;
    char32_t c = 0;
    size_t n = 0;
    for (; n < max_digits && at_ < in_.size(); ++n, ++at_) {
      const char d = in_[at_];
      const bool fits = base == 8 ? d >= '0' && d <= '7' : std::isxdigit(static_cast<unsigned char>(d)) != 0;
      if (!fits) break;
      c = c * base + (IsDigit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
    }
    if ((exact && n != max_digits) || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
    JinjaEncode(c, out);
    return true;
  }

  std::string_view in_;
  size_t at_ = 0;
};

class Lexer {
 public:
  explicit Lexer(std::string source) : text_(std::move(source)) {}

  Result<std::vector<JinjaToken>> Run() {
    while (at_ < text_.size()) BALLAST_RETURN_IF_ERROR(DataThenTag());
    Push(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(text_.begin() + at_, text_.begin() + to, '\n'));
    at_ = to;
  }
  std::string_view Rest() const { return std::string_view(text_).substr(at_); }
  bool At(std::string_view what) const { return Rest().starts_with(what); }
  size_t SkipSpace(size_t from) const {
    while (from < text_.size()) {
      size_t bytes = 1;
      if (!JinjaIsSpace(JinjaDecode(text_, from, &bytes))) break;
      from += bytes;
    }
    return from;
  }

  // Start of the next tag at or after `from`; npos for none.
  size_t FindTag(size_t from) const {
    for (size_t i = from; (i = text_.find('{', i)) != std::string::npos; ++i) {
      if (i + 1 < text_.size() && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#'))
        return i;
    }
    return std::string::npos;
  }

  // Pushes the text before the tag at `tag`, cut as the tag's sign and lstrip_blocks ask.
  void PushData(size_t tag, char sign, bool lstrip) {
    size_t end = tag;
    if (sign == '-') {
      end = TrimEnd(at_, tag);
    } else if (sign != '+' && lstrip) {
      size_t line_start = tag;
      while (line_start > at_ && text_[line_start - 1] != '\n') --line_start;
      const bool opens_line = line_start > at_ || at_ == 0 || text_[at_ - 1] == '\n';
      if (opens_line && SkipSpace(line_start) >= tag) end = line_start;
    }
    if (end > at_) Push(Kind::kData, text_.substr(at_, end - at_));
    Advance(tag);
  }

  size_t TrimEnd(size_t from, size_t end) const {
    size_t kept = from;
    for (size_t i = from; i < end;) {
      size_t bytes = 1;
      const bool space = JinjaIsSpace(JinjaDecode(text_, i, &bytes));
      i += bytes;
      if (!space) kept = std::min(i, end);
    }
    return kept;
  }

  Status DataThenTag() {
    const size_t tag = FindTag(at_);
    if (tag == std::string::npos) {
      Push(Kind::kData, text_.substr(at_));
      Advance(text_.size());
      return Status();
    }
    const char kind = text_[tag + 1];
    const char sign =
        tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+') ? text_[tag + 2] : ' ';
    PushData(tag, sign, kind != '{');
    const int opened = line_;
    Advance(tag + (sign == ' ' ? 2 : 3));
    if (kind == '#') return Comment(opened);
    if (kind == '%' && IsRaw()) return Raw(opened);
    tokens_.push_back({kind == '%' ? Kind::kBlockBegin : Kind::kVarBegin, "", opened});
    return Inside(kind == '%');
  }

  // After a tag's end: white space the sign asks to drop, or trim_blocks' one newline.
  void AfterTag(char sign, bool trim_newline) {
    if (sign == '-') {
      Advance(SkipSpace(at_));
    } else if (sign != '+' && trim_newline && At("\n")) {
      Advance(at_ + 1);
    }
  }

  Status Comment(int opened) {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) return JinjaSyntaxError(opened, "a comment is not closed");
    const char sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : ' ';
    Advance(end + 2);
    AfterTag(sign, true);
    return Status();
  }

  bool IsRaw() const {
    const size_t at = SkipSpace(at_);
    if (text_.compare(at, 3, "raw") != 0) return false;
    const size_t end = SkipSpace(at + 3);
    return text_.compare(end, 2, "%}") == 0 || text_.compare(end, 3, "-%}") == 0;
  }

  Status Raw(int opened) {
    const size_t open_end = text_.find("%}", at_);
    const bool strip = text_[open_end - 1] == '-';
    Advance(open_end + 2);
    if (strip) AfterTag('-', false);
    for (size_t tag = at_; (tag = text_.find("{%", tag)) != std::string::npos; ++tag) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      const size_t word = SkipSpace(tag + (sign == '-' || sign == '+' ? 3 : 2));
      if (text_.compare(word, 6, "endraw") != 0) continue;
      size_t end = SkipSpace(word + 6);
      char close = ' ';
      if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) close = text_[end++];
      if (text_.compare(end, 2, "%}") != 0) continue;
      PushData(tag, sign, true);
      Advance(end + 2);
      AfterTag(close, true);
      return Status();
    }
    return JinjaSyntaxError(opened, "a raw block is not closed");
  }

  // The tokens of a tag up to its end.
  Status Inside(bool block) {
    std::string open;  // brackets not yet closed
    const std::string_view close = block ? "%}" : "}}";
    for (;;) {
      Advance(SkipSpace(at_));
      if (at_ >= text_.size()) return JinjaSyntaxError(line_, "a tag is not closed");
      if (open.empty()) {
        const char sign = text_[at_] == '-' || (block && text_[at_] == '+') ? text_[at_] : ' ';
        const size_t end = at_ + (sign == ' ' ? 0 : 1);
        if (text_.compare(end, 2, close) == 0) {
          Push(block ? Kind::kBlockEnd : Kind::kVarEnd, "");
          Advance(end + 2);
          AfterTag(sign, block);
          return Status();
        }
      }
      BALLAST_RETURN_IF_ERROR(One(&open));
    }
  }

  Status One(std::string* open) {
    const char c = text_[at_];
    if (IsDigit(c)) return Number();
    if (IsNameStart(c)) {
      size_t end = at_;
      while (end < text_.size() && IsNameChar(text_[end])) ++end;
      Push(Kind::kName, text_.substr(at_, end - at_));
      Advance(end);
      return Status();
    }
    if (c == '\'' || c == '"') return String(c);
    return Operator(open);
  }

  Status String(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return JinjaSyntaxError(line_, "a string is not closed");
    std::string value;
    if (!Unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1)).Run(&value)) {
      return JinjaSyntaxError(line_, "a string holds an escape that is not known");
    }
    Push(Kind::kString, std::move(value));
    Advance(end + 1);
    return Status();
  }

  size_t Digits(size_t from) const {
    while (from < text_.size() && (IsDigit(text_[from]) || (text_[from] == '_' && from + 1 < text_.size() &&
                                                            IsDigit(text_[from + 1])))) {
      ++from;
    }
    return from;
  }

  Status Number() {
    // A number right after a dot is an index ("x.0"): no fraction.
    const bool index = !tokens_.empty() && tokens_.back().kind == Kind::kOp && tokens_.back().text == ".";
    const char base = text_[at_] == '0' && at_ + 2 < text_.size() ? text_[at_ + 1] | 0x20 : ' ';
    if (base == 'x' || base == 'o' || base == 'b') return BaseNumber(base == 'x' ? 16 : base == 'o' ? 8 : 2);
    size_t end = Digits(at_);
    bool real = false;
    const auto digit_at = [&](size_t i) { return i < text_.size() && IsDigit(text_[i]); };
    if (!index && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      end = Digits(end + 1);
      real = true;
    }
    if (!index && end < text_.size() && (text_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        end = Digits(end + 1 + sign);
        real = true;
      }
    }
    std::string digits;
    for (const char c : std::string_view(text_).substr(at_, end - at_)) {
      if (c != '_') digits += c;
    }
    Push(real ? Kind::kFloat : Kind::kInt, std::move(digits));
    Advance(end);
    return Status();
  }

  // 0x1f, 0o17, 0b101: pushed in decimal.
  Status BaseNumber(int base) {
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_ + 2, text_.data() + text_.size(), value, base);
    if (error != std::errc()) return JinjaSyntaxError(line_, "a number that cannot be read");
    Push(Kind::kInt, std::to_string(value));
    Advance(end - text_.data());
    return Status();
  }

  Status Operator(std::string* open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", "<=", ">="};
    const std::string_view rest = Rest();
    size_t bytes = 1;
    for (const std::string_view two : kTwo) {
      if (rest.starts_with(two)) bytes = 2;
    }
    const char c = rest[0];
    if (bytes == 1 && std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      return JinjaSyntaxError(
          line_, std::string("a character that has no meaning in a tag: '") + (c < 0x20 ? '?' : c) + "'");
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char want = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open->empty() || open->back() != want)
        return JinjaSyntaxError(line_, std::string("unexpected '") + c + "'");
      open->pop_back();
    }
    Push(Kind::kOp, std::string(rest.substr(0, bytes)));
    Advance(at_ + bytes);
    return Status();
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

Status JinjaSyntaxError(int line, std::string_view what) {
  return Status(Code::kModel, "chat template, line " + std::to_string(line) + ": " + std::string(what));
}

Result<std::vector<JinjaToken>> LexJinja(std::string_view source) {
  if (source.size() > kMaxSource) {
    return Status::Expected(Code::kModel, "chat template", "at most " + std::to_string(kMaxSource) + " bytes",
                            std::to_string(source.size()));
  }
  return Lexer(Normalize(source)).Run();
}

}  // namespace ballast
