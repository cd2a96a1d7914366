// Template source -> statements.
//
// Purpose: the grammar of jinja2 3 as chat templates use it, with `break` and `continue` and transparent
// `generation` blocks. Left out, with an error that says so: include, import, extends, block, recursive
// loops, *args. Thread safety: pure functions. Invariants: 1. stack is bounded by kJinjaMaxNesting. 2. errors
// are kModel and name the line.
#ifndef BALLAST_TEXT_JINJA_PARSER_H_
#define BALLAST_TEXT_JINJA_PARSER_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace ballast {

Result<JinjaNode::Body> ParseJinja(std::string_view source);

// Expressions over a list of tokens. The first error stays (see status); after it every function returns
// null, and the current token is the end.
class JinjaExpressionParser {
 public:
  explicit JinjaExpressionParser(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  const Status& status() const { return status_; }

 protected:
  using Op = JinjaNode::Op;
  using Kind = JinjaToken::Kind;

  const JinjaToken& Now() const { return tokens_[at_]; }
  const JinjaToken& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Step();
  bool IsOp(std::string_view op) const { return Now().kind == Kind::kOp && Now().text == op; }
  bool IsName(std::string_view name) const { return Now().kind == Kind::kName && Now().text == name; }
  bool TakeOp(std::string_view op);
  bool TakeName(std::string_view name);
  void ExpectOp(std::string_view op);
  std::string ExpectName(std::string_view what);
  JinjaNodePtr Fail(std::string_view what);  // null
  JinjaNodePtr Unexpected(std::string_view wanted);
  bool ok() const { return status_.ok(); }

  JinjaNodePtr Make(Op op) const;
  // Records the node's height; fails when it is too tall.
  JinjaNodePtr Finish(JinjaNodePtr node);

  // What jinja2 calls a tuple: expressions with commas between. `condition`: "a if b else c" allowed.
  JinjaNodePtr Tuple(bool condition);
  JinjaNodePtr Expression(bool condition = true);
  JinjaNodePtr Target();                           // of a for: names
  JinjaNodePtr FilterChain(JinjaNodePtr subject);  // null subject: the first filter stands without a "|"
  JinjaNodePtr Unary(bool with_filter);
  // Parameters of a macro after its "(": into node->names and defaults into node->kids.
  void Parameters(JinjaNode* node);

 private:
  JinjaNodePtr Or();
  JinjaNodePtr And();
  JinjaNodePtr Not();
  JinjaNodePtr Compare();
  JinjaNodePtr Chain(int level);
  JinjaNodePtr Primary();
  JinjaNodePtr Atom();
  JinjaNodePtr Postfix(JinjaNodePtr node);
  JinjaNodePtr Subscript(JinjaNodePtr subject);
  JinjaNodePtr Filter(JinjaNodePtr subject);
  JinjaNodePtr Test(JinjaNodePtr subject);
  JinjaNodePtr ListLiteral();
  JinjaNodePtr DictLiteral();
  JinjaNodePtr Parenthesis();
  void Arguments(JinjaNode* node);  // after "("
  bool EndsTuple() const;

  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  Status status_;

 protected:
  int depth_ = 0;  // of the functions that may nest
};

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_PARSER_H_
