// Methods of strings, lists, dicts and loops.
#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_strings.h"

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;
using Items = JinjaValue::Items;

template <bool kLeft, bool kRight>
JinjaValue Strip(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("strip", args, {"chars"});
  const bool chars = bound[0] != nullptr && !bound[0]->Is(Kind::kNone);
  const std::string set = chars ? JinjaTextArg(rt, bound[0], "") : "";
  if (!rt->Fits(self.text().MemoryBytes()) || !rt->Work(self.str().size() * (set.size() + 8))) return {};
  return rt->Text(
      JinjaStrip(self.text(), chars ? std::optional<std::string_view>(set) : std::nullopt, kLeft, kRight));
}

JinjaValue ListOfTexts(JinjaRuntime* rt, std::vector<MarkedText> parts) {
  Items items;
  if (!rt->Fits(parts.size() * sizeof(JinjaValue))) return {};
  for (MarkedText& part : parts) {
    items.push_back(rt->Text(std::move(part)));
    if (!rt->Charge(1)) return {};
  }
  return rt->List(std::move(items));
}

template <bool kFromRight>
JinjaValue Split(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("split", args, {"sep", "maxsplit"});
  const bool spaces = bound[0] == nullptr || bound[0]->Is(Kind::kNone);
  const std::string separator = spaces ? "" : JinjaTextArg(rt, bound[0], "");
  const int64_t limit = JinjaIntArg(rt, bound[1], -1);
  if (!rt->ok()) return {};
  if (!spaces && separator.empty()) return rt->Fail("empty separator");
  if (!rt->CharWork(self.str().size())) return {};
  // Counted before it is made: each part is an object of its own.
  const std::string& text = self.str();
  size_t parts =
      spaces ? static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return c <= ' '; }))
             : JinjaCount(text, separator, -1);
  if (limit >= 0) parts = std::min(parts, static_cast<size_t>(limit));
  if (!rt->Fits(text.size() + (parts + 1) * (2 * sizeof(MarkedText) + sizeof(JinjaStringRep)))) return {};
  if (kFromRight && !rt->Work(text.size() * std::min<size_t>(separator.size(), 1 << 20))) return {};
  return ListOfTexts(
      rt, JinjaSplit(self.text(), spaces ? std::nullopt : std::optional<std::string_view>(separator), limit,
                     kFromRight));
}

JinjaValue SplitLines(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("splitlines", args, {"keepends"});
  if (!rt->CharWork(self.str().size())) return {};
  const auto lines = static_cast<size_t>(
      std::count_if(self.str().begin(), self.str().end(), [](char c) { return c < ' '; }));
  if (!rt->Fits(self.str().size() * 2 + lines * (2 * sizeof(MarkedText) + sizeof(JinjaStringRep)))) return {};
  return ListOfTexts(rt, JinjaSplitLines(self.text(), JinjaBoolArg(*rt, bound[0], false)));
}

template <bool kAtStart>
JinjaValue Affix(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind(kAtStart ? "startswith" : "endswith", args, {"affix"});
  if (bound[0] == nullptr) return rt->Fail("expected what the string begins or ends with");
  const Items any = bound[0]->Is(Kind::kList) ? bound[0]->items() : Items{*bound[0]};
  bool found = false;
  for (const JinjaValue& one : any) {
    const std::string affix = JinjaTextArg(rt, &one, "");
    found = found || (kAtStart ? self.str().starts_with(affix) : self.str().ends_with(affix));
    if (!rt->Charge(1)) break;
  }
  return JinjaValue::Bool(found);
}

template <bool kAtStart>
JinjaValue RemoveAffix(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind(kAtStart ? "removeprefix" : "removesuffix", args, {"affix"});
  const std::string affix = JinjaTextArg(rt, bound[0], "");
  if (!rt->Fits(self.text().MemoryBytes())) return {};
  const size_t rest = self.str().size() - std::min(affix.size(), self.str().size());
  if (kAtStart && self.str().starts_with(affix)) return rt->Text(self.text().Sub(affix.size(), rest));
  if (!kAtStart && self.str().ends_with(affix)) return rt->Text(self.text().Sub(0, rest));
  return self;
}

template <JinjaCase kHow>
JinjaValue Case(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  if (!rt->Fits(self.text().MemoryBytes()) || !rt->CharWork(self.str().size())) return {};
  return rt->Text(JinjaChangeCase(self.text(), kHow));
}

