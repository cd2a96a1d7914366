#include <algorithm>
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_eval.h"

namespace ballast {

JinjaValue JinjaEvaluator::Eval(const JinjaNode& node) {
  if (node.op == Op::kLiteral) return node.value;
  if (!rt_->Charge(1) || !Deeper()) return {};
  JinjaValue value = EvalDeep(node);
  --depth_;
  return value;
}

JinjaValue JinjaEvaluator::EvalDeep(const JinjaNode& node) {
  switch (node.op) {
    case Op::kName:
      return Name(node);
    case Op::kList:
    case Op::kTuple:
      return ListOf(node);
    case Op::kDict:
      return DictOf(node);
    case Op::kAttribute: {
      const JinjaValue subject = Eval(*node.kids[0]);
      return rt_->ok() ? rt_->Attribute(subject, node.name) : JinjaValue();
    }
    case Op::kItem: {
      const JinjaValue subject = Eval(*node.kids[0]), key = Eval(*node.kids[1]);
      return rt_->ok() ? rt_->Item(subject, key) : JinjaValue();
    }
    case Op::kSlice:
      return Slice(node);
    case Op::kCall:
      return CallNode(node);
    case Op::kFilter:
      return Filter(node);
    case Op::kTest:
      return Test(node);
    case Op::kNegate:
    case Op::kPlus:
      return Negate(node);
    case Op::kNot:
      return JinjaValue::Bool(!rt_->Truth(Eval(*node.kids[0])));
    case Op::kAnd:
    case Op::kOr:
      return AndOr(node);
    case Op::kConcat:
      return Concat(node);
    case Op::kChain:
      return Chain(node);
    case Op::kCompare:
      return Compare(node);
    case Op::kIfElse:
      return IfElse(node);
    default:
      BALLAST_CHECK(false);
  }
}

const JinjaValue* JinjaEvaluator::FindVariable(std::string_view name) {
  for (JinjaScopeRep* at = scope(); at != nullptr; at = static_cast<JinjaScopeRep*>(at->parent.rep())) {
    for (const auto& [known, value] : at->vars) {
      if (known == name) return &value;
    }
  }
  return context_.Find(name);
}

JinjaValue JinjaEvaluator::Name(const JinjaNode& node) {
  if (const JinjaValue* found = FindVariable(node.name)) return *found;
  if (FindJinjaGlobal(node.name) != nullptr) {
    return JinjaValue::Adopt(Kind::kFunction,
                             new JinjaFunctionRep(JinjaFunctionRep::Kind::kGlobal, node.name, rt_->meter()));
  }
  return rt_->Undefined("'" + node.name + "' is undefined");
}

JinjaValue JinjaEvaluator::ListOf(const JinjaNode& node) {
  JinjaValue::Items items;
  items.reserve(node.kids.size());
  for (const auto& kid : node.kids) {
    items.push_back(Eval(*kid));
    if (!rt_->ok()) return {};
  }
  return node.op == Op::kTuple ? rt_->Tuple(std::move(items)) : rt_->List(std::move(items));
}

JinjaValue JinjaEvaluator::DictOf(const JinjaNode& node) {
  auto* rep = new JinjaDictRep(rt_->meter());
  JinjaValue dict = JinjaValue::Adopt(Kind::kDict, rep);
  for (size_t i = 0; i < node.kids.size(); i += 2) {
    const JinjaValue key = Eval(*node.kids[i]), value = Eval(*node.kids[i + 1]);
    if (!rt_->ok()) return {};
    const bool tuple =
        key.Is(Kind::kList) && static_cast<JinjaListRep*>(key.rep())->flavor == JinjaListRep::Flavor::kTuple;
    if ((key.Is(Kind::kList) && !tuple) || key.Is(Kind::kDict)) {
      return rt_->Fail("unhashable type: '" + std::string(JinjaTypeName(key)) + "'");
    }
    // Keys that share a hash are compared one by one.
    const bool text = key.Is(Kind::kString);
    if (text ? !rt_->Work(key.str().size()) : !rt_->Charge(static_cast<int64_t>(i))) return {};
    rep->Set(key, value);
  }
  return dict;
}

JinjaValue JinjaEvaluator::Slice(const JinjaNode& node) {
  const JinjaValue subject = Eval(*node.kids[0]);
  std::array<JinjaValue, 3> bounds = {JinjaValue::None(), JinjaValue::None(), JinjaValue::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (node.kids[i + 1] == nullptr) continue;
    bounds[i] = Eval(*node.kids[i + 1]);
    if (rt_->ok() && bounds[i].Is(Kind::kUndefined)) return rt_->Fail(bounds[i].UndefinedMessage());
  }
  return rt_->ok() ? rt_->Slice(subject, bounds) : JinjaValue();
}

JinjaArgs JinjaEvaluator::Arguments(const JinjaNode& node) {
  JinjaArgs args;
  const size_t first_named = node.kids.size() - node.names.size();
  for (size_t i = 1; i < node.kids.size() && rt_->ok(); ++i) {
    if (i < first_named) {
      args.positional.push_back(Eval(*node.kids[i]));
    } else {
      args.named.emplace_back(node.names[i - first_named], Eval(*node.kids[i]));
    }
  }
  return args;
}

JinjaValue JinjaEvaluator::Filter(const JinjaNode& node) {
  const JinjaValue subject = node.kids[0] != nullptr ? Eval(*node.kids[0]) : block_;
  const JinjaArgs args = Arguments(node);
  return rt_->ok() ? ApplyJinjaFilter(rt_, node.name, subject, args) : JinjaValue();
}

JinjaValue JinjaEvaluator::Test(const JinjaNode& node) {
  const JinjaValue subject = Eval(*node.kids[0]);
  const JinjaArgs args = Arguments(node);
  return rt_->ok() ? JinjaValue::Bool(ApplyJinjaTest(rt_, node.name, subject, args)) : JinjaValue();
}

JinjaValue JinjaEvaluator::Negate(const JinjaNode& node) {
  const JinjaValue value = Eval(*node.kids[0]);
  if (!rt_->ok()) return {};
  if (!value.IsNumber()) return rt_->TypeError("bad operand type for unary +-: expected a number", value);
  if (value.Is(Kind::kFloat))
    return JinjaValue::Float(node.op == Op::kNegate ? -value.AsDouble() : value.AsDouble());
  if (node.op == Op::kPlus) return JinjaValue::Int(value.AsInt());
  return rt_->Binary("-", JinjaValue::Int(0), value);
}

JinjaValue JinjaEvaluator::AndOr(const JinjaNode& node) {
  JinjaValue value;
  for (const auto& kid : node.kids) {
    value = Eval(*kid);
    if (!rt_->ok() || rt_->Truth(value) == (node.op == Op::kOr)) break;
  }
  return value;
}

JinjaValue JinjaEvaluator::Concat(const JinjaNode& node) {
  MarkedText out;
  for (const auto& kid : node.kids) {
    const JinjaValue value = Eval(*kid);
    if (!rt_->ok()) return {};
    const MarkedText text = rt_->Str(value);
    if (!rt_->Fits(out.MemoryBytes() + text.MemoryBytes())) return {};
    out.Append(text);
  }
  return rt_->Text(std::move(out));
}

JinjaValue JinjaEvaluator::Chain(const JinjaNode& node) {
  JinjaValue value = Eval(*node.kids[0]);
  for (size_t i = 0; i < node.names.size() && rt_->ok(); ++i) {
    const JinjaValue right = Eval(*node.kids[i + 1]);
    if (rt_->ok()) value = rt_->Binary(node.names[i], value, right);
  }
  return value;
}

bool JinjaEvaluator::Compares(std::string_view op, const JinjaValue& a, const JinjaValue& b) {
  if (op == "==") return rt_->Equals(a, b);
  if (op == "!=") return !rt_->Equals(a, b);
  if (op == "in") return rt_->Contains(b, a);
  if (op == "not in") return !rt_->Contains(b, a);
  if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) {
    // A NaN is in no order with anything.
    if (a.IsNumber() && b.IsNumber() && !(a.AsDouble() <= b.AsDouble()) && !(a.AsDouble() >= b.AsDouble()))
      return false;
  }
  const int order = rt_->Order(a, b, op);
  return op[0] == '<' ? order < 0 || (op.size() > 1 && order == 0)
                      : order > 0 || (op.size() > 1 && order == 0);
}

