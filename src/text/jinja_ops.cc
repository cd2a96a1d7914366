// Operators and subscripts, with Python's meaning.
#include <algorithm>
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_runtime.h"

namespace ballast {

using Kind = JinjaValue::Kind;
using Flavor = JinjaListRep::Flavor;

namespace {

JinjaListRep* ListOf(const JinjaValue& value) { return static_cast<JinjaListRep*>(value.rep()); }

// Start and end of a slice over `size` things, as slice.indices answers.
void SliceBounds(const std::array<JinjaValue, 3>& bounds, int64_t size, int64_t step, int64_t* from,
                 int64_t* to) {
  const auto clamp = [&](const JinjaValue& bound, int64_t missing) {
    if (!bound.Is(Kind::kInt) && !bound.Is(Kind::kBool)) return missing;
    int64_t at = bound.AsInt();
    if (at < 0) at += size;
    if (at < 0) return static_cast<int64_t>(step < 0 ? -1 : 0);
    return at >= size ? (step < 0 ? size - 1 : size) : at;
  };
  *from = clamp(bounds[0], step < 0 ? size - 1 : 0);
  *to = clamp(bounds[1], step < 0 ? -1 : size);
}

}  // namespace

JinjaValue JinjaRuntime::BadOperands(std::string_view op, const JinjaValue& a, const JinjaValue& b) {
  if (a.Is(Kind::kUndefined)) return Fail(a.UndefinedMessage());
  if (b.Is(Kind::kUndefined)) return Fail(b.UndefinedMessage());
  const std::string left(JinjaTypeName(a)), right(JinjaTypeName(b));
  if (op == "+" && (a.Is(Kind::kString) || a.Is(Kind::kList))) {
    return Fail("can only concatenate " + left + " (not \"" + right + "\") to " + left);
  }
  return Fail("unsupported operand type(s) for " + std::string(op) + ": '" + left + "' and '" + right + "'");
}

JinjaValue JinjaRuntime::Add(const JinjaValue& a, const JinjaValue& b) {
  if (a.IsNumber() && b.IsNumber()) return Arithmetic('+', false, a, b);
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    if (!Fits(a.text().MemoryBytes() + b.text().MemoryBytes())) return {};
    MarkedText joined = a.text();
    joined.Append(b.text());
    return Text(std::move(joined));
  }
  if (a.Is(Kind::kList) && b.Is(Kind::kList) && ListOf(a)->flavor == ListOf(b)->flavor &&
      ListOf(a)->flavor != Flavor::kGenerator) {
    if (!Fits((a.items().size() + b.items().size()) * sizeof(JinjaValue))) return {};
    JinjaValue::Items joined = a.items();
    joined.insert(joined.end(), b.items().begin(), b.items().end());
    return List(std::move(joined), ListOf(a)->flavor);
  }
  return BadOperands("+", a, b);
}

JinjaValue JinjaRuntime::Repeat(const JinjaValue& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const size_t each =
      value.Is(Kind::kString) ? value.text().MemoryBytes() : value.items().size() * sizeof(JinjaValue);
  if (each == 0) times = 0;
  if (each > 0 && times > static_cast<int64_t>(limits_.max_memory_bytes / each)) times = INT32_MAX;
  if (!Fits(each * static_cast<size_t>(times))) return {};
  if (value.Is(Kind::kString)) {
    MarkedText out;
    for (int64_t i = 0; i < times; ++i) out.Append(value.text());
    return Text(std::move(out));
  }
  JinjaValue::Items out;
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), value.items().begin(), value.items().end());
  return List(std::move(out), ListOf(value)->flavor);
}

JinjaValue JinjaRuntime::Binary(std::string_view op, const JinjaValue& a, const JinjaValue& b) {
  if (op == "+") return Add(a, b);
  const bool numbers = a.IsNumber() && b.IsNumber();
  if (numbers) return Arithmetic(op[0], op.size() > 1, a, b);
  const auto repeats = [](const JinjaValue& v) { return v.Is(Kind::kString) || v.Is(Kind::kList); };
  const auto counts = [](const JinjaValue& v) { return v.Is(Kind::kInt) || v.Is(Kind::kBool); };
  if (op == "*" && repeats(a) && counts(b)) return Repeat(a, b.AsInt());
  if (op == "*" && counts(a) && repeats(b)) return Repeat(b, a.AsInt());
  if (op == "%" && a.Is(Kind::kString)) {
    JinjaArgs args;
    const bool tuple = b.Is(Kind::kList) && ListOf(b)->flavor == Flavor::kTuple;
    args.positional = tuple ? b.items() : JinjaValue::Items{b};
    return JinjaPercentFormat(this, a, args);
  }
  return BadOperands(op == "**" ? "** or pow()" : op, a, b);
}

