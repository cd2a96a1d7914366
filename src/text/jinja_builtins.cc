#include "text/jinja_builtins.h"

#include <array>
#include <ctime>

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;

JinjaValue Range(JinjaRuntime* rt, const JinjaValue&, const JinjaArgs& args) {
  constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox has it
  const auto bound = rt->Bind("range", args, {"start", "stop", "step"});
  if (!rt->ok() || bound[0] == nullptr) return rt->Fail("range expected at least 1 argument, got 0");
  int64_t start = JinjaIntArg(rt, bound[0], 0), stop = start;
  if (bound[1] == nullptr) {
    start = 0;
  } else {
    stop = JinjaIntArg(rt, bound[1], 0);
  }
  const int64_t step = JinjaIntArg(rt, bound[2], 1);
  if (!rt->ok()) return {};
  if (step == 0) return rt->Fail("range() arg 3 must not be zero");
  const double count = (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  if (count > kMaxRange)
    return rt->Fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  JinjaValue::Items items;
  if (count > 0 && !rt->Fits(static_cast<size_t>(count) * sizeof(JinjaValue))) return {};
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    items.push_back(JinjaValue::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return rt->List(std::move(items));
}

// dict(other, a=1, ...) and namespace(other, a=1, ...).
JinjaValue MakeMapping(JinjaRuntime* rt, Kind kind, const JinjaArgs& args) {
  auto* rep = new JinjaDictRep(rt->meter());
  JinjaValue out = JinjaValue::Adopt(kind, rep);
  if (args.positional.size() > 1) return rt->Fail("dict expected at most 1 argument");
  if (!args.positional.empty()) {
    const JinjaValue& from = args.positional[0];
    if (from.Is(Kind::kDict)) {
      for (const auto& [key, value] : from.dict().entries) {
        if (!rt->Charge(1) || (key.Is(Kind::kString) && !rt->Work(key.str().size()))) return {};
        rep->Set(key, value);
      }
    } else {
      for (const JinjaValue& pair : rt->Iterate(from)) {
        const JinjaValue::Items two = rt->Iterate(pair);
        if (two.size() != 2) return rt->Fail("dict expected pairs of a key and a value");
        if (!rt->Charge(1) || (two[0].Is(Kind::kString) && !rt->Work(two[0].str().size()))) return {};
        rep->Set(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) rep->Set(rt->Text(std::string(name), false), value);
  return out;
}

JinjaValue DictGlobal(JinjaRuntime* rt, const JinjaValue&, const JinjaArgs& args) {
  return MakeMapping(rt, Kind::kDict, args);
}
JinjaValue NamespaceGlobal(JinjaRuntime* rt, const JinjaValue&, const JinjaArgs& args) {
  return MakeMapping(rt, Kind::kNamespace, args);
}

JinjaValue RaiseException(JinjaRuntime* rt, const JinjaValue&, const JinjaArgs& args) {
  const auto bound = rt->Bind("raise_exception", args, {"message"});
  if (!rt->ok()) return {};
  if (bound[0] == nullptr) return rt->Fail("raise_exception() expected a message");
  return rt->Raise(rt->Str(*bound[0]).str());
}

// strftime in English, from seconds of local time.
class TimeText {
 public:
  explicit TimeText(int64_t now) : now_(now) {
    const std::time_t seconds = static_cast<std::time_t>(now);
    gmtime_r(&seconds, &tm_);
  }

  std::string Format(std::string_view format) {
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out += format[i];
        continue;
      }
      const bool bare = format[i + 1] == '-' && i + 2 < format.size();
      i += bare ? 2 : 1;
      out += Field(format[i], bare);
    }
    return out;
  }

 private:
  static std::string Pad(int value, int width, char fill, bool bare) {
    std::string digits = std::to_string(value);
    if (!bare && digits.size() < static_cast<size_t>(width)) digits.insert(0, width - digits.size(), fill);
    return digits;
  }

  // Fields that are a number: value, width, what fills it.
  std::string Field(char c, bool bare) {
    const int hour12 = tm_.tm_hour % 12 == 0 ? 12 : tm_.tm_hour % 12;
    const struct {
      char letter;
      int value, width;
    } numbers[] = {{'d', tm_.tm_mday, 2},      {'e', tm_.tm_mday, 2},     {'H', tm_.tm_hour, 2},
                   {'I', hour12, 2},           {'j', tm_.tm_yday + 1, 3}, {'m', tm_.tm_mon + 1, 2},
                   {'M', tm_.tm_min, 2},       {'S', tm_.tm_sec, 2},      {'w', tm_.tm_wday, 1},
                   {'y', tm_.tm_year % 100, 2}};
    for (const auto& number : numbers) {
      if (number.letter == c) return Pad(number.value, number.width, c == 'e' ? ' ' : '0', bare);
    }
    return Word(c);
  }

  std::string Word(char c) {
    static constexpr std::array<std::string_view, 12> kMonths = {
        "January", "February", "March",     "April",   "May",      "June",
        "July",    "August",   "September", "October", "November", "December"};
    static constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                              "Thursday", "Friday", "Saturday"};
    static constexpr std::pair<char, std::string_view> kLonger[] = {{'F', "%Y-%m-%d"},
                                                                    {'T', "%H:%M:%S"},
                                                                    {'X', "%H:%M:%S"},
                                                                    {'R', "%H:%M"},
                                                                    {'D', "%m/%d/%y"},
                                                                    {'x', "%m/%d/%y"},
                                                                    {'c', "%a %b %e %H:%M:%S %Y"}};
    for (const auto& [letter, format] : kLonger) {
      if (letter == c) return Format(format);
    }
    const std::string_view month = kMonths[tm_.tm_mon], day = kDays[tm_.tm_wday];
    if (c == 'a' || c == 'A') return std::string(c == 'A' ? day : day.substr(0, 3));
    if (c == 'B') return std::string(month);
    if (c == 'b' || c == 'h') return std::string(month.substr(0, 3));
    if (c == 'p') return tm_.tm_hour < 12 ? "AM" : "PM";
    if (c == 'Y') return std::to_string(tm_.tm_year + 1900);
    if (c == 's') return std::to_string(now_);
    if (c == 'Z' || c == 'z') return "";  // datetime.now() names no zone
    if (c == 'n' || c == 't') return c == 'n' ? "\n" : "\t";
    return c == '%' ? "%" : std::string("%") + c;
  }

  int64_t now_;
  std::tm tm_{};
};

JinjaValue StrftimeNow(JinjaRuntime* rt, const JinjaValue&, const JinjaArgs& args) {
  const auto bound = rt->Bind("strftime_now", args, {"format"});
  const std::string format = JinjaTextArg(rt, bound[0], "");
  if (!rt->ok() || !rt->Fits(format.size() * 32)) return {};
  return rt->Text(TimeText(rt->limits().now).Format(format),
                  bound[0] != nullptr && bound[0]->text().HasData());
}

constexpr JinjaBuiltinName kGlobals[] = {{"range", Range},
                                         {"dict", DictGlobal},
                                         {"namespace", NamespaceGlobal},
                                         {"raise_exception", RaiseException},
                                         {"strftime_now", StrftimeNow}};

}  // namespace

JinjaBuiltin FindJinjaGlobal(std::string_view name) { return FindJinjaName(kGlobals, name); }

JinjaValue ApplyJinjaFilter(JinjaRuntime* rt, std::string_view name, const JinjaValue& value,
                            const JinjaArgs& args) {
  JinjaBuiltin filter = FindJinjaTextFilter(name);
  if (filter == nullptr) filter = FindJinjaListFilter(name);
  if (filter == nullptr) return rt->Refuse("No filter named " + JinjaQuote(name) + ".");
  if (!rt->Charge(1)) return {};
  return filter(rt, value, args);
}

int64_t JinjaIntArg(JinjaRuntime* rt, const JinjaValue* arg, int64_t missing) {
  if (arg == nullptr) return missing;
  if (arg->Is(Kind::kInt) || arg->Is(Kind::kBool)) return arg->AsInt();
  rt->TypeError("expected an integer", *arg);
  return missing;
}

std::string JinjaTextArg(JinjaRuntime* rt, const JinjaValue* arg, std::string_view missing) {
  if (arg == nullptr) return std::string(missing);
  if (arg->Is(Kind::kString)) return rt->Fits(arg->str().size()) ? arg->str() : "";
  rt->TypeError("expected a string", *arg);
  return std::string(missing);
}

bool JinjaBoolArg(const JinjaRuntime& rt, const JinjaValue* arg, bool missing) {
  return arg == nullptr ? missing : rt.Truth(*arg);
}

}  // namespace ballast