JinjaValue JinjaEvaluator::Compare(const JinjaNode& node) {
  JinjaValue left = Eval(*node.kids[0]);
  bool holds = true;
  for (size_t i = 0; i < node.names.size() && holds && rt_->ok(); ++i) {
    JinjaValue right = Eval(*node.kids[i + 1]);
    if (!rt_->ok()) return {};
    holds = Compares(node.names[i], left, right);
    left = std::move(right);
  }
  return JinjaValue::Bool(holds);
}

JinjaValue JinjaEvaluator::IfElse(const JinjaNode& node) {
  const bool holds = rt_->Truth(Eval(*node.kids[1]));
  if (!rt_->ok()) return {};
  if (holds) return Eval(*node.kids[0]);
  if (node.kids[2] != nullptr) return Eval(*node.kids[2]);
  return rt_->Undefined("the inline if-expression on line " + std::to_string(node.line) +
                        " evaluated to false and no else section was defined.");
}

JinjaValue JinjaEvaluator::CallNode(const JinjaNode& node, const JinjaValue* caller) {
  const JinjaNode& callee = *node.kids[0];
  const int line = node.line;
  JinjaValue self;
  JinjaBuiltin builtin = nullptr;
  JinjaValue function;
  // A method or a global needs no function object when it is called at once.
  if (callee.op == Op::kAttribute) {
    self = Eval(*callee.kids[0]);
    if (!rt_->ok()) return {};
    builtin = FindJinjaMethod(self, callee.name);
    if (builtin == nullptr) function = rt_->Attribute(self, callee.name);
  } else if (callee.op == Op::kName && FindVariable(callee.name) == nullptr) {
    builtin = FindJinjaGlobal(callee.name);
    if (builtin == nullptr) return rt_->Fail("'" + callee.name + "' is undefined");
  } else {
    function = Eval(callee);
  }
  const JinjaArgs args = Arguments(node);
  if (!rt_->ok()) return {};
  rt_->set_line(line);
  if (builtin != nullptr) return builtin(rt_, self, args);
  if (function.Is(Kind::kUndefined)) return rt_->Fail(function.UndefinedMessage());
  if (!function.Is(Kind::kFunction)) {
    return rt_->Fail("'" + std::string(JinjaTypeName(function)) + "' object is not callable");
  }
  const auto& rep = *static_cast<JinjaFunctionRep*>(function.rep());
  if (rep.kind == JinjaFunctionRep::Kind::kMacro) return CallMacro(rep, args, caller);
  const bool global = rep.kind == JinjaFunctionRep::Kind::kGlobal;
  builtin = global ? FindJinjaGlobal(rep.name) : FindJinjaMethod(rep.self, rep.name);
  return builtin != nullptr ? builtin(rt_, rep.self, args) : rt_->Fail("a function that is not known");
}

