// Filters that work on lists and dicts.
#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_strings.h"

namespace ballast {
namespace {

using Kind = JinjaValue::Kind;
using Flavor = JinjaListRep::Flavor;
using Items = JinjaValue::Items;

// "a.b.0" of an item, as map(attribute=...) means it.
JinjaValue Path(JinjaRuntime* rt, const JinjaValue& item, const JinjaValue& path) {
  if (path.Is(Kind::kInt)) return rt->Item(item, path);
  if (!path.Is(Kind::kString)) return rt->TypeError("expected the name of an attribute", path);
  JinjaValue at = item;
  const std::string& names = path.str();
  for (size_t from = 0; from <= names.size() && rt->ok();) {
    const size_t dot = std::min(names.find('.', from), names.size());
    const std::string name = names.substr(from, dot - from);
    const bool digits =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    at = rt->Item(at, digits ? JinjaValue::Int(std::stoll(name)) : rt->Text(name, false));
    from = dot + 1;
  }
  return at;
}

// What sort, unique, min and max compare by: the attribute, without case unless asked.
JinjaValue SortKey(JinjaRuntime* rt, const JinjaValue& item, const JinjaValue* attribute,
                   bool case_sensitive) {
  const bool named = attribute != nullptr && !attribute->Is(Kind::kNone);
  JinjaValue key = named ? Path(rt, item, *attribute) : item;
  if (!key.Is(Kind::kString) || case_sensitive || !rt->CharWork(key.str().size())) return key;
  return rt->Text(JinjaChangeCase(key.text(), JinjaCase::kLower));
}

// The order in which `keys` stand sorted. A merge sort over whatever the comparison answers.
std::vector<size_t> SortedOrder(JinjaRuntime* rt, const Items& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!rt->ok()) return false;
    return reverse ? rt->Order(keys[b], keys[a]) < 0 : rt->Order(keys[a], keys[b]) < 0;
  });
  return order;
}

JinjaValue ToList(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  return rt->List(rt->Iterate(self));
}

JinjaValue First(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  if (self.Is(Kind::kString) && !self.str().empty()) return rt->Item(self, JinjaValue::Int(0));
  const Items items = rt->Iterate(self);
  if (items.empty()) return rt->Undefined("No first item, sequence was empty.");
  return items.front();
}

JinjaValue Last(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  if (self.Is(Kind::kString) && !self.str().empty()) return rt->Item(self, JinjaValue::Int(-1));
  const Items items = rt->Iterate(self);
  if (items.empty()) return rt->Undefined("No last item, sequence was empty.");
  return items.back();
}

JinjaValue Join(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("join", args, {"d", "attribute"});
  const MarkedText between = bound[0] != nullptr ? rt->Str(*bound[0]) : MarkedText();
  const bool named = bound[1] != nullptr && !bound[1]->Is(Kind::kNone);
  MarkedText out;
  bool first = true;
  size_t counted = 0;
  for (const JinjaValue& item : rt->Iterate(self)) {
    const MarkedText one = rt->Str(named ? Path(rt, item, *bound[1]) : item);
    if (!rt->Charge(1) || !rt->Fits(one.MemoryBytes() + between.MemoryBytes())) break;
    if (!first) out.Append(between);
    first = false;
    out.Append(one);
    rt->Buffered(static_cast<int64_t>(out.MemoryBytes() - counted));
    counted = out.MemoryBytes();
  }
  rt->Buffered(-static_cast<int64_t>(counted));
  return rt->Text(std::move(out));
}

JinjaValue Reverse(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  if (self.Is(Kind::kString)) {
    return rt->Slice(self, {JinjaValue::None(), JinjaValue::None(), JinjaValue::Int(-1)});
  }
  Items items = rt->Iterate(self);
  std::reverse(items.begin(), items.end());
  return rt->Generator(std::move(items));
}

