// The tests: {{ x is name }}.
#include "text/jinja_builtins.h"
#include "text/jinja_strings.h"

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;

const JinjaValue* Only(JinjaRuntime* rt, const JinjaArgs& args) {
  if (args.positional.size() == 1 && args.named.empty()) return &args.positional[0];
  rt->Fail("the test takes one argument");
  return nullptr;
}

template <Kind kKind>
bool IsKind(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) {
  return v.Is(kKind);
}
bool Defined(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) { return !v.Is(Kind::kUndefined); }
bool IsNumber(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) { return v.IsNumber(); }
bool Integer(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) { return v.Is(Kind::kInt); }
template <bool kWanted>
bool IsBool(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) {
  return v.Is(Kind::kBool) && v.AsBool() == kWanted;
}
bool Sequence(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) {
  if (v.Is(Kind::kList))
    return static_cast<JinjaListRep*>(v.rep())->flavor != JinjaListRep::Flavor::kGenerator;
  return v.Is(Kind::kString) || v.Is(Kind::kDict) || v.Is(Kind::kUndefined);
}
bool Iterable(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) {
  return v.Is(Kind::kList) || v.Is(Kind::kString) || v.Is(Kind::kDict) || v.Is(Kind::kUndefined) ||
         v.Is(Kind::kLoop);
}
bool Callable(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) {
  return v.Is(Kind::kFunction) || v.Is(Kind::kUndefined);
}
bool In(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) {
  const JinjaValue* other = Only(rt, args);
  return other != nullptr && rt->Contains(*other, v);
}
bool Equal(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) {
  const JinjaValue* other = Only(rt, args);
  return other != nullptr && rt->Equals(v, *other);
}
bool NotEqual(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) { return !Equal(rt, v, args); }
template <int kLow, int kHigh>
bool Ordered(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) {
  const JinjaValue* other = Only(rt, args);
  if (other == nullptr) return false;
  const int order = rt->Order(v, *other);
  return rt->ok() && order >= kLow && order <= kHigh;
}
bool SameAs(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) {
  const JinjaValue* other = Only(rt, args);
  if (other == nullptr || other->kind() != v.kind()) return false;
  return v.rep() != nullptr ? v.rep() == other->rep() : rt->Equals(v, *other);
}

bool Divides(JinjaRuntime* rt, const JinjaValue& v, int64_t by, int64_t rest) {
  const JinjaValue left = rt->Binary("%", v, JinjaValue::Int(by));
  return rt->ok() && rt->Equals(left, JinjaValue::Int(rest));
}
bool Even(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs&) { return Divides(rt, v, 2, 0); }
bool Odd(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs&) { return Divides(rt, v, 2, 1); }
bool DivisibleBy(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) {
  const JinjaValue* by = Only(rt, args);
  return by != nullptr && Divides(rt, v, JinjaIntArg(rt, by, 1), 0);
}

template <JinjaCase kHow>
bool HasCase(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs&) {
  const MarkedText text = rt->Str(v);
  if (!rt->CharWork(2 * text.size())) return false;
  return JinjaChangeCase(text, kHow).str() == text.str() &&
         JinjaChangeCase(text, JinjaCase::kSwap).str() != text.str();
}
// Tests of minja, llama.cpp's engine, that templates written for it use.
template <bool kAtStart>
bool Affix(JinjaRuntime* rt, const JinjaValue& v, const JinjaArgs& args) {
  const JinjaValue* affix = Only(rt, args);
  if (affix == nullptr || !v.Is(Kind::kString)) return false;
  const std::string text = JinjaTextArg(rt, affix, "");
  return kAtStart ? v.str().starts_with(text) : v.str().ends_with(text);
}

bool IsFilter(JinjaRuntime*, const JinjaValue& v, const JinjaArgs&) {
  return v.Is(Kind::kString) &&
         (FindJinjaTextFilter(v.str()) != nullptr || FindJinjaListFilter(v.str()) != nullptr);
}

struct Entry {
  std::string_view name;
  JinjaTest run;
};

constexpr Entry kTests[] = {{"defined", Defined},
                            {"undefined", IsKind<Kind::kUndefined>},
                            {"none", IsKind<Kind::kNone>},
                            {"string", IsKind<Kind::kString>},
                            {"number", IsNumber},
                            {"integer", Integer},
                            {"float", IsKind<Kind::kFloat>},
                            {"boolean", IsKind<Kind::kBool>},
                            {"true", IsBool<true>},
                            {"false", IsBool<false>},
                            {"mapping", IsKind<Kind::kDict>},
                            {"sequence", Sequence},
                            {"iterable", Iterable},
                            {"callable", Callable},
                            {"in", In},
                            {"eq", Equal},
                            {"==", Equal},
                            {"equalto", Equal},
                            {"ne", NotEqual},
                            {"!=", NotEqual},
                            {"lt", Ordered<-1, -1>},
                            {"<", Ordered<-1, -1>},
                            {"lessthan", Ordered<-1, -1>},
                            {"le", Ordered<-1, 0>},
                            {"<=", Ordered<-1, 0>},
                            {"gt", Ordered<1, 1>},
                            {">", Ordered<1, 1>},
                            {"greaterthan", Ordered<1, 1>},
                            {"ge", Ordered<0, 1>},
                            {">=", Ordered<0, 1>},
                            {"sameas", SameAs},
                            {"even", Even},
                            {"odd", Odd},
                            {"divisibleby", DivisibleBy},
                            {"upper", HasCase<JinjaCase::kUpper>},
                            {"lower", HasCase<JinjaCase::kLower>},
                            {"startingwith", Affix<true>},
                            {"endingwith", Affix<false>},
                            {"filter", IsFilter}};

}  // namespace

bool ApplyJinjaTest(JinjaRuntime* rt, std::string_view name, const JinjaValue& value, const JinjaArgs& args) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return rt->Charge(1) && entry.run(rt, value, args);
  }
  rt->Refuse("No test named " + JinjaQuote(name) + ".");
  return false;
}

}  // namespace ballast
