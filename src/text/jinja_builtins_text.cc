// Filters that make text or numbers out of one value.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_builtins.h"
#include "text/jinja_print.h"
#include "text/jinja_strings.h"

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;

template <JinjaCase kHow>
JinjaValue Case(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  const MarkedText text = rt->Str(self);
  if (!rt->CharWork(text.size())) return {};
  return rt->Text(JinjaChangeCase(text, kHow));
}

JinjaValue Trim(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("trim", args, {"chars"});
  const bool chars = bound[0] != nullptr && !bound[0]->Is(Kind::kNone);
  const std::string set = chars ? JinjaTextArg(rt, bound[0], "") : "";
  const MarkedText text = rt->Str(self);
  if (!rt->Work(text.size() * (set.size() + 8))) return {};
  return rt->Text(JinjaStrip(text, chars ? std::optional<std::string_view>(set) : std::nullopt, true, true));
}

JinjaValue ToString(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  return self.Is(Kind::kString) ? self : rt->Text(rt->Str(self));
}

JinjaValue Replace(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("replace", args, {"old", "new", "count"});
  if (bound[0] == nullptr || bound[1] == nullptr)
    return rt->Fail("replace expected what to replace, and with what");
  const MarkedText text = rt->Str(self), old = rt->Str(*bound[0]), with = rt->Str(*bound[1]);
  const int64_t limit = bound[2] == nullptr || bound[2]->Is(Kind::kNone) ? -1 : JinjaIntArg(rt, bound[2], -1);
  const size_t times = JinjaCount(text.str(), old.str(), limit);
  if (!rt->Fits(text.MemoryBytes() + times * (with.MemoryBytes() + 8))) return {};
  return rt->Text(JinjaReplace(text, old.str(), with, limit));
}

JinjaValue Indent(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("indent", args, {"width", "first", "blank"});
  MarkedText by;
  if (bound[0] != nullptr && bound[0]->Is(Kind::kString)) {
    by = bound[0]->text();
  } else {
    const int64_t width = JinjaIntArg(rt, bound[0], 4);
    if (width > 1000) return rt->Fail("indent: expected a width of at most 1000");
    by = MarkedText(std::string(width > 0 ? width : 0, ' '));
  }
  if (self.Is(Kind::kUndefined)) return rt->Fail(self.UndefinedMessage());
  const bool first = JinjaBoolArg(*rt, bound[1], false), blank = JinjaBoolArg(*rt, bound[2], false);
  MarkedText text = rt->Str(self);
  if (!rt->CharWork(text.size())) return {};
  text.Append("\n", false);  // so that a newline at the end is followed by a line, as in jinja2
  const size_t ends = JinjaCount(text.str(), "\n", -1) + text.size() / 16;
  if (!rt->Fits(text.MemoryBytes() + ends * (by.MemoryBytes() + 2 * sizeof(MarkedText)))) return {};
  const auto lines = JinjaSplitLines(text, false);
  if (!rt->Fits(text.MemoryBytes() + lines.size() * (by.MemoryBytes() + sizeof(MarkedText)))) return {};
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", false);
    if (i == 0 ? first : blank || !lines[i].empty()) out.Append(by);
    out.Append(lines[i]);
  }
  return rt->Text(std::move(out));
}

JinjaValue Escape(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  MarkedText text = rt->Str(self);
  if (!rt->Fits(text.MemoryBytes() * 6) || !rt->CharWork(text.size())) return {};
  for (const auto& [from, to] : kPairs) {
    text = JinjaReplace(text, from, MarkedText(std::string(to), text.HasData()), -1);
  }
  return rt->Text(std::move(text));
}

JinjaValue WordCount(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  const MarkedText text = rt->Str(self);
  if (!rt->CharWork(text.size())) return {};
  int64_t words = 0;
  for (size_t at = 0, bytes = 1, in = 0; at < text.size(); at += bytes) {
    const char32_t c = JinjaDecode(text.str(), at, &bytes);
    const bool part = JinjaIsLetter(c) || JinjaIsNumber(c) || c == '_';
    if (part && in == 0) ++words;
    in = part ? 1 : 0;
  }
  return JinjaValue::Int(words);
}

JinjaValue ToJson(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JinjaJsonStyle style;
  style.ensure_ascii = JinjaBoolArg(*rt, bound[0], false);
  style.sort_keys = JinjaBoolArg(*rt, bound[3], false);
  if (bound[1] != nullptr && bound[1]->Is(Kind::kString)) {
    style.indent = bound[1]->str();
  } else if (bound[1] != nullptr && !bound[1]->Is(Kind::kNone)) {
    const int64_t width = JinjaIntArg(rt, bound[1], 0);
    if (width > 100) return rt->Fail("tojson: expected an indent of at most 100");
    style.indent = std::string(width > 0 ? width : 0, ' ');
  }
  if (style.indent.has_value()) style.item_separator = ",";
  if (bound[2] != nullptr && !bound[2]->Is(Kind::kNone)) {
    const auto two = rt->Iterate(*bound[2]);
    if (two.size() != 2) return rt->Fail("tojson: expected separators to be two strings");
    style.item_separator = JinjaTextArg(rt, &two[0], "");
    style.key_separator = JinjaTextArg(rt, &two[1], "");
  }
  if (!rt->ok()) return {};
  return rt->Text(JinjaJson(rt, self, style));
}