JinjaValue Sort(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  const Items items = rt->Iterate(self);
  Items keys, out;
  for (const JinjaValue& item : items) {
    keys.push_back(SortKey(rt, item, bound[2], JinjaBoolArg(*rt, bound[1], false)));
    if (!rt->Charge(1)) return {};
  }
  for (const size_t i : SortedOrder(rt, keys, JinjaBoolArg(*rt, bound[0], false))) out.push_back(items[i]);
  return rt->List(std::move(out));
}

JinjaValue DictSort(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = JinjaTextArg(rt, bound[1], "key");
  if (by != "key" && by != "value") return rt->Fail("You can only sort by either \"key\" or \"value\"");
  if (!self.Is(Kind::kDict)) return rt->TypeError("dictsort expected a dict", self);
  Items keys, out;
  const auto& entries = self.dict().entries;
  for (const auto& entry : entries) {
    const JinjaValue& key = by == "key" ? entry.first : entry.second;
    keys.push_back(SortKey(rt, key, nullptr, JinjaBoolArg(*rt, bound[0], false)));
    if (!rt->Charge(1)) return {};
  }
  for (const size_t i : SortedOrder(rt, keys, JinjaBoolArg(*rt, bound[2], false))) {
    out.push_back(rt->Tuple({entries[i].first, entries[i].second}));
  }
  return rt->List(std::move(out));
}

JinjaValue DictItems(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs&) {
  Items out;
  if (self.Is(Kind::kUndefined)) return rt->Generator({});
  if (!self.Is(Kind::kDict)) return rt->Fail("Can only get item pairs from a mapping.");
  for (const auto& [key, value] : self.dict().entries) {
    out.push_back(rt->Tuple({key, value}));
    if (!rt->Charge(1)) break;
  }
  return rt->Generator(std::move(out));
}

JinjaValue Unique(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("unique", args, {"case_sensitive", "attribute"});
  auto* seen = new JinjaDictRep(rt->meter());
  const JinjaValue hold = JinjaValue::Adopt(Kind::kDict, seen);
  Items out;
  for (const JinjaValue& item : rt->Iterate(self)) {
    if (!rt->Charge(1)) return {};
    const JinjaValue key = SortKey(rt, item, bound[1], JinjaBoolArg(*rt, bound[0], false));
    if (key.Is(Kind::kDict)) return rt->Fail("unhashable type: 'dict'");
    const size_t before = seen->entries.size();
    if (!rt->Charge(key.Is(Kind::kString) || key.IsNumber() ? 1 : static_cast<int64_t>(before))) return {};
    seen->Set(key, JinjaValue::None());
    if (seen->entries.size() > before) out.push_back(item);
  }
  return rt->Generator(std::move(out));
}

template <int kSign>
JinjaValue Extreme(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind(kSign < 0 ? "min" : "max", args, {"case_sensitive", "attribute"});
  JinjaValue best, best_key;
  bool any = false;
  for (const JinjaValue& item : rt->Iterate(self)) {
    const JinjaValue key = SortKey(rt, item, bound[1], JinjaBoolArg(*rt, bound[0], false));
    if (!rt->Charge(1)) return {};
    if (any && rt->Order(key, best_key) != kSign) continue;
    any = true;
    best = item;
    best_key = key;
  }
  return any ? best : rt->Undefined("No aggregated item, sequence was empty.");
}

JinjaValue Sum(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("sum", args, {"attribute", "start"});
  JinjaValue total = bound[1] != nullptr ? *bound[1] : JinjaValue::Int(0);
  const bool named = bound[0] != nullptr && !bound[0]->Is(Kind::kNone);
  for (const JinjaValue& item : rt->Iterate(self)) {
    if (!rt->Charge(1)) return {};
    total = rt->Add(total, named ? Path(rt, item, *bound[0]) : item);
  }
  return total;
}

// Arguments after the first `skip`.
JinjaArgs Rest(const JinjaArgs& args, size_t skip) {
  JinjaArgs rest;
  rest.positional.assign(args.positional.begin() + skip, args.positional.end());
  rest.named = args.named;
  return rest;
}

