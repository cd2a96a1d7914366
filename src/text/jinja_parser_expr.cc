#include <algorithm>
#include <charconv>

#include "text/jinja_parser.h"

namespace ballast {

void JinjaExpressionParser::Step() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool JinjaExpressionParser::TakeOp(std::string_view op) {
  if (!IsOp(op)) return false;
  Step();
  return true;
}

bool JinjaExpressionParser::TakeName(std::string_view name) {
  if (!IsName(name)) return false;
  Step();
  return true;
}

void JinjaExpressionParser::ExpectOp(std::string_view op) {
  if (!TakeOp(op)) Unexpected("'" + std::string(op) + "'");
}

std::string JinjaExpressionParser::ExpectName(std::string_view what) {
  if (Now().kind != Kind::kName) {
    Unexpected(what);
    return "";
  }
  std::string name = Now().text;
  Step();
  return name;
}

JinjaNodePtr JinjaExpressionParser::Fail(std::string_view what) {
  if (status_.ok()) status_ = JinjaSyntaxError(Now().line, what);
  at_ = tokens_.size() - 1;
  return nullptr;
}

JinjaNodePtr JinjaExpressionParser::Unexpected(std::string_view wanted) {
  std::string found;
  switch (Now().kind) {
    case Kind::kEnd:
      found = "the end of the template";
      break;
    case Kind::kVarEnd:
    case Kind::kBlockEnd:
      found = "the end of the tag";
      break;
    case Kind::kString:
      found = "a string";
      break;
    default:
      found = "'" + Now().text.substr(0, 40) + "'";
  }
  return Fail("expected " + std::string(wanted) + ", found " + found);
}

JinjaNodePtr JinjaExpressionParser::Make(Op op) const {
  auto node = std::make_unique<JinjaNode>();
  node->op = op;
  node->line = Now().line;
  return node;
}

JinjaNodePtr JinjaExpressionParser::Finish(JinjaNodePtr node) {
  if (!ok() || node == nullptr) return nullptr;
  int below = 0;
  for (const auto& kid : node->kids) below = std::max(below, kid != nullptr ? kid->height : 0);
  for (const auto& body : node->bodies) {
    for (const auto& statement : body) below = std::max(below, statement->height);
  }
  node->height = below + 1;
  if (node->height > kJinjaMaxNesting) {
    return Fail("expected nesting of at most " + std::to_string(kJinjaMaxNesting) + ", found more");
  }
  return node;
}

bool JinjaExpressionParser::EndsTuple() const {
  const Kind kind = Now().kind;
  return kind == Kind::kVarEnd || kind == Kind::kBlockEnd || kind == Kind::kEnd || IsOp(")") || IsOp("]") ||
         IsOp("}") || IsOp("=");
}

JinjaNodePtr JinjaExpressionParser::Tuple(bool condition) {
  if (EndsTuple()) return Unexpected("an expression");
  auto first = Expression(condition);
  if (!IsOp(",")) return first;
  auto node = Make(Op::kTuple);
  node->kids.push_back(std::move(first));
  while (ok() && TakeOp(",")) {
    if (EndsTuple() || IsName("in")) break;
    node->kids.push_back(Expression(condition));
  }
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::Expression(bool condition) {
  if (depth_ >= kJinjaMaxNesting) {
    return Fail("expected nesting of at most " + std::to_string(kJinjaMaxNesting) + ", found more");
  }
  ++depth_;
  auto value = Or();
  while (ok() && condition && IsName("if")) {
    auto node = Make(Op::kIfElse);
    Step();
    node->kids.push_back(std::move(value));
    node->kids.push_back(Or());
    node->kids.push_back(TakeName("else") ? Expression(true) : nullptr);
    value = Finish(std::move(node));
  }
  --depth_;
  return value;
}

JinjaNodePtr JinjaExpressionParser::Or() {
  auto first = And();
  if (!IsName("or")) return first;
  auto node = Make(Op::kOr);
  node->kids.push_back(std::move(first));
  while (ok() && TakeName("or")) node->kids.push_back(And());
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::And() {
  auto first = Not();
  if (!IsName("and")) return first;
  auto node = Make(Op::kAnd);
  node->kids.push_back(std::move(first));
  while (ok() && TakeName("and")) node->kids.push_back(Not());
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::Not() {
  int nots = 0;
  for (; IsName("not"); ++nots) Step();
  auto node = Compare();
  // An even number of nots is still a bool: two of them stand for it.
  for (int i = nots > 2 ? 2 + nots % 2 : nots; i > 0; --i) {
    auto outer = Make(Op::kNot);
    outer->kids.push_back(std::move(node));
    node = Finish(std::move(outer));
  }
  return node;
}

JinjaNodePtr JinjaExpressionParser::Compare() {
  static constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
  auto first = Chain(0);
  auto node = Make(Op::kCompare);
  while (ok()) {
    std::string op;
    if (Now().kind == Kind::kOp &&
        std::find(std::begin(kOps), std::end(kOps), Now().text) != std::end(kOps)) {
      op = Now().text;
    } else if (IsName("in")) {
      op = "in";
    } else if (IsName("not") && Next().kind == Kind::kName && Next().text == "in") {
      Step();
      op = "not in";
    } else {
      break;
    }
    Step();
    node->names.push_back(op);
    node->kids.push_back(Chain(0));
  }
  if (node->names.empty()) return first;
  node->kids.insert(node->kids.begin(), std::move(first));
  return Finish(std::move(node));
}

// Levels, loosest first: + -, then ~, then * / // %, then **. All go left to right, as in jinja2.
JinjaNodePtr JinjaExpressionParser::Chain(int level) {
  static const std::vector<std::string_view> kLevels[] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
  if (level == 4) return Unary(true);
  auto first = Chain(level + 1);
  const auto& ops = kLevels[level];
  const auto here = [&] {
    return Now().kind == Kind::kOp && std::find(ops.begin(), ops.end(), Now().text) != ops.end();
  };
  if (!ok() || !here()) return first;
  auto node = Make(level == 1 ? Op::kConcat : Op::kChain);
  node->kids.push_back(std::move(first));
  while (ok() && here()) {
    if (level != 1) node->names.push_back(Now().text);
    Step();
    node->kids.push_back(Chain(level + 1));
  }
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::Unary(bool with_filter) {
  if (depth_ >= kJinjaMaxNesting) {
    return Fail("expected nesting of at most " + std::to_string(kJinjaMaxNesting) + ", found more");
  }
  ++depth_;
  JinjaNodePtr node;
  if (IsOp("-") || IsOp("+")) {
    node = Make(IsOp("-") ? Op::kNegate : Op::kPlus);
    Step();
    node->kids.push_back(Unary(false));
    node = Finish(std::move(node));
  } else {
    node = Primary();
  }
  node = Postfix(std::move(node));
  if (with_filter) node = FilterChain(std::move(node));
  --depth_;
  return node;
}

JinjaNodePtr JinjaExpressionParser::Primary() {
  if (IsOp("(")) return Parenthesis();
  if (IsOp("[")) return ListLiteral();
  if (IsOp("{")) return DictLiteral();
  return Atom();
}

JinjaNodePtr JinjaExpressionParser::Atom() {
  auto node = Make(Op::kLiteral);
  const std::string text = Now().text;
  switch (Now().kind) {
    case Kind::kName:
      if (text == "true" || text == "True" || text == "false" || text == "False") {
        node->value = JinjaValue::Bool((text[0] | 0x20) == 't');
      } else if (text == "none" || text == "None") {
        node->value = JinjaValue::None();
      } else {
        node->op = Op::kName;
        node->name = text;
      }
      break;
    case Kind::kString: {
      std::string joined = text;
      for (; Next().kind == Kind::kString; Step()) joined += Next().text;
      node->value = JinjaValue::Trusted(std::move(joined));
      break;
    }
    case Kind::kInt: {
      int64_t value = 0;
      const auto end = text.data() + text.size();
      if (std::from_chars(text.data(), end, value).ec != std::errc()) return Fail("a number is too large");
      node->value = JinjaValue::Int(value);
      break;
    }
    case Kind::kFloat: {
      double value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      node->value = JinjaValue::Float(value);
      break;
    }
    default:
      return Unexpected("an expression");
  }
  Step();
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::Parenthesis() {
  auto empty = Make(Op::kTuple);
  Step();
  if (TakeOp(")")) return Finish(std::move(empty));
  auto node = Tuple(true);
  ExpectOp(")");
  return node;
}

JinjaNodePtr JinjaExpressionParser::ListLiteral() {
  auto node = Make(Op::kList);
  Step();
  while (ok() && !IsOp("]")) {
    node->kids.push_back(Expression());
    if (!IsOp("]")) ExpectOp(",");
  }
  ExpectOp("]");
  return Finish(std::move(node));
}

JinjaNodePtr JinjaExpressionParser::DictLiteral() {
  auto node = Make(Op::kDict);
  Step();
  while (ok() && !IsOp("}")) {
    node->kids.push_back(Expression());
    ExpectOp(":");
    node->kids.push_back(Expression());
    if (!IsOp("}")) ExpectOp(",");
  }
  ExpectOp("}");
  return Finish(std::move(node));
}

}  // namespace ballast