std::string Number(const JinjaValue& value) {
  std::string out;
  const MarkedText stripped = JinjaStrip(value.text(), std::nullopt, true, true);
  for (const char c : stripped.str()) {
    if (c != '_') out += c;
  }
  return out;
}

std::optional<double> ParseDouble(const std::string& text) {
  if (text.empty() || text.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' ? std::optional<double>(value) : std::nullopt;
}

JinjaValue ToInt(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("int", args, {"default", "base"});
  const JinjaValue missing = bound[0] != nullptr ? *bound[0] : JinjaValue::Int(0);
  int64_t base = JinjaIntArg(rt, bound[1], 10);
  if (!rt->ok()) return {};
  if (self.Is(Kind::kUndefined)) return rt->Fail(self.UndefinedMessage());
  if (self.Is(Kind::kInt) || self.Is(Kind::kBool)) return JinjaValue::Int(self.AsInt());
  double real = NAN;
  if (self.Is(Kind::kFloat)) real = self.AsDouble();
  if (self.Is(Kind::kString)) {
    std::string text = Number(self);
    const bool minus = text.starts_with('-');
    if (minus || text.starts_with('+')) text.erase(0, 1);
    if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.erase(0, 2);
    if (minus) text.insert(0, "-");
    int64_t value = 0;
    if (base < 2 || base > 36) base = 10;
    const auto done = std::from_chars(text.data(), text.data() + text.size(), value, static_cast<int>(base));
    if (done.ec == std::errc() && done.ptr == text.data() + text.size()) return JinjaValue::Int(value);
    real = ParseDouble(text).value_or(NAN);
  }
  if (!(std::fabs(real) < 9e18)) return missing;
  return JinjaValue::Int(static_cast<int64_t>(real));
}

JinjaValue ToFloat(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("float", args, {"default"});
  if (self.Is(Kind::kUndefined)) return rt->Fail(self.UndefinedMessage());
  if (self.IsNumber()) return JinjaValue::Float(self.AsDouble());
  if (self.Is(Kind::kString)) {
    if (const auto value = ParseDouble(Number(self))) return JinjaValue::Float(*value);
  }
  return bound[0] != nullptr ? *bound[0] : JinjaValue::Float(0.0);
}

JinjaValue Round(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("round", args, {"precision", "method"});
  const int64_t precision = JinjaIntArg(rt, bound[0], 0);
  const std::string method = JinjaTextArg(rt, bound[1], "common");
  if (!self.IsNumber()) return rt->TypeError("round expected a number", self);
  if (precision < -300 || precision > 300) return rt->Fail("round: expected a precision within 300");
  const double value = self.AsDouble(), scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return JinjaValue::Float(std::ceil(value * scale) / scale);
  if (method == "floor") return JinjaValue::Float(std::floor(value * scale) / scale);
  if (method != "common") return rt->Fail("method must be common, ceil or floor");
  if (!self.Is(Kind::kFloat) && precision >= 0) return JinjaValue::Int(self.AsInt());
  double rounded = value;
  if (precision >= 0) {
    char text[700];
    std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(precision), value);
    rounded = std::strtod(text, nullptr);
  } else {
    rounded = std::nearbyint(value * scale) / scale;
  }
  if (self.Is(Kind::kFloat)) return JinjaValue::Float(rounded);
  return JinjaValue::Int(static_cast<int64_t>(rounded));
}

JinjaValue Abs(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  if (self.Is(Kind::kFloat)) return JinjaValue::Float(std::fabs(self.AsDouble()));
  if (!self.IsNumber()) return rt->TypeError("abs expected a number", self);
  return self.AsInt() < 0 ? rt->Binary("-", JinjaValue::Int(0), self) : JinjaValue::Int(self.AsInt());
}

JinjaValue Default(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("default", args, {"default_value", "boolean"});
  const bool missing = self.Is(Kind::kUndefined) || (JinjaBoolArg(*rt, bound[1], false) && !rt->Truth(self));
  if (!missing) return self;
  return bound[0] != nullptr ? *bound[0] : rt->Text("", false);
}

JinjaValue Length(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  return JinjaValue::Int(rt->Length(self));
}

JinjaValue Format(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  return JinjaPercentFormat(rt, rt->Text(rt->Str(self)), args);
}