JinjaValue JinjaRuntime::Arithmetic(char op, bool twice, const JinjaValue& a, const JinjaValue& b) {
  const bool reals = a.Is(Kind::kFloat) || b.Is(Kind::kFloat) || (op == '/' && !twice) ||
                     (op == '*' && twice && b.AsInt() < 0);
  if ((op == '/' || op == '%') && b.AsDouble() == 0) return Fail("division by zero");
  if (reals) return Reals(op, twice, a.AsDouble(), b.AsDouble());
  return Integers(op, twice, a.AsInt(), b.AsInt());
}

JinjaValue JinjaRuntime::Integers(char op, bool twice, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if (op == '+') over = __builtin_add_overflow(a, b, &out);
  if (op == '-') over = __builtin_sub_overflow(a, b, &out);
  if (op == '*' && !twice) over = __builtin_mul_overflow(a, b, &out);
  if (op == '*' && twice) {
    out = 1;
    if (a == 0 || a == 1) {
      out = b == 0 ? 1 : a;
    } else if (a == -1) {
      out = b % 2 == 0 ? 1 : -1;
    } else {
      for (int64_t i = 0; i < b && !over; ++i) over = __builtin_mul_overflow(out, a, &out);
    }
  }
  if (op == '/' || op == '%') {
    if (b == -1) {
      over = op == '/' && a == INT64_MIN;
      out = op == '/' && !over ? -a : 0;
    } else {
      const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0) ? 1 : 0;
      out = op == '/' ? a / b - down : rest + (down != 0 ? b : 0);
    }
  }
  if (over) return Fail("an integer needs more than 64 bits");
  return JinjaValue::Int(out);
}

JinjaValue JinjaRuntime::Reals(char op, bool twice, double a, double b) {
  if (op == '+') return JinjaValue::Float(a + b);
  if (op == '-') return JinjaValue::Float(a - b);
  if (op == '*' && !twice) return JinjaValue::Float(a * b);
  if (op == '*') {
    if (a == 0 && b < 0) return Fail("0.0 cannot be raised to a negative power");
    const double out = std::pow(a, b);
    if (std::isnan(out) && !std::isnan(a) && !std::isnan(b)) return Fail("a power that is not a real number");
    return JinjaValue::Float(out);
  }
  if (op == '/' && !twice) return JinjaValue::Float(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == '%') return JinjaValue::Float(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  return JinjaValue::Float(quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient));
}

JinjaValue JinjaRuntime::Missing(const JinjaValue& subject, std::string_view name) {
  if (subject.Is(Kind::kNone)) return Undefined("'None' has no attribute " + JinjaQuote(name));
  const std::string module = subject.Is(Kind::kNamespace) ? "jinja2.utils."
                             : subject.Is(Kind::kLoop)    ? "jinja2.runtime."
                                                          : "";
  return Undefined("'" + module + std::string(JinjaTypeName(subject)) + " object' has no attribute " +
                   JinjaQuote(name));
}

JinjaValue JinjaRuntime::Attribute(const JinjaValue& subject, std::string_view name) {
  if (subject.Is(Kind::kUndefined)) return Fail(subject.UndefinedMessage());
  if (subject.Is(Kind::kLoop)) return LoopAttribute(*static_cast<JinjaLoopRep*>(subject.rep()), name);
  if (FindJinjaMethod(subject, name) != nullptr) {
    auto* rep = new JinjaFunctionRep(JinjaFunctionRep::Kind::kMethod, std::string(name), &meter_);
    rep->self = subject;
    return JinjaValue::Adopt(Kind::kFunction, rep);
  }
  if (const JinjaValue* found = subject.Find(name)) return *found;
  return Missing(subject, name);
}

JinjaValue JinjaRuntime::LoopAttribute(const JinjaLoopRep& loop, std::string_view name) {
  const int64_t index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return JinjaValue::Int(index + 1);
  if (name == "index0") return JinjaValue::Int(index);
  if (name == "first") return JinjaValue::Bool(index == 0);
  if (name == "last") return JinjaValue::Bool(index + 1 == size);
  if (name == "length") return JinjaValue::Int(size);
  if (name == "revindex") return JinjaValue::Int(size - index);
  if (name == "revindex0") return JinjaValue::Int(size - index - 1);
  if (name == "depth") return JinjaValue::Int(loop.depth);
  if (name == "depth0") return JinjaValue::Int(loop.depth - 1);
  if (name == "previtem") return index > 0 ? loop.items[index - 1] : Undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? loop.items[index + 1] : Undefined("there is no next item");
  if (name == "cycle" || name == "changed") {
    auto* rep = new JinjaFunctionRep(JinjaFunctionRep::Kind::kMethod, std::string(name), &meter_);
    const_cast<JinjaLoopRep&>(loop).refs.fetch_add(1, std::memory_order_relaxed);
    rep->self = JinjaValue::Adopt(Kind::kLoop, const_cast<JinjaLoopRep*>(&loop));
    return JinjaValue::Adopt(Kind::kFunction, rep);
  }
  return Undefined("'jinja2.runtime.LoopContext object' has no attribute " + JinjaQuote(name));
}