JinjaValue Map(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  Items out;
  if (args.positional.empty()) {
    const auto bound = rt->Bind("map", args, {"attribute", "default"});
    if (bound[0] == nullptr) return rt->Fail("map requires a filter argument");
    for (const JinjaValue& item : rt->Iterate(self)) {
      if (!rt->Charge(1)) return {};
      JinjaValue value = Path(rt, item, *bound[0]);
      if (value.Is(Kind::kUndefined) && bound[1] != nullptr) value = *bound[1];
      out.push_back(std::move(value));
    }
    return rt->Generator(std::move(out));
  }
  const std::string name = JinjaTextArg(rt, &args.positional[0], "");
  const JinjaArgs rest = Rest(args, 1);
  for (const JinjaValue& item : rt->Iterate(self)) {
    if (!rt->Charge(1)) return {};
    out.push_back(ApplyJinjaFilter(rt, name, item, rest));
  }
  return rt->Generator(std::move(out));
}

template <bool kWanted, bool kByAttribute>
JinjaValue Select(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const size_t first = kByAttribute ? 1 : 0;
  if (args.positional.size() < first)
    return rt->Fail("selectattr and rejectattr need the name of an attribute");
  const bool tested = args.positional.size() > first;
  const std::string test = tested ? JinjaTextArg(rt, &args.positional[first], "") : "";
  const JinjaArgs rest = tested ? Rest(args, first + 1) : JinjaArgs();
  Items out;
  for (const JinjaValue& item : rt->Iterate(self)) {
    if (!rt->Charge(1)) return {};
    const JinjaValue value = kByAttribute ? Path(rt, item, args.positional[0]) : item;
    const bool holds = tested ? ApplyJinjaTest(rt, test, value, rest) : rt->Truth(value);
    if (holds == kWanted) out.push_back(item);
  }
  return rt->Generator(std::move(out));
}

JinjaValue Batch(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("batch", args, {"linecount", "fill_with"});
  const int64_t size = JinjaIntArg(rt, bound[0], 0);
  if (size < 1 || size > 100'000) return rt->Fail("batch expected a size from 1 to 100000");
  const Items items = rt->Iterate(self);
  Items out;
  for (size_t at = 0; at < items.size() && rt->Charge(1); at += size) {
    const size_t end = std::min(items.size(), at + static_cast<size_t>(size));
    Items batch(items.begin() + at, items.begin() + end);
    if (bound[1] != nullptr && !bound[1]->Is(Kind::kNone)) batch.resize(size, *bound[1]);
    out.push_back(rt->List(std::move(batch)));
  }
  return rt->Generator(std::move(out));
}

JinjaValue Attr(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args) {
  const auto bound = rt->Bind("attr", args, {"name"});
  const std::string name = JinjaTextArg(rt, bound[0], "");
  // As in jinja2, the keys of a dict are no attributes.
  if (self.Is(Kind::kDict) && FindJinjaMethod(self, name) == nullptr) {
    return rt->Undefined("'dict object' has no attribute " + JinjaQuote(name));
  }
  return rt->ok() ? rt->Attribute(self, name) : JinjaValue();
}

constexpr JinjaBuiltinName kFilters[] = {{"list", ToList},
                                         {"first", First},
                                         {"last", Last},
                                         {"join", Join},
                                         {"reverse", Reverse},
                                         {"sort", Sort},
                                         {"dictsort", DictSort},
                                         {"items", DictItems},
                                         {"unique", Unique},
                                         {"min", Extreme<-1>},
                                         {"max", Extreme<1>},
                                         {"sum", Sum},
                                         {"map", Map},
                                         {"select", Select<true, false>},
                                         {"reject", Select<false, false>},
                                         {"selectattr", Select<true, true>},
                                         {"rejectattr", Select<false, true>},
                                         {"batch", Batch},
                                         {"attr", Attr}};

}  // namespace

JinjaBuiltin FindJinjaListFilter(std::string_view name) { return FindJinjaName(kFilters, name); }

}  // namespace ballast