constexpr JinjaBuiltinName kFilters[] = {{"upper", Case<JinjaCase::kUpper>},
                                         {"lower", Case<JinjaCase::kLower>},
                                         {"title", Case<JinjaCase::kWords>},
                                         {"capitalize", Case<JinjaCase::kCapitalize>},
                                         {"trim", Trim},
                                         {"string", ToString},
                                         {"safe", ToString},
                                         {"replace", Replace},
                                         {"indent", Indent},
                                         {"escape", Escape},
                                         {"e", Escape},
                                         {"forceescape", Escape},
                                         {"wordcount", WordCount},
                                         {"tojson", ToJson},
                                         {"int", ToInt},
                                         {"float", ToFloat},
                                         {"round", Round},
                                         {"abs", Abs},
                                         {"default", Default},
                                         {"d", Default},
                                         {"length", Length},
                                         {"count", Length},
                                         {"format", Format}};

// One conversion of a % format: what follows the sign, up to and with its letter.
struct Conversion {
  std::string flags;
  int width = 0, precision = -1;
  char letter = 0;
};

Conversion ReadConversion(const std::string& format, size_t* at) {
  Conversion c;
  while (*at < format.size() && std::string_view("-+ 0#").find(format[*at]) != std::string_view::npos) {
    if (c.flags.size() < 5) c.flags += format[*at];
    ++*at;
  }
  const auto number = [&] {
    int n = 0;
    for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at)
      n = std::min(n * 10 + format[*at] - '0', 999);
    return n;
  };
  c.width = number();
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    c.precision = std::min(number(), 300);
  }
  if (*at < format.size()) c.letter = format[(*at)++];
  return c;
}

MarkedText Convert(JinjaRuntime* rt, const Conversion& c, const JinjaValue& value) {
  MarkedText out;
  if (c.letter == 's' || c.letter == 'r') {
    out = c.letter == 's' ? rt->Str(value) : JinjaRepr(rt, value);
    if (c.precision >= 0) {
      size_t end = 0;
      for (int i = 0; i < c.precision && end < out.size(); ++i) end += JinjaCharBytes(out.str(), end);
      out = out.Sub(0, end);
    }
    const size_t chars = JinjaCountChars(out.str());
    if (chars >= static_cast<size_t>(c.width)) return out;
    const std::string fill(c.width - chars, ' ');
    MarkedText padded(c.flags.find('-') == std::string::npos ? fill : "");
    padded.Append(out);
    if (c.flags.find('-') != std::string::npos) padded.Append(fill, false);
    return padded;
  }
  const bool real = std::string_view("fFeEgG").find(c.letter) != std::string_view::npos;
  const bool integer = std::string_view("diuxXo").find(c.letter) != std::string_view::npos;
  if ((!real && !integer) || c.letter == 0) {
    rt->Fail("a % format with a conversion that is not known");
  } else if (!value.IsNumber()) {
    rt->TypeError("a % format expected a number", value);
  }
  if (!rt->ok()) return out;
  char text[1400];
  std::string spec = "%" + c.flags + (c.width > 0 ? std::to_string(c.width) : "");
  if (c.precision >= 0) spec += "." + std::to_string(c.precision);
  if (real) {
    std::snprintf(text, sizeof(text), (spec + c.letter).c_str(), value.AsDouble());
  } else {
    const double whole = value.Is(Kind::kFloat) ? value.AsDouble() : 0;
    if (!(std::fabs(whole) < 9e18)) rt->Fail("a % format expected a number within 64 bits");
    const int64_t n = value.Is(Kind::kFloat) ? static_cast<int64_t>(rt->ok() ? whole : 0) : value.AsInt();
    std::snprintf(text, sizeof(text), (spec + "l" + (c.letter == 'u' ? 'd' : c.letter)).c_str(), n);
  }
  return MarkedText(text);
}

}  // namespace

JinjaBuiltin FindJinjaTextFilter(std::string_view name) { return FindJinjaName(kFilters, name); }

JinjaValue JinjaPercentFormat(JinjaRuntime* rt, const JinjaValue& format, const JinjaArgs& args) {
  const std::string& text = format.str();
  MarkedText out;
  size_t next = 0;
  for (size_t at = 0; at < text.size() && rt->ok();) {
    const size_t sign = std::min(text.find('%', at), text.size());
    out.AppendRange(format.text(), at, sign - at);
    at = sign + 1;
    if (sign == text.size()) break;
    if (at < text.size() && text[at] == '%') {
      out.AppendRange(format.text(), at++, 1);
      continue;
    }
    const Conversion conversion = ReadConversion(text, &at);
    if (next >= args.positional.size()) return rt->Fail("not enough arguments for format string");
    const MarkedText one = Convert(rt, conversion, args.positional[next++]);
    if (!rt->Fits(out.MemoryBytes() / 8 + one.MemoryBytes())) return {};
    out.Append(one);
  }
  if (next < args.positional.size()) return rt->Fail("not all arguments converted during string formatting");
  return rt->Text(std::move(out));
}

}  // namespace ballast
