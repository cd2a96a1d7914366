// What may follow an expression: subscripts, calls, filters and tests.
#include <algorithm>

#include "text/jinja_parser.h"

namespace ballast {

JinjaNodePtr JinjaExpressionParser::Postfix(JinjaNodePtr node) {
  while (ok()) {
    if (IsOp(".") || IsOp("[")) {
      node = Subscript(std::move(node));
    } else if (IsOp("(")) {
      auto call = Make(Op::kCall);
      call->kids.push_back(std::move(node));
      Step();
      Arguments(call.get());
      node = Finish(std::move(call));
    } else {
      break;
    }
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::Subscript(JinjaNodePtr subject) {
  auto node = Make(Op::kAttribute);
  node->kids.push_back(std::move(subject));
  if (TakeOp(".")) {
    if (Now().kind == Kind::kInt) {
      node->op = Op::kItem;
      node->kids.push_back(Atom());
    } else {
      node->name = ExpectName("a name after '.'");
    }
    return Finish(std::move(node));
  }
  Step();
  node->op = Op::kItem;
  std::vector<JinjaNodePtr> bounds;
  bounds.push_back(IsOp(":") ? nullptr : Tuple(true));
  while (ok() && TakeOp(":")) {
    node->op = Op::kSlice;
    bounds.push_back(IsOp(":") || IsOp("]") ? nullptr : Expression());
  }
  if (bounds.size() > 3) return Unexpected("']'");
  ExpectOp("]");
  if (node->op == Op::kSlice) bounds.resize(3);
  for (auto& bound : bounds) node->kids.push_back(std::move(bound));
  return Finish(std::move(node));
}

void JinjaExpressionParser::Arguments(JinjaNode* node) {
  while (ok() && !IsOp(")")) {
    if (IsOp("*") || IsOp("**")) Fail("* and ** in a call are not supported");
    if (Now().kind == Kind::kName && Next().kind == Kind::kOp && Next().text == "=") {
      node->names.push_back(Now().text);
      Step();
      Step();
    } else if (!node->names.empty()) {
      Fail("a positional argument follows a keyword argument");
    }
    node->kids.push_back(Expression());
    if (!IsOp(")")) ExpectOp(",");
  }
  ExpectOp(")");
}

JinjaNodePtr JinjaExpressionParser::FilterChain(JinjaNodePtr subject) {
  bool bare = subject == nullptr;
  if (!ok()) return nullptr;
  while (ok()) {
    if (bare || IsOp("|")) {
      if (!bare) Step();
      bare = false;
      subject = Filter(std::move(subject));
    } else if (IsName("is")) {
      subject = Test(std::move(subject));
    } else if (IsOp("(")) {
      subject = Postfix(std::move(subject));
    } else {
      break;
    }
  }
  return subject;
}

JinjaNodePtr JinjaExpressionParser::Filter(JinjaNodePtr subject) {
  auto node = Make(Op::kFilter);
  node->kids.push_back(std::move(subject));
  node->name = ExpectName("the name of a filter");
  while (ok() && TakeOp(".")) node->name += "." + ExpectName("the name of a filter");
  if (TakeOp("(")) Arguments(node.get());
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::Test(JinjaNodePtr subject) {
  auto node = Make(Op::kTest);
  Step();
  const bool negated = TakeName("not");
  node->kids.push_back(std::move(subject));
  node->name = ExpectName("the name of a test");
  const bool value = Now().kind == Kind::kString || Now().kind == Kind::kInt || Now().kind == Kind::kFloat ||
                     IsOp("[") || IsOp("{");
  static constexpr std::string_view kNotArguments[] = {"else", "or", "and", "if", "not", "in", "is"};
  const bool name = Now().kind == Kind::kName && std::find(std::begin(kNotArguments), std::end(kNotArguments),
                                                           Now().text) == std::end(kNotArguments);
  if (IsName("is")) return Fail("tests cannot be chained with 'is'");
  if (TakeOp("(")) {
    Arguments(node.get());
  } else if (value || name) {
    node->kids.push_back(Postfix(Primary()));
  }
  auto test = Finish(std::move(node));
  if (!negated || test == nullptr) return test;
  auto outer = Make(Op::kNot);
  outer->kids.push_back(std::move(test));
  return Finish(std::move(outer));
}

JinjaNodePtr JinjaExpressionParser::Target() {
  // "(a, b)" and "a, (b, c)" as well as "a, b": the value is unpacked by the evaluator.
  const bool parenthesis = IsOp("(");
  if (depth_ >= kJinjaMaxNesting) return Fail("targets are nested too deep");
  ++depth_;
  JinjaNodePtr first;
  if (parenthesis) {
    Step();
    first = Target();
    ExpectOp(")");
  } else {
    first = Make(Op::kName);
    first->name = ExpectName("a name to assign to");
  }
  if (IsOp(",")) {
    auto node = Make(Op::kTuple);
    node->kids.push_back(std::move(first));
    while (ok() && TakeOp(",")) {
      if (IsName("in") || IsOp("=") || IsOp(")")) break;
      auto kid = IsOp("(") ? Primary() : Make(Op::kName);
      if (kid != nullptr && kid->op == Op::kName && kid->name.empty()) kid->name = ExpectName("a name");
      node->kids.push_back(std::move(kid));
    }
    first = std::move(node);
  }
  --depth_;
  return Finish(std::move(first));
}

void JinjaExpressionParser::Parameters(JinjaNode* node) {
  bool defaults = false;
  while (ok() && !IsOp(")")) {
    node->names.push_back(ExpectName("the name of a parameter"));
    if (TakeOp("=")) {
      defaults = true;
      node->kids.push_back(Expression());
    } else if (defaults) {
      Fail("a parameter without a default follows one with a default");
    }
    if (!IsOp(")")) ExpectOp(",");
  }
  ExpectOp(")");
}

}  // namespace ballast
