// JinjaValue: a value of the template language, as Python would hold it.
//
// Purpose: what a template is given and what it computes with. Copies share their contents.
// Thread safety: a value made outside a rendering is never changed by one, so it may be shared by threads; a
// value made inside a rendering belongs to it. Invariants: 1. lists and namespaces change only inside the
// rendering that made them (the sandbox lets a template change nothing it was given). 2. Values made inside a
// rendering are counted by its JinjaMeter and are gone, cycles included, when the meter is. 3. Releasing a
// value of any nesting uses bounded stack.
#ifndef BALLAST_TEXT_JINJA_VALUE_H_
#define BALLAST_TEXT_JINJA_VALUE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja_text.h"

namespace ballast {

class JinjaMeter;
struct JinjaRep;
struct JinjaListRep;
struct JinjaDictRep;

class JinjaValue {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,  // and tuples and generators: see JinjaListRep
    kDict,
    kNamespace,
    kFunction,  // macro, builtin or bound method
    kLoop       // the `loop` of a for
  };
  using Items = std::vector<JinjaValue>;
  using Field = std::pair<std::string_view, JinjaValue>;

  JinjaValue() = default;  // undefined
  JinjaValue(const JinjaValue& other) : kind_(other.kind_), bits_(other.bits_) { Retain(); }
  JinjaValue(JinjaValue&& other) noexcept : kind_(other.kind_), bits_(other.bits_) { other.Forget(); }
  JinjaValue& operator=(JinjaValue other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~JinjaValue() { Release(); }

  static JinjaValue None();
  static JinjaValue Bool(bool value);
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  // Text from outside: whatever it holds, it never becomes a control token.
  static JinjaValue String(std::string text) { return Marked(MarkedText(std::move(text), true)); }
  // Text as good as the template's own: a BOS, a role that was checked.
  static JinjaValue Trusted(std::string text) { return Marked(MarkedText(std::move(text), false)); }
  static JinjaValue Marked(MarkedText text, JinjaMeter* meter = nullptr);
  static JinjaValue List(Items items, JinjaMeter* meter = nullptr);
  // Keys are trusted names (those of a message, not of a tool's arguments: see DictOf).
  static JinjaValue Dict(const std::vector<Field>& fields);
  static JinjaValue DictOf(const std::vector<std::pair<JinjaValue, JinjaValue>>& entries);
  // Takes over one reference.
  static JinjaValue Adopt(Kind kind, JinjaRep* rep);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsNumber() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }

  // REQUIRES: the kind that the name says (AsInt: bool or int; AsDouble: any number).
  bool AsBool() const { return bits_.integer != 0; }
  int64_t AsInt() const { return bits_.integer; }
  double AsDouble() const { return kind_ == Kind::kFloat ? bits_.real : static_cast<double>(bits_.integer); }
  const MarkedText& text() const;
  const std::string& str() const { return text().str(); }
  const Items& items() const;
  const JinjaDictRep& dict() const;  // also of a namespace
  // Why a value is undefined, as jinja2 words it: "'x' is undefined".
  std::string UndefinedMessage() const;

  // The value of a key of a dict or namespace; null when there is none, or this is neither.
  const JinjaValue* Find(std::string_view key) const;
  JinjaRep* rep() const { return HasRep() ? bits_.rep : nullptr; }

 private:
  bool HasRep() const {
    return kind_ >= Kind::kString || (kind_ == Kind::kUndefined && bits_.rep != nullptr);
  }
  void Retain() const;
  void Release();
  void Forget() {
    kind_ = Kind::kUndefined;
    bits_.rep = nullptr;
  }

  Kind kind_ = Kind::kUndefined;
  union Bits {
    int64_t integer;
    double real;
    JinjaRep* rep;
    Bits() : rep(nullptr) {}
  } bits_;
};

// What a value shares. Metered ones are linked into their meter, which can then empty them.
struct JinjaRep {
  explicit JinjaRep(JinjaMeter* m);
  virtual ~JinjaRep();
  JinjaRep(const JinjaRep&) = delete;
  JinjaRep& operator=(const JinjaRep&) = delete;

  // Forgets the values held, so that cycles end.
  virtual void Clear() {}
  void Charge(size_t bytes);  // counts `bytes` more as held by this

  std::atomic<uint32_t> refs{1};
  JinjaMeter* meter;
  size_t charged = 0;
  JinjaRep* next = nullptr;  // of the meter's list
  JinjaRep* prev = nullptr;
};

struct JinjaStringRep : JinjaRep {
  JinjaStringRep(MarkedText t, JinjaMeter* m);
  const MarkedText text;
  const bool ascii;  // character i is byte i
};

struct JinjaListRep : JinjaRep {
  enum class Flavor : uint8_t { kList, kTuple, kGenerator };
  JinjaListRep(JinjaValue::Items i, Flavor f, JinjaMeter* m);
  void Clear() override { items.clear(); }
  JinjaValue::Items items;
  const Flavor flavor;  // a generator is always true, has no length and can be run through once
};

// Insertion-ordered. Keys are strings, numbers, none and tuples of these, compared as Python does.
struct JinjaDictRep : JinjaRep {
  explicit JinjaDictRep(JinjaMeter* m) : JinjaRep(m) {}
  void Clear() override;
  // A key that is present keeps its place and its first spelling.
  void Set(const JinjaValue& key, const JinjaValue& value);
  const JinjaValue* Find(const JinjaValue& key) const;
  const JinjaValue* Find(std::string_view key) const;
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;

 private:
  const JinjaValue* FindHashed(size_t hash, const JinjaValue* key, std::string_view name) const;
  std::unordered_multimap<size_t, uint32_t> index_;  // hash -> entry, kept once there are many
};

// Live bytes of one rendering. REQUIRES: outlives no value it metered: Clear is called first.
class JinjaMeter {
 public:
  JinjaMeter() = default;
  ~JinjaMeter() { Clear(); }
  JinjaMeter(const JinjaMeter&) = delete;
  JinjaMeter& operator=(const JinjaMeter&) = delete;
  size_t live() const { return live_; }
  void Clear();  // empties every container still alive

 private:
  friend struct JinjaRep;
  size_t live_ = 0;
  JinjaRep* head_ = nullptr;
};

// Python's ==. Each comparison takes one from `work`; when it is used up, or the nesting is too deep, the
// answer is no.
bool JinjaEquals(const JinjaValue& a, const JinjaValue& b, int64_t* work, int depth = 0);

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_VALUE_H_
