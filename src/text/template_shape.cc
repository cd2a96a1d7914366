#include "text/template_shape.h"

#include <algorithm>

namespace ballast {
namespace {

constexpr char kOpen = '\1', kClose = '\2';
constexpr std::string_view kSpace = " \t\r\n\v\f";

bool IsName(std::string_view text) {
  const auto name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), name);
}

// Writes the normal form. Joins: a '+' beside a literal or a block says nothing, and two literals are one.
class Writer {
 public:
  void Code(char c) {
    const bool idle = out_.empty() || out_.back() == kClose || out_.back() == '+' || out_.ends_with("%}");
    if (c == '+' && idle) return;
    if (c == '{') DropPlus();
    out_ += c;
  }
  void Literal(std::string_view text) {
    if (text.empty()) return;
    DropPlus();
    if (!out_.empty() && out_.back() == kClose) {
      out_.pop_back();
    } else {
      out_ += kOpen;
    }
    for (const char c : text) {
      if (c != kOpen && c != kClose) out_ += c;
    }
    out_ += kClose;
  }
  bool EndsWith(char c) const { return !out_.empty() && out_.back() == c; }
  void Pop() { out_.pop_back(); }
  std::string Take() { return std::move(out_); }

 private:
  void DropPlus() {
    if (EndsWith('+')) out_.pop_back();
  }
  std::string out_;
};

// Reads a template once, left to right, with the whitespace rules chat templates are rendered under
// (trim_blocks and lstrip_blocks on, "-" strips).
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}

  std::string Read() {
    while (at_ < in_.size()) {
      Data();
      if (at_ < in_.size()) Tag();
    }
    return writer_.Take();
  }

 private:
  bool At(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  // Text outside tags, up to the next tag.
  void Data() {
    size_t end = at_;
    while (end < in_.size() && !IsTag(end)) ++end;
    std::string_view text = in_.substr(at_, end - at_);
    bool new_line = at_ == 0;
    if (strip_next_) {
      text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    } else if (after_block_ && text.starts_with('\n')) {
      text.remove_prefix(1);
      new_line = true;
    }
    const char kind = end < in_.size() ? in_[end + 1] : '\0';
    const char sign = end + 2 < in_.size() ? in_[end + 2] : '\0';
    if (kind != '\0' && sign == '-') {
      text = text.substr(0, text.find_last_not_of(kSpace) + 1);
    } else if ((kind == '%' || kind == '#') && sign != '+') {
      const size_t last = text.find_last_not_of(" \t") + 1;
      const bool line_start = last == 0 ? new_line : text[last - 1] == '\n';
      if (line_start) text = text.substr(0, last);
    }
    writer_.Literal(text);
    at_ = end;
  }

  bool IsTag(size_t i) const {
    return in_[i] == '{' && i + 1 < in_.size() &&
           (in_[i + 1] == '{' || in_[i + 1] == '%' || in_[i + 1] == '#');
  }

  void Tag() {
    const char kind = in_[at_ + 1];
    at_ += 2;
    strip_next_ = false;
    after_block_ = kind != '{';
    if (kind == '#') {
      const size_t end = std::min(in_.find("#}", at_), in_.size());
      strip_next_ = end > at_ && in_[end - 1] == '-';
      at_ = std::min(end + 2, in_.size());
      return;
    }
    if (At("-") || At("+")) ++at_;
    const std::string_view end = kind == '{' ? "}}" : "%}";
    writer_.Code('+');  // printed values follow one another as if added
    if (kind == '%') writer_.Code('{'), writer_.Code('%');
    while (at_ < in_.size() && !At(end)) {
      if (At("-") && in_.substr(at_ + 1).starts_with(end)) {
        strip_next_ = true;
        ++at_;
      } else {
        CodeItem();
      }
    }
    at_ = std::min(at_ + 2, in_.size());
    if (kind == '%') writer_.Code('%'), writer_.Code('}');
    writer_.Code('+');
  }

  // One character or string literal inside a tag.
  void CodeItem() {
    const char c = in_[at_];
    if (c == '"' || c == '\'') {
      const std::string text = Quoted();
      if (At("]") && writer_.EndsWith('[') && IsName(text)) {
        ++at_;
        writer_.Pop();
        writer_.Code('.');
        for (const char n : text) writer_.Code(n);
      } else {
        writer_.Literal(text);
      }
      return;
    }
    ++at_;
    if (kSpace.find(c) == std::string_view::npos && c != kOpen && c != kClose) {
      writer_.Code(c == '~' ? '+' : c);
    }
  }

  std::string Quoted() {
    const char quote = in_[at_++];
    std::string text;
    while (at_ < in_.size() && in_[at_] != quote) {
      char c = in_[at_++];
      if (c == '\\' && at_ < in_.size()) {
        c = in_[at_++];
        c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
      }
      text += c;
    }
    at_ = std::min(at_ + 1, in_.size());
    return text;
  }

  std::string_view in_;
  size_t at_ = 0;
  bool strip_next_ = false;   // the last tag ended with "-"
  bool after_block_ = false;  // the last tag was {% %} or {# #}
  Writer writer_;
};

bool InExpression(char c) {
  return c != kOpen && c != kClose && c != '{' && c != '}' && c != '%' && c != '+';
}

}  // namespace

TemplateShape::TemplateShape(std::string_view jinja) : shape_(Reader(jinja).Read()) {}

bool TemplateShape::Has(std::string_view pattern) const {
  std::string wanted(pattern);
  std::replace(wanted.begin(), wanted.end(), '`', kOpen);
  std::replace(wanted.begin(), wanted.end(), '\'', kClose);
  for (size_t at = 0; at < shape_.size(); ++at) {
    at = shape_.find(std::string_view(wanted).substr(0, wanted.find('*')), at);
    if (at == std::string::npos) return false;
    if (MatchesAt(at, wanted)) return true;
  }
  return false;
}

// An expression always runs up to what cannot be part of one, so there is nothing to try again.
bool TemplateShape::MatchesAt(size_t at, std::string_view wanted) const {
  for (const char c : wanted) {
    if (c != '*') {
      if (at >= shape_.size() || shape_[at++] != c) return false;
      continue;
    }
    const size_t start = at;
    while (at < shape_.size() && InExpression(shape_[at])) ++at;
    if (at == start) return false;
  }
  return true;
}

std::optional<std::string> TemplateShape::Between(std::string_view before, std::string_view after) const {
  for (size_t at = shape_.find(before); at != std::string::npos; at = shape_.find(before, at)) {
    at += before.size();
    const size_t close = std::min(shape_.find(kClose, at), shape_.size());
    const std::string_view rest = std::string_view(shape_).substr(at, close - at);
    const size_t end = rest.find(after);
    if (end == std::string_view::npos) {
      at = close;  // nor can it follow a later `before` in this literal
    } else if (end > 0) {
      return std::string(rest.substr(0, end));
    }
  }
  return std::nullopt;
}

}  // namespace ballast
