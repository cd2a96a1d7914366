#include "text/jinja_value.h"

#include <algorithm>
#include <functional>

#include "base/status.h"

namespace ballast {
namespace {

constexpr size_t kIndexFrom = 12;    // entries from which a dict is indexed
constexpr int kDirectDestroys = 32;  // nesting that is released by recursion
constexpr int kEqualsDepth = 200;
constexpr int64_t kKeyWork = 1000;  // comparisons inside one key (a tuple of tuples)

// Releases `rep`; nested releases beyond a depth wait until the outermost one takes them up.
void Destroy(JinjaRep* rep) {
  static thread_local int depth = 0;
  static thread_local std::vector<JinjaRep*> waiting;
  if (depth >= kDirectDestroys) {
    waiting.push_back(rep);
    return;
  }
  ++depth;
  delete rep;
  while (depth == 1 && !waiting.empty()) {
    JinjaRep* last = waiting.back();
    waiting.pop_back();
    delete last;
  }
  --depth;
}

bool AllAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t HashText(std::string_view text) { return std::hash<std::string_view>()(text); }

size_t HashOf(const JinjaValue& key) {
  if (key.Is(JinjaValue::Kind::kString)) return HashText(key.str());
  if (key.IsNumber()) return std::hash<double>()(key.AsDouble());
  return 1;
}

}  // namespace

JinjaRep::JinjaRep(JinjaMeter* m) : meter(m) {
  if (meter == nullptr) return;
  Charge(sizeof(JinjaStringRep));
  next = meter->head_;
  if (next != nullptr) next->prev = this;
  meter->head_ = this;
}

JinjaRep::~JinjaRep() {
  if (meter == nullptr) return;
  meter->live_ -= charged;
  (prev != nullptr ? prev->next : meter->head_) = next;
  if (next != nullptr) next->prev = prev;
}

void JinjaRep::Charge(size_t bytes) {
  if (meter == nullptr) return;
  charged += bytes;
  meter->live_ += bytes;
}

void JinjaMeter::Clear() {
  // Emptying one may free its neighbours in the list, so each is held while it is emptied, and one that stays
  // alive (held by values outside) is taken out of the list.
  while (head_ != nullptr) {
    JinjaRep* rep = head_;
    rep->refs.fetch_add(1, std::memory_order_relaxed);
    const JinjaValue hold = JinjaValue::Adopt(JinjaValue::Kind::kFunction, rep);
    head_ = rep->next;
    if (head_ != nullptr) head_->prev = nullptr;
    rep->next = rep->prev = nullptr;
    live_ -= rep->charged;
    rep->meter = nullptr;
    rep->Clear();
  }
}

JinjaStringRep::JinjaStringRep(MarkedText t, JinjaMeter* m)
    : JinjaRep(m), text(std::move(t)), ascii(AllAscii(text.str())) {
  Charge(text.MemoryBytes());
}

JinjaListRep::JinjaListRep(JinjaValue::Items i, Flavor f, JinjaMeter* m)
    : JinjaRep(m), items(std::move(i)), flavor(f) {
  Charge(items.size() * sizeof(JinjaValue));
}

void JinjaDictRep::Clear() {
  index_.clear();
  entries.clear();
}

const JinjaValue* JinjaDictRep::FindHashed(size_t hash, const JinjaValue* key, std::string_view name) const {
  const auto same = [&](const JinjaValue& k) {
    int64_t work = kKeyWork;
    if (key != nullptr) return JinjaEquals(k, *key, &work);
    return k.Is(JinjaValue::Kind::kString) && k.str() == name;
  };
  if (index_.empty()) {
    for (const auto& [k, v] : entries) {
      if (same(k)) return &v;
    }
    return nullptr;
  }
  const auto range = index_.equal_range(hash);
  for (auto it = range.first; it != range.second; ++it) {
    if (same(entries[it->second].first)) return &entries[it->second].second;
  }
  return nullptr;
}

const JinjaValue* JinjaDictRep::Find(const JinjaValue& key) const {
  return FindHashed(index_.empty() ? 0 : HashOf(key), &key, "");
}

const JinjaValue* JinjaDictRep::Find(std::string_view key) const {
  return FindHashed(index_.empty() ? 0 : HashText(key), nullptr, key);
}

void JinjaDictRep::Set(const JinjaValue& key, const JinjaValue& value) {
  if (const JinjaValue* found = Find(key)) {
    *const_cast<JinjaValue*>(found) = value;
    return;
  }
  entries.emplace_back(key, value);
  Charge(sizeof(entries[0]) + 32);
  if (entries.size() == kIndexFrom) {
    for (uint32_t i = 0; i < entries.size(); ++i) index_.emplace(HashOf(entries[i].first), i);
  } else if (entries.size() > kIndexFrom) {
    index_.emplace(HashOf(key), static_cast<uint32_t>(entries.size() - 1));
  }
}

JinjaValue JinjaValue::None() {
  JinjaValue v;
  v.kind_ = Kind::kNone;
  return v;
}
JinjaValue JinjaValue::Bool(bool value) {
  JinjaValue v;
  v.kind_ = Kind::kBool;
  v.bits_.integer = value ? 1 : 0;
  return v;
}
JinjaValue JinjaValue::Int(int64_t value) {
  JinjaValue v;
  v.kind_ = Kind::kInt;
  v.bits_.integer = value;
  return v;
}
JinjaValue JinjaValue::Float(double value) {
  JinjaValue v;
  v.kind_ = Kind::kFloat;
  v.bits_.real = value;
  return v;
}
JinjaValue JinjaValue::Marked(MarkedText text, JinjaMeter* meter) {
  return Adopt(Kind::kString, new JinjaStringRep(std::move(text), meter));
}
JinjaValue JinjaValue::List(Items items, JinjaMeter* meter) {
  return Adopt(Kind::kList, new JinjaListRep(std::move(items), JinjaListRep::Flavor::kList, meter));
}
JinjaValue JinjaValue::Dict(const std::vector<Field>& fields) {
  auto* rep = new JinjaDictRep(nullptr);
  for (const Field& field : fields) rep->Set(Trusted(std::string(field.first)), field.second);
  return Adopt(Kind::kDict, rep);
}
JinjaValue JinjaValue::DictOf(const std::vector<std::pair<JinjaValue, JinjaValue>>& entries) {
  auto* rep = new JinjaDictRep(nullptr);
  for (const auto& [key, value] : entries) rep->Set(key, value);
  return Adopt(Kind::kDict, rep);
}
JinjaValue JinjaValue::Adopt(Kind kind, JinjaRep* rep) {
  JinjaValue v;
  v.kind_ = kind;
  v.bits_.rep = rep;
  return v;
}

const MarkedText& JinjaValue::text() const {
  BALLAST_CHECK(kind_ == Kind::kString);
  return static_cast<JinjaStringRep*>(bits_.rep)->text;
}
const JinjaValue::Items& JinjaValue::items() const {
  BALLAST_CHECK(kind_ == Kind::kList);
  return static_cast<JinjaListRep*>(bits_.rep)->items;
}
const JinjaDictRep& JinjaValue::dict() const {
  BALLAST_CHECK(kind_ == Kind::kDict || kind_ == Kind::kNamespace);
  return *static_cast<JinjaDictRep*>(bits_.rep);
}
std::string JinjaValue::UndefinedMessage() const {
  if (kind_ != Kind::kUndefined || bits_.rep == nullptr) return "value is undefined";
  return static_cast<JinjaStringRep*>(bits_.rep)->text.str();
}

const JinjaValue* JinjaValue::Find(std::string_view key) const {
  if (kind_ != Kind::kDict && kind_ != Kind::kNamespace) return nullptr;
  return dict().Find(key);
}

void JinjaValue::Retain() const {
  if (HasRep()) bits_.rep->refs.fetch_add(1, std::memory_order_relaxed);
}
void JinjaValue::Release() {
  if (HasRep() && bits_.rep->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) Destroy(bits_.rep);
}

bool JinjaEquals(const JinjaValue& a, const JinjaValue& b, int64_t* work, int depth) {
  if (--*work < 0) return false;
  using Kind = JinjaValue::Kind;
  if (a.IsNumber() && b.IsNumber()) {
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) return a.AsDouble() == b.AsDouble();
    return a.AsInt() == b.AsInt();
  }
  if (a.kind() != b.kind()) return false;
  if (a.Is(Kind::kUndefined) || a.Is(Kind::kNone)) return true;
  if (a.rep() == b.rep()) return true;
  if (a.Is(Kind::kString)) {
    if (a.str().size() != b.str().size()) return false;
    *work -= static_cast<int64_t>(a.str().size() / 256);
    return a.str() == b.str();
  }
  if (depth >= kEqualsDepth) return false;
  if (a.Is(Kind::kList)) {
    const auto flavor = [](const JinjaValue& v) { return static_cast<JinjaListRep*>(v.rep())->flavor; };
    if (flavor(a) != flavor(b) || flavor(a) == JinjaListRep::Flavor::kGenerator) return false;
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      [&](const auto& x, const auto& y) { return JinjaEquals(x, y, work, depth + 1); });
  }
  if (!a.Is(Kind::kDict) || a.dict().entries.size() != b.dict().entries.size()) return false;
  for (const auto& [key, value] : a.dict().entries) {
    const JinjaValue* other = b.dict().Find(key);
    if (other == nullptr || !JinjaEquals(value, *other, work, depth + 1)) return false;
  }
  return true;
}

}  // namespace ballast