JinjaValue Replace(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  for (const JinjaValue& arg : args.positional) {
    if (!arg.Is(Kind::kString) && &arg - args.positional.data() < 2)
      return rt->TypeError("replace() argument must be str", arg);
  }
  return ApplyJinjaFilter(rt, "replace", self, args);
}

JinjaValue Join(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("join", args, {"iterable"});
  if (bound[0] == nullptr) return rt->Fail("join() takes exactly one argument");
  const Items items = rt->Iterate(*bound[0]);
  for (const JinjaValue& item : items) {
    if (!item.Is(Kind::kString)) return rt->TypeError("sequence item: expected str instance", item);
  }
  JinjaArgs between;
  between.positional.push_back(self);
  return ApplyJinjaFilter(rt, "join", rt->List(items), between);
}

enum class Search { kFind, kRightFind, kIndex, kCount };
template <Search kHow>
JinjaValue Find(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("find", args, {"sub"});
  const std::string wanted = JinjaTextArg(rt, bound[0], "");
  const std::string& text = self.str();
  if (!rt->CharWork(text.size())) return {};
  if (kHow == Search::kCount) {
    return JinjaValue::Int(static_cast<int64_t>(JinjaCount(text, wanted, -1)));
  }
  if (kHow == Search::kRightFind && !rt->Work(text.size() * std::min<size_t>(wanted.size(), 1 << 20)))
    return {};
  const size_t at = kHow == Search::kRightFind ? text.rfind(wanted) : JinjaFind(text, wanted);
  if (at != std::string::npos) {
    return JinjaValue::Int(static_cast<int64_t>(JinjaCountChars(std::string_view(text).substr(0, at))));
  }
  return kHow == Search::kIndex ? rt->Fail("substring not found") : JinjaValue::Int(-1);
}

enum class Kinds { kDigit, kAlpha, kAlnum, kSpace };
template <Kinds kHow>
JinjaValue Every(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  const std::string& text = self.str();
  if (!rt->CharWork(text.size())) return {};
  for (size_t at = 0, bytes = 1; at < text.size(); at += bytes) {
    const char32_t c = JinjaDecode(text, at, &bytes);
    const bool letter = kHow != Kinds::kDigit && JinjaIsLetter(c);
    const bool number = kHow != Kinds::kAlpha && JinjaIsNumber(c);
    const bool fits = kHow == Kinds::kSpace ? JinjaIsSpace(c) : letter || number;
    if (!fits) return JinjaValue::Bool(false);
  }
  return JinjaValue::Bool(!text.empty());
}

// "{} {0} {name}".format(...): fields without conversions or specifications.
JinjaValue Format(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const std::string& text = self.str();
  MarkedText out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.AppendRange(self.text(), at, brace - at);
    at = brace + 1;
    if (brace == text.size()) break;
    if (at < text.size() && text[at] == text[brace]) {
      out.AppendRange(self.text(), at++, 1);
      continue;
    }
    const size_t end = text.find('}', at);
    if (text[brace] == '}' || end == std::string::npos)
      return rt->Fail("a format string with a single brace");
    const std::string field = text.substr(at, end - at);
    at = end + 1;
    const JinjaValue* value = nullptr;
    if (field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6) {
      const size_t i = field.empty() ? next++ : std::stoul(field);
      if (i < args.positional.size()) value = &args.positional[i];
    }
    for (const auto& [name, named] : args.named) {
      if (name == field) value = &named;
    }
    if (value == nullptr) return rt->Fail("a format field that names no argument: " + JinjaQuote(field));
    const MarkedText one = rt->Str(*value);
    if (!rt->Fits(out.MemoryBytes() / 8 + one.MemoryBytes())) return {};
    out.Append(one);
  }
  return rt->Text(std::move(out));
}

JinjaValue Get(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("get", args, {"key", "default"});
  if (bound[0] == nullptr) return rt->Fail("get expected at least 1 argument, got 0");
  if (const JinjaValue* found = self.dict().Find(*bound[0])) return *found;
  return bound[1] != nullptr ? *bound[1] : JinjaValue::None();
}

template <bool kKeys, bool kValues>
JinjaValue View(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  Items out;
  if (!rt->Fits(self.dict().entries.size() * sizeof(JinjaValue))) return {};
  for (const auto& [key, value] : self.dict().entries) {
    out.push_back(kKeys && kValues ? rt->Tuple({key, value}) : kKeys ? key : value);
    if (!rt->Charge(1)) break;
  }
  return rt->List(std::move(out));
}