bool JinjaEvaluator::BindMacro(const JinjaNode& node, const JinjaArgs& args) {
  const auto& names = node.names;
  if (args.positional.size() > names.size()) {
    rt_->Fail("macro " + JinjaQuote(node.name) + " takes not more than " + std::to_string(names.size()) +
              " argument(s)");
    return false;
  }
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end() || static_cast<size_t>(at - names.begin()) < args.positional.size()) {
      rt_->Fail("macro " + JinjaQuote(node.name) + " takes no keyword argument " + JinjaQuote(name));
      return false;
    }
  }
  const size_t first_default = names.size() - node.kids.size();
  for (size_t i = 0; i < names.size() && rt_->ok(); ++i) {
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& a) { return a.first == names[i]; });
    JinjaValue value;
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else if (named != args.named.end()) {
      value = named->second;
    } else if (i >= first_default) {
      value = Eval(*node.kids[i - first_default]);
    } else {
      value = rt_->Undefined("parameter " + JinjaQuote(names[i]) + " was not provided");
    }
    Define(names[i], value);
  }
  return rt_->ok();
}

JinjaValue JinjaEvaluator::CallMacro(const JinjaFunctionRep& macro, const JinjaArgs& args,
                                     const JinjaValue* caller) {
  const JinjaNode& node = *macro.macro;
  const JinjaValue outer = scope_;
  scope_ = NewScope(macro.scope);
  const int line = rt_->line();
  JinjaValue out;
  if (BindMacro(node, args)) {
    if (caller != nullptr) Define("caller", *caller);
    Flow flow = Flow::kNext;
    out = rt_->Text(Capture(node.bodies[0], &flow));
  }
  scope_ = outer;
  rt_->set_line(line);
  return out;
}

}  // namespace ballast
