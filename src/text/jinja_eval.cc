#include "text/jinja_eval.h"

#include <algorithm>

namespace ballast {

JinjaEvaluator::JinjaEvaluator(JinjaRuntime* runtime, const JinjaValue& context)
    : rt_(runtime), context_(context) {}

MarkedText JinjaEvaluator::Render(const JinjaNode::Body& body) {
  MarkedText out;
  out_ = &out;
  scope_ = NewScope(JinjaValue());
  Run(body);
  out_ = nullptr;
  return out;
}

JinjaValue JinjaEvaluator::NewScope(const JinjaValue& parent) {
  auto* rep = new JinjaScopeRep(rt_->meter());
  rep->parent = parent;
  return JinjaValue::Adopt(Kind::kFunction, rep);  // a kind that only says: shared; no template sees it
}

void JinjaEvaluator::Define(std::string_view name, const JinjaValue& value) {
  for (auto& [known, held] : scope()->vars) {
    if (known == name) {
      held = value;
      return;
    }
  }
  scope()->vars.emplace_back(name, value);
}

JinjaEvaluator::Flow JinjaEvaluator::Run(const JinjaNode::Body& body) {
  if (!Deeper()) return Flow::kBreak;
  Flow flow = Flow::kNext;
  for (size_t i = 0; i < body.size() && flow == Flow::kNext; ++i) {
    flow = rt_->Charge(1) ? Statement(*body[i]) : Flow::kBreak;
  }
  --depth_;
  return rt_->ok() ? flow : Flow::kBreak;
}

bool JinjaEvaluator::Deeper() {
  if (depth_ < kMaxDepth) {
    ++depth_;
    return true;
  }
  rt_->Fail("expected calls nested at most " + std::to_string(kMaxDepth) + " deep, found more");
  return false;
}

JinjaEvaluator::Flow JinjaEvaluator::Statement(const JinjaNode& node) {
  rt_->set_line(node.line);
  switch (node.op) {
    case Op::kData:
      Emit(node.value.text());
      return Flow::kNext;
    case Op::kOutput: {
      const JinjaValue value = Eval(*node.kids[0]);
      if (!rt_->ok()) return Flow::kBreak;
      Emit(value.Is(Kind::kString) ? value.text() : rt_->Str(value));
      return Flow::kNext;
    }
    case Op::kIf:
      return If(node);
    case Op::kFor:
      return For(node);
    case Op::kSet:
      Set(node);
      return Flow::kNext;
    case Op::kSetBlock:
      return SetBlock(node);
    case Op::kMacro:
      Define(node.name, MacroValue(node));
      return Flow::kNext;
    case Op::kCallBlock:
      CallBlock(node);
      return Flow::kNext;
    case Op::kFilterBlock:
      return FilterBlock(node);
    case Op::kWith:
    case Op::kScope:
      return With(node);
    case Op::kBreak:
      return Flow::kBreak;
    case Op::kContinue:
      return Flow::kContinue;
    default:
      BALLAST_CHECK(false);
  }
}

JinjaEvaluator::Flow JinjaEvaluator::If(const JinjaNode& node) {
  for (size_t i = 0; i < node.kids.size(); ++i) {
    const bool holds = rt_->Truth(Eval(*node.kids[i]));
    if (!rt_->ok()) return Flow::kBreak;
    if (holds) return Run(node.bodies[i]);
  }
  return node.bodies.size() > node.kids.size() ? Run(node.bodies.back()) : Flow::kNext;
}

// The items a for runs over: those its filter lets through.
JinjaValue::Items JinjaEvaluator::LoopItems(const JinjaNode& node) {
  JinjaValue::Items items = rt_->Iterate(Eval(*node.kids[1]));
  if (node.kids[2] == nullptr) return items;
  JinjaValue::Items kept;
  const JinjaValue outer = scope_;
  for (const JinjaValue& item : items) {
    if (!rt_->Charge(1)) break;
    scope_ = NewScope(outer);
    Assign(*node.kids[0], item);
    if (rt_->Truth(Eval(*node.kids[2]))) kept.push_back(item);
  }
  scope_ = outer;
  return kept;
}

JinjaEvaluator::Flow JinjaEvaluator::For(const JinjaNode& node) {
  auto* loop = new JinjaLoopRep(rt_->meter());
  const JinjaValue loop_value = JinjaValue::Adopt(Kind::kLoop, loop);
  loop->items = LoopItems(node);
  loop->depth = 1;
  loop->Charge(loop->items.size() * sizeof(JinjaValue));
  if (!rt_->ok()) return Flow::kBreak;
  if (loop->items.empty()) return node.bodies.size() > 1 ? Run(node.bodies[1]) : Flow::kNext;
  const JinjaValue outer = scope_;
  for (; loop->index < loop->items.size() && rt_->Charge(1); ++loop->index) {
    // A scope that no macro kept is emptied and used again.
    if (loop->index == 0 || scope_.rep()->refs.load(std::memory_order_relaxed) > 1) {
      scope_ = NewScope(outer);
    } else {
      scope()->vars.clear();
    }
    Assign(*node.kids[0], loop->items[loop->index]);
    Define("loop", loop_value);
    if (Run(node.bodies[0]) == Flow::kBreak) break;
  }
  scope_ = outer;
  return rt_->ok() ? Flow::kNext : Flow::kBreak;
}

void JinjaEvaluator::Set(const JinjaNode& node) {
  const JinjaValue value = Eval(*node.kids[1]);
  if (rt_->ok()) Assign(*node.kids[0], value);
}

JinjaEvaluator::Flow JinjaEvaluator::SetBlock(const JinjaNode& node) {
  Flow flow = Flow::kNext;
  block_ = rt_->Text(Capture(node.bodies[0], &flow));
  const JinjaValue value = node.kids[1] != nullptr ? Eval(*node.kids[1]) : block_;
  if (rt_->ok() && flow == Flow::kNext) Assign(*node.kids[0], value);
  return flow;
}

JinjaEvaluator::Flow JinjaEvaluator::FilterBlock(const JinjaNode& node) {
  Flow flow = Flow::kNext;
  block_ = rt_->Text(Capture(node.bodies[0], &flow));
  const JinjaValue value = Eval(*node.kids[0]);
  if (rt_->ok()) Emit(rt_->Str(value));
  return flow;
}

JinjaEvaluator::Flow JinjaEvaluator::With(const JinjaNode& node) {
  const JinjaValue outer = scope_;
  JinjaValue::Items values;
  for (size_t i = 1; i < node.kids.size(); i += 2) values.push_back(Eval(*node.kids[i]));
  scope_ = NewScope(outer);
  for (size_t i = 0; i < values.size(); ++i) Assign(*node.kids[2 * i], values[i]);
  const Flow flow = Run(node.bodies[0]);
  scope_ = outer;
  return flow;
}

JinjaValue JinjaEvaluator::MacroValue(const JinjaNode& node) {
  auto* rep = new JinjaFunctionRep(JinjaFunctionRep::Kind::kMacro, node.name, rt_->meter());
  rep->macro = &node;
  rep->scope = scope_;
  return JinjaValue::Adopt(Kind::kFunction, rep);
}

void JinjaEvaluator::CallBlock(const JinjaNode& node) {
  const JinjaValue caller = MacroValue(*node.kids[1]);
  const JinjaValue value = CallNode(*node.kids[0], &caller);
  if (rt_->ok()) Emit(rt_->Str(value));
}

void JinjaEvaluator::Assign(const JinjaNode& target, const JinjaValue& value) {
  if (!rt_->ok()) return;
  if (target.op == Op::kName) {
    Define(target.name, value);
    return;
  }
  if (target.op == Op::kAttribute) {
    const JinjaValue holder = Eval(*target.kids[0]);
    if (!holder.Is(Kind::kNamespace)) {
      rt_->Fail("cannot assign attribute on non-namespace object");
      return;
    }
    static_cast<JinjaDictRep*>(holder.rep())->Set(rt_->Text(target.name, false), value);
    return;
  }
  const JinjaValue::Items parts = rt_->Iterate(value);
  if (parts.size() != target.kids.size() || target.op != Op::kTuple) {
    rt_->Fail((parts.size() > target.kids.size() ? "too many" : "not enough") +
              std::string(" values to unpack (expected ") + std::to_string(target.kids.size()) + ", got " +
              std::to_string(parts.size()) + ")");
    return;
  }
  for (size_t i = 0; i < parts.size(); ++i) Assign(*target.kids[i], parts[i]);
}

void JinjaEvaluator::Emit(const MarkedText& text) {
  if (!rt_->Fits(text.MemoryBytes())) return;
  if (out_->size() + text.size() > rt_->limits().max_output_bytes) {
    rt_->Fail("expected at most " + std::to_string(rt_->limits().max_output_bytes) +
              " bytes of output, found more");
    return;
  }
  const size_t before = out_->MemoryBytes();
  out_->Append(text);
  rt_->Buffered(static_cast<int64_t>(out_->MemoryBytes() - before));
}

// What a body prints, run in a scope of its own.
MarkedText JinjaEvaluator::Capture(const JinjaNode::Body& body, Flow* flow) {
  MarkedText text;
  MarkedText* const out = std::exchange(out_, &text);
  const JinjaValue outer = scope_;
  scope_ = NewScope(outer);
  *flow = Run(body);
  scope_ = outer;
  out_ = out;
  rt_->Buffered(-static_cast<int64_t>(text.MemoryBytes()));
  return text;
}

}  // namespace ballast