JinjaValue Copy(JinjaRuntime*, const JinjaValue& self, const JinjaArgs&) { return self; }

// Beyond jinja2's immutable sandbox, for templates written for other engines: a list the template itself
// made.
JinjaValue Append(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  auto* rep = static_cast<JinjaListRep*>(self.rep());
  const auto bound = rt->Bind("append", args, {"object"});
  if (bound[0] == nullptr) return rt->Fail("append() takes exactly one argument");
  if (rep->flavor != JinjaListRep::Flavor::kList) return rt->Fail("only a list can be appended to");
  if (rep->meter == nullptr) return rt->Fail("a list that was given to the template cannot be changed");
  if (!rt->Fits(2 * sizeof(JinjaValue))) return {};
  rep->Charge(2 * sizeof(JinjaValue));
  rep->items.push_back(*bound[0]);
  return JinjaValue::None();
}

JinjaValue Index(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("index", args, {"value"});
  for (size_t i = 0; bound[0] != nullptr && i < self.items().size() && rt->Charge(1); ++i) {
    if (rt->Equals(self.items()[i], *bound[0])) return JinjaValue::Int(static_cast<int64_t>(i));
  }
  return rt->Fail("the value is not in the list");
}

JinjaValue Count(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("count", args, {"value"});
  int64_t count = 0;
  for (size_t i = 0; bound[0] != nullptr && i < self.items().size() && rt->Charge(1); ++i) {
    count += rt->Equals(self.items()[i], *bound[0]) ? 1 : 0;
  }
  return JinjaValue::Int(count);
}

JinjaValue Cycle(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  if (args.positional.empty()) return rt->Fail("no items for cycling given");
  return args.positional[static_cast<JinjaLoopRep*>(self.rep())->index % args.positional.size()];
}

JinjaValue Changed(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  auto* loop = static_cast<JinjaLoopRep*>(self.rep());
  const JinjaValue now = rt->Tuple(args.positional);
  if (loop->changed.Is(Kind::kList) && rt->Equals(loop->changed, now)) return JinjaValue::Bool(false);
  loop->changed = now;
  return JinjaValue::Bool(true);
}

constexpr JinjaBuiltinName kStrings[] = {{"strip", Strip<true, true>},
                                         {"lstrip", Strip<true, false>},
                                         {"rstrip", Strip<false, true>},
                                         {"split", Split<false>},
                                         {"rsplit", Split<true>},
                                         {"splitlines", SplitLines},
                                         {"startswith", Affix<true>},
                                         {"endswith", Affix<false>},
                                         {"removeprefix", RemoveAffix<true>},
                                         {"removesuffix", RemoveAffix<false>},
                                         {"upper", Case<JinjaCase::kUpper>},
                                         {"lower", Case<JinjaCase::kLower>},
                                         {"title", Case<JinjaCase::kTitle>},
                                         {"capitalize", Case<JinjaCase::kCapitalize>},
                                         {"swapcase", Case<JinjaCase::kSwap>},
                                         {"replace", Replace},
                                         {"join", Join},
                                         {"find", Find<Search::kFind>},
                                         {"rfind", Find<Search::kRightFind>},
                                         {"index", Find<Search::kIndex>},
                                         {"count", Find<Search::kCount>},
                                         {"format", Format},
                                         {"isdigit", Every<Kinds::kDigit>},
                                         {"isalpha", Every<Kinds::kAlpha>},
                                         {"isalnum", Every<Kinds::kAlnum>},
                                         {"isspace", Every<Kinds::kSpace>}};
constexpr JinjaBuiltinName kDicts[] = {{"get", Get},
                                       {"items", View<true, true>},
                                       {"keys", View<true, false>},
                                       {"values", View<false, true>},
                                       {"copy", Copy}};
constexpr JinjaBuiltinName kLists[] = {{"append", Append}, {"index", Index}, {"count", Count}};
constexpr JinjaBuiltinName kLoops[] = {{"cycle", Cycle}, {"changed", Changed}};

}  // namespace

JinjaBuiltin FindJinjaMethod(const JinjaValue& subject, std::string_view name) {
  switch (subject.kind()) {
    case Kind::kString:
      return FindJinjaName(kStrings, name);
    case Kind::kDict:
      return FindJinjaName(kDicts, name);
    case Kind::kList:
      return FindJinjaName(kLists, name);
    case Kind::kLoop:
      return FindJinjaName(kLoops, name);
    default:
      return nullptr;
  }
}

}  // namespace ballast
