// JinjaRuntime: what one rendering may use, and how it fails.
//
// Purpose: the budget, the first error, and the conversions every builtin needs. Thread safety: one
// rendering, one thread. Invariants: 1. the first error stays; functions that failed return undefined, and a
// caller may go on with it, but loops ask ok(). 2. Whatever may become large is announced with Fits before it
// is made.
#ifndef BALLAST_TEXT_JINJA_RUNTIME_H_
#define BALLAST_TEXT_JINJA_RUNTIME_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja.h"
#include "text/jinja_value.h"

namespace ballast {

struct JinjaNode;

struct JinjaFunctionRep : JinjaRep {
  enum class Kind : uint8_t { kGlobal, kMethod, kMacro };
  JinjaFunctionRep(Kind k, std::string n, JinjaMeter* m) : JinjaRep(m), kind(k), name(std::move(n)) {}
  void Clear() override {
    self = JinjaValue();
    scope = JinjaValue();
  }
  const Kind kind;
  const std::string name;
  JinjaValue self;                   // of a method
  const JinjaNode* macro = nullptr;  // lives as long as the template
  JinjaValue scope;                  // where the macro was defined
};

struct JinjaLoopRep : JinjaRep {
  using JinjaRep::JinjaRep;
  void Clear() override {
    items.clear();
    changed = JinjaValue();
  }
  JinjaValue::Items items;
  size_t index = 0;
  int depth = 0;
  JinjaValue changed;  // arguments of the last loop.changed(...)
};

struct JinjaArgs {
  JinjaValue::Items positional;
  std::vector<std::pair<std::string_view, JinjaValue>> named;
};

class JinjaRuntime {
 public:
  explicit JinjaRuntime(const JinjaLimits& limits) : limits_(limits) {}

  const JinjaLimits& limits() const { return limits_; }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  JinjaMeter* meter() { return &meter_; }

  JinjaValue Fail(std::string_view message);                             // kInput, with the line
  JinjaValue Refuse(std::string_view message);                           // kModel, with the line
  JinjaValue Raise(std::string message);                                 // kInput, the message as it is
  JinjaValue TypeError(std::string_view what, const JinjaValue& value);  // "<what>, not <type>"
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }

  bool Charge(int64_t steps);
  bool Work(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 256)); }     // copied or compared
  bool CharWork(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 16)); }  // looked at one by one
  bool Fits(size_t bytes);  // also charges for making so many
  // Held by a text that is being written, which takes twice its size as it grows.
  void Buffered(int64_t bytes) { buffered_ += 2 * bytes; }

  JinjaValue Text(MarkedText text);
  JinjaValue Text(std::string text, bool data) { return Text(MarkedText(std::move(text), data)); }
  JinjaValue List(JinjaValue::Items items, JinjaListRep::Flavor flavor = JinjaListRep::Flavor::kList);
  JinjaValue Tuple(JinjaValue::Items items) { return List(std::move(items), JinjaListRep::Flavor::kTuple); }
  JinjaValue Generator(JinjaValue::Items items) {
    return List(std::move(items), JinjaListRep::Flavor::kGenerator);
  }
  JinjaValue Undefined(std::string message);

  bool Truth(const JinjaValue& value) const;
  bool Equals(const JinjaValue& a, const JinjaValue& b);
  // -1, 0, 1; fails for values without an order.
  int Order(const JinjaValue& a, const JinjaValue& b, std::string_view op = "<");
  bool Contains(const JinjaValue& container, const JinjaValue& item);
  // What a for would see. A generator is emptied by it.
  JinjaValue::Items Iterate(const JinjaValue& value);
  int64_t Length(const JinjaValue& value);
  // As str() prints it.
  MarkedText Str(const JinjaValue& value);

  // a.name and a[key], as jinja2's sandbox answers them; undefined where there is nothing.
  JinjaValue Attribute(const JinjaValue& subject, std::string_view name);
  JinjaValue Item(const JinjaValue& subject, const JinjaValue& key);
  JinjaValue Slice(const JinjaValue& subject, const std::array<JinjaValue, 3>& bounds);
  JinjaValue Binary(std::string_view op, const JinjaValue& a, const JinjaValue& b);
  JinjaValue Add(const JinjaValue& a, const JinjaValue& b);

  // Arguments by parameter name: one pointer each, null where none was given. Fails on others.
  std::vector<const JinjaValue*> Bind(std::string_view function, const JinjaArgs& args,
                                      std::initializer_list<std::string_view> parameters);

 private:
  JinjaValue LoopAttribute(const JinjaLoopRep& loop, std::string_view name);
  JinjaValue Lookup(const JinjaValue& subject, const JinjaValue& key);
  JinjaValue Missing(const JinjaValue& subject, std::string_view name);
  JinjaValue Arithmetic(char op, bool twice, const JinjaValue& a, const JinjaValue& b);
  JinjaValue Integers(char op, bool twice, int64_t a, int64_t b);
  JinjaValue Reals(char op, bool twice, double a, double b);
  JinjaValue Repeat(const JinjaValue& value, int64_t times);
  JinjaValue BadOperands(std::string_view op, const JinjaValue& a, const JinjaValue& b);

  const JinjaLimits limits_;
  Status status_;
  JinjaMeter meter_;
  int64_t steps_ = 0;
  int64_t buffered_ = 0;
  int line_ = 1;
};

// Python's name of a value's type: "str", "NoneType".
std::string_view JinjaTypeName(const JinjaValue& value);
// A string that is safe to show in an error: cut, one line.
std::string JinjaQuote(std::string_view text);

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_RUNTIME_H_
