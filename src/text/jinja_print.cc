#include "text/jinja_print.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;
using Flavor = JinjaListRep::Flavor;

constexpr int kMaxDepth = 200;

bool Printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void AppendHex(std::string* out, char kind, int digits, char32_t c) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), "\\%c%0*x", kind, digits, static_cast<unsigned>(c));
  *out += buffer;
}

// What repr and JSON share: the text, whether data went into it, the budget.
class Printer {
 public:
  explicit Printer(JinjaRuntime* rt) : rt_(rt) {}
  virtual ~Printer() = default;
  MarkedText Run(const JinjaValue& value) {
    Write(value);
    rt_->Buffered(-static_cast<int64_t>(counted_));
    return MarkedText(std::move(out_), data_);
  }

 protected:
  virtual void Write(const JinjaValue& value) = 0;

  bool Enter() {
    if (depth_ >= kMaxDepth) rt_->Fail("a value is nested too deep to be printed");
    ++depth_;
    if (!rt_->Charge(1) || !rt_->Fits(out_.size() - counted_)) return false;
    rt_->Buffered(static_cast<int64_t>(out_.size() - counted_));
    counted_ = out_.size();
    return true;
  }
  void Leave() { --depth_; }
  const std::string& Data(const JinjaValue& value) {
    data_ = data_ || value.text().HasData();
    rt_->CharWork(value.str().size());
    rt_->Fits(value.str().size());
    return value.str();
  }

  JinjaRuntime* rt_;
  std::string out_;
  bool data_ = false;
  int depth_ = 0;

 private:
  size_t counted_ = 0;
};

class ReprPrinter : public Printer {
 public:
  using Printer::Printer;

 private:
  void Write(const JinjaValue& value) override {
    if (!Enter()) return;
    switch (value.kind()) {
      case Kind::kUndefined:
        out_ += "Undefined";
        break;
      case Kind::kString:
        Quoted(Data(value));
        break;
      case Kind::kList:
        Sequence(value);
        break;
      case Kind::kDict:
        Mapping(value);
        break;
      case Kind::kNamespace:
        out_ += "<Namespace ";
        Mapping(value);
        out_ += '>';
        break;
      case Kind::kFunction:
        out_ += "<function>";
        break;
      case Kind::kLoop:
        out_ += "<LoopContext>";
        break;
      default:
        out_ += rt_->Str(value).str();
    }
    Leave();
  }

  void Sequence(const JinjaValue& value) {
    const Flavor flavor = static_cast<JinjaListRep*>(value.rep())->flavor;
    if (flavor == Flavor::kGenerator) {
      out_ += "<generator>";
      return;
    }
    const auto& items = value.items();
    out_ += flavor == Flavor::kTuple ? '(' : '[';
    for (size_t i = 0; i < items.size() && rt_->ok(); ++i) {
      if (i > 0) out_ += ", ";
      Write(items[i]);
    }
    if (flavor == Flavor::kTuple && items.size() == 1) out_ += ',';
    out_ += flavor == Flavor::kTuple ? ')' : ']';
  }

  void Mapping(const JinjaValue& value) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : value.dict().entries) {
      if (!rt_->ok()) return;
      if (!first) out_ += ", ";
      first = false;
      Write(key);
      out_ += ": ";
      Write(item);
    }
    out_ += '}';
  }

  void Quoted(const std::string& text) {
    const bool twice = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
    const char quote = twice ? '"' : '\'';
    out_ += quote;
    for (size_t at = 0; at < text.size();) {
      size_t bytes = 1;
      const char32_t c = JinjaDecode(text, at, &bytes);
      Character(text, at, bytes, c, quote);
      at += bytes;
    }
    out_ += quote;
  }

  void Character(const std::string& text, size_t at, size_t bytes, char32_t c, char quote) {
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out_ += '\\';
      out_ += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out_ += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (Printable(c)) {
      out_.append(text, at, bytes);
    } else if (c < 0x100) {
      AppendHex(&out_, 'x', 2, c);
    } else {
      AppendHex(&out_, c < 0x10000 ? 'u' : 'U', c < 0x10000 ? 4 : 8, c);
    }
  }
};

class JsonPrinter : public Printer {
 public:
  JsonPrinter(JinjaRuntime* rt, const JinjaJsonStyle& style) : Printer(rt), style_(style) {}