JinjaValue JinjaRuntime::Item(const JinjaValue& subject, const JinjaValue& key) {
  if (subject.Is(Kind::kUndefined)) return Fail(subject.UndefinedMessage());
  const bool index = key.Is(Kind::kInt) || key.Is(Kind::kBool);
  if (subject.Is(Kind::kDict)) {
    if (key.Is(Kind::kString) && !Work(key.str().size())) return {};
    if (const JinjaValue* found = subject.dict().Find(key)) return *found;
  } else if (subject.Is(Kind::kList) && index) {
    const int64_t size = static_cast<int64_t>(subject.items().size());
    const int64_t at = key.AsInt() + (key.AsInt() < 0 ? size : 0);
    if (at >= 0 && at < size) return subject.items()[at];
  } else if (subject.Is(Kind::kString) && index) {
    const int64_t size = Length(subject);
    const int64_t at = key.AsInt() + (key.AsInt() < 0 ? size : 0);
    if (at >= 0 && at < size) {
      if (static_cast<JinjaStringRep*>(subject.rep())->ascii) return Text(subject.text().Sub(at, 1));
      if (!CharWork(static_cast<size_t>(at))) return {};
      size_t byte = 0;
      for (int64_t i = 0; i < at; ++i) byte += JinjaCharBytes(subject.str(), byte);
      return Text(subject.text().Sub(byte, JinjaCharBytes(subject.str(), byte)));
    }
  }
  if (key.Is(Kind::kString)) return Attribute(subject, key.str());
  const std::string type(JinjaTypeName(subject));
  const std::string object = subject.Is(Kind::kNone) ? "None" : type + " object";
  return Undefined(object + " has no element " + Str(key).str().substr(0, 60));
}

JinjaValue JinjaRuntime::Slice(const JinjaValue& subject, const std::array<JinjaValue, 3>& bounds) {
  if (subject.Is(Kind::kUndefined)) return Fail(subject.UndefinedMessage());
  for (const JinjaValue& bound : bounds) {
    if (bound.Is(Kind::kFloat) || bound.Is(Kind::kString) || bound.Is(Kind::kList) || bound.Is(Kind::kDict)) {
      return Fail("slice indices must be integers or None");
    }
  }
  const int64_t step = bounds[2].Is(Kind::kInt) ? bounds[2].AsInt() : 1;
  if (step == 0) return Fail("slice step cannot be zero");
  int64_t from = 0, to = 0;
  const auto walk = [&](int64_t size, const auto& take) {
    SliceBounds(bounds, size, step, &from, &to);
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
      take(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
  };
  if (subject.Is(Kind::kList)) {
    JinjaValue::Items out;
    if (!Fits(subject.items().size() * sizeof(JinjaValue))) return {};
    walk(static_cast<int64_t>(subject.items().size()), [&](int64_t i) { out.push_back(subject.items()[i]); });
    return List(std::move(out), ListOf(subject)->flavor);
  }
  if (!subject.Is(Kind::kString))
    return Undefined(std::string(JinjaTypeName(subject)) + " object cannot be sliced");
  MarkedText out;
  if (static_cast<JinjaStringRep*>(subject.rep())->ascii && step == 1) {
    SliceBounds(bounds, static_cast<int64_t>(subject.str().size()), 1, &from, &to);
    if (from < to && Fits(to - from)) out = subject.text().Sub(from, to - from);
    return Text(std::move(out));
  }
  if (!Fits(subject.str().size() * 8) || !CharWork(subject.str().size())) return {};
  std::vector<uint32_t> starts;  // byte of each character, and of the end
  for (size_t at = 0; at < subject.str().size(); at += JinjaCharBytes(subject.str(), at)) {
    starts.push_back(static_cast<uint32_t>(at));
  }
  starts.push_back(static_cast<uint32_t>(subject.str().size()));
  if (step == 1) {
    SliceBounds(bounds, static_cast<int64_t>(starts.size()) - 1, 1, &from, &to);
    if (from < to) out = subject.text().Sub(starts[from], starts[to] - starts[from]);
  } else {
    walk(static_cast<int64_t>(starts.size()) - 1,
         [&](int64_t i) { out.AppendRange(subject.text(), starts[i], starts[i + 1] - starts[i]); });
  }
  return Text(std::move(out));
}

}  // namespace ballast
