// JinjaEvaluator: walks a parsed template.
//
// Thread safety: one rendering, one thread; the template is only read. Invariants: 1. names are looked up in
// the scopes, innermost first, then in the context, then among the globals. 2. A for body, a macro, a with
// block and a captured block have a scope of their own; if has none. 3. Recursion is at most kMaxDepth deep.
#ifndef BALLAST_TEXT_JINJA_EVAL_H_
#define BALLAST_TEXT_JINJA_EVAL_H_

#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace ballast {

struct JinjaScopeRep : JinjaRep {
  using JinjaRep::JinjaRep;
  void Clear() override {
    vars.clear();
    parent = JinjaValue();
  }
  std::vector<std::pair<std::string_view, JinjaValue>> vars;  // names live in the template
  JinjaValue parent;                                          // holds a JinjaScopeRep, or nothing
};

class JinjaEvaluator {
 public:
  // `context` is a dict and outlives this.
  JinjaEvaluator(JinjaRuntime* runtime, const JinjaValue& context);
  // The whole output; to be used only if the runtime is still ok.
  MarkedText Render(const JinjaNode::Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using Op = JinjaNode::Op;
  using Kind = JinjaValue::Kind;
  static constexpr int kMaxDepth = 800;

  // Statements (jinja_eval.cc).
  Flow Run(const JinjaNode::Body& body);
  Flow Statement(const JinjaNode& node);
  Flow If(const JinjaNode& node);
  Flow For(const JinjaNode& node);
  JinjaValue::Items LoopItems(const JinjaNode& node);
  Flow SetBlock(const JinjaNode& node);
  Flow FilterBlock(const JinjaNode& node);
  Flow With(const JinjaNode& node);
  void Set(const JinjaNode& node);
  void CallBlock(const JinjaNode& node);
  void Assign(const JinjaNode& target, const JinjaValue& value);
  void Emit(const MarkedText& text);
  MarkedText Capture(const JinjaNode::Body& body, Flow* flow);

  bool Deeper();  // one level; false, and failed, when that is too many
  // Scopes.
  JinjaScopeRep* scope() { return static_cast<JinjaScopeRep*>(scope_.rep()); }
  JinjaValue NewScope(const JinjaValue& parent);
  void Define(std::string_view name, const JinjaValue& value);
  JinjaValue MacroValue(const JinjaNode& node);

  // Expressions (jinja_eval_expr.cc).
  JinjaValue Eval(const JinjaNode& node);
  JinjaValue EvalDeep(const JinjaNode& node);
  JinjaValue Name(const JinjaNode& node);
  const JinjaValue* FindVariable(std::string_view name);
  JinjaValue ListOf(const JinjaNode& node);
  JinjaValue DictOf(const JinjaNode& node);
  JinjaValue Slice(const JinjaNode& node);
  JinjaValue Filter(const JinjaNode& node);
  JinjaValue Test(const JinjaNode& node);
  JinjaValue Negate(const JinjaNode& node);
  JinjaValue AndOr(const JinjaNode& node);
  JinjaValue Concat(const JinjaNode& node);
  JinjaValue Chain(const JinjaNode& node);
  JinjaValue Compare(const JinjaNode& node);
  bool Compares(std::string_view op, const JinjaValue& a, const JinjaValue& b);
  JinjaValue IfElse(const JinjaNode& node);
  JinjaValue CallNode(const JinjaNode& node, const JinjaValue* caller = nullptr);
  JinjaArgs Arguments(const JinjaNode& node);
  JinjaValue CallMacro(const JinjaFunctionRep& macro, const JinjaArgs& args, const JinjaValue* caller);
  bool BindMacro(const JinjaNode& node, const JinjaArgs& args);

  JinjaRuntime* const rt_;
  const JinjaValue& context_;
  JinjaValue scope_;
  MarkedText* out_ = nullptr;
  JinjaValue block_;  // what the filters of a block begin with
  int depth_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_EVAL_H_