 private:
  void Write(const JinjaValue& value) override {
    if (!Enter()) return;
    switch (value.kind()) {
      case Kind::kString:
        Quoted(Data(value));
        break;
      case Kind::kList:
        Sequence(value);
        break;
      case Kind::kDict:
        Mapping(value);
        break;
      default:
        out_ += Scalar(value);
    }
    Leave();
  }

  std::string Scalar(const JinjaValue& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.AsBool() ? "true" : "false";
      case Kind::kInt:
        return std::to_string(value.AsInt());
      case Kind::kFloat: {
        const double d = value.AsDouble();
        if (std::isnan(d)) return "NaN";
        if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
        return JinjaFloatText(d);
      }
      default:
        rt_->Fail("Object of type " + std::string(JinjaTypeName(value)) + " is not JSON serializable");
        return "";
    }
  }

  void Line() {
    if (!style_.indent.has_value()) return;
    out_ += '\n';
    if (!rt_->Fits(style_.indent->size() * level_)) return;
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void Sequence(const JinjaValue& value) {
    if (static_cast<JinjaListRep*>(value.rep())->flavor == Flavor::kGenerator) {
      rt_->Fail("Object of type generator is not JSON serializable");
    }
    if (value.items().empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    bool first = true;
    for (const JinjaValue& item : value.items()) {
      if (!rt_->ok()) return;
      if (!first) out_ += style_.item_separator;
      first = false;
      Line();
      Write(item);
    }
    --level_;
    Line();
    out_ += ']';
  }

  void Mapping(const JinjaValue& value) {
    std::vector<const std::pair<JinjaValue, JinjaValue>*> entries;
    for (const auto& entry : value.dict().entries) entries.push_back(&entry);
    if (entries.empty()) {
      out_ += "{}";
      return;
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return rt_->Order(a->first, b->first) < 0; });
    }
    out_ += '{';
    ++level_;
    bool first = true;
    for (const auto* entry : entries) {
      if (!rt_->ok()) return;
      if (!first) out_ += style_.item_separator;
      first = false;
      Line();
      Key(entry->first);
      out_ += style_.key_separator;
      Write(entry->second);
    }
    --level_;
    Line();
    out_ += '}';
  }

  void Key(const JinjaValue& key) {
    if (key.Is(Kind::kString)) {
      Quoted(Data(key));
    } else if (key.IsNumber() || key.Is(Kind::kNone)) {
      out_ += '"' + Scalar(key) + '"';
    } else {
      rt_->Fail("keys must be str, int, float, bool or None, not " + std::string(JinjaTypeName(key)));
    }
  }

  void Quoted(const std::string& text) {
    static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      size_t bytes = 1;
      const char32_t c = JinjaDecode(text, at, &bytes);
      const size_t named = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
      if (named != std::string_view::npos) {
        out_ += '\\';
        out_ += kTo[named];
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F)) {
        if (c > 0xFFFF) AppendHex(&out_, 'u', 4, 0xD800 + ((c - 0x10000) >> 10));
        AppendHex(&out_, 'u', 4, c > 0xFFFF ? 0xDC00 + ((c - 0x10000) & 0x3FF) : c);
      } else {
        out_.append(text, at, bytes);
      }
      at += bytes;
    }
    out_ += '"';
  }

  const JinjaJsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string JinjaFloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16)
    return text;  // to_chars writes the exponent as Python does: e-05, e+16
  std::string digits;
  for (const char c : std::string_view(text).substr(0, e)) {
    if (c != '-' && c != '.') digits += c;
  }
  if (exponent < 0) {
    digits = "0." + std::string(-exponent - 1, '0') + digits;
  } else {
    if (digits.size() < static_cast<size_t>(exponent) + 1) digits.resize(exponent + 1, '0');
    digits.insert(exponent + 1, ".");
    if (digits.back() == '.') digits += '0';
  }
  return (text[0] == '-' ? "-" : "") + digits;
}

MarkedText JinjaRepr(JinjaRuntime* rt, const JinjaValue& value) { return ReprPrinter(rt).Run(value); }

MarkedText JinjaJson(JinjaRuntime* rt, const JinjaValue& value, const JinjaJsonStyle& style) {
  return JsonPrinter(rt, style).Run(value);
}

}  // namespace ballast
