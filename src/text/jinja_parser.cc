#include "text/jinja_parser.h"

#include <algorithm>

namespace ballast {
namespace {

class Parser : public JinjaExpressionParser {
 public:
  using JinjaExpressionParser::JinjaExpressionParser;

  Result<JinjaNode::Body> Run() {
    JinjaNode::Body body = Statements({});
    if (ok() && Now().kind != Kind::kEnd) Unexpected("the end of the template");
    if (!ok()) return status();
    return body;
  }

 private:
  bool AtTag(std::initializer_list<std::string_view> names) const {
    if (Now().kind != Kind::kBlockBegin || Next().kind != Kind::kName) return false;
    return std::find(names.begin(), names.end(), Next().text) != names.end();
  }

  void EndTag() {
    if (Now().kind == Kind::kBlockEnd) {
      Step();
    } else {
      Unexpected("the end of the tag");
    }
  }

  // Statements up to a tag of `ends`, which stays.
  JinjaNode::Body Statements(std::initializer_list<std::string_view> ends) {
    JinjaNode::Body body;
    if (depth_ >= kJinjaMaxNesting) Fail("blocks are nested too deep");
    ++depth_;
    while (ok() && Now().kind != Kind::kEnd && !AtTag(ends)) {
      auto node = One();
      if (node != nullptr) body.push_back(std::move(node));
    }
    --depth_;
    return body;
  }

  // Statements and the end tag called `end`.
  JinjaNode::Body BodyUntil(std::string_view end) {
    EndTag();
    auto body = Statements({end});
    CloseWith(end);
    return body;
  }

  void CloseWith(std::string_view end) {
    if (!AtTag({end})) {
      Unexpected("'{% " + std::string(end) + " %}'");
      return;
    }
    Step();
    Step();
    EndTag();
  }

  JinjaNodePtr One() {
    if (Now().kind == Kind::kData) {
      auto node = Make(Op::kData);
      node->value = JinjaValue::Trusted(Now().text);
      Step();
      return node;
    }
    if (Now().kind == Kind::kVarBegin) {
      auto node = Make(Op::kOutput);
      Step();
      node->kids.push_back(Tuple(true));
      if (Now().kind == Kind::kVarEnd) {
        Step();
      } else {
        Unexpected("'}}'");
      }
      return Finish(std::move(node));
    }
    Step();
    return Tag();
  }

  JinjaNodePtr Tag() {
    const std::string name = Now().kind == Kind::kName ? Now().text : "";
    if (name == "if") return If();
    if (name == "for") return For();
    if (name == "set") return Set();
    if (name == "macro") return Macro();
    if (name == "call") return CallBlock();
    if (name == "filter") return FilterBlock();
    if (name == "with") return With();
    if (name == "generation") return Generation();
    if (name == "break" || name == "continue") return Jump(name == "break");
    if (name == "else" || name == "elif" || name.starts_with("end")) return Fail("unexpected '" + name + "'");
    return Fail("the tag '" + name.substr(0, 40) + "' is not supported");
  }

  JinjaNodePtr If() {
    auto node = Make(Op::kIf);
    do {
      Step();
      node->kids.push_back(Tuple(false));
      EndTag();
      node->bodies.push_back(Statements({"elif", "else", "endif"}));
      if (!AtTag({"elif"})) break;
      Step();
    } while (ok());
    if (AtTag({"else"})) {
      Step();
      Step();
      EndTag();
      node->bodies.push_back(Statements({"endif"}));
    }
    CloseWith("endif");
    return Finish(std::move(node));
  }

  JinjaNodePtr For() {
    auto node = Make(Op::kFor);
    Step();
    node->kids.push_back(Target());
    if (!TakeName("in")) return Unexpected("'in'");
    node->kids.push_back(Tuple(false));
    node->kids.push_back(TakeName("if") ? Expression() : nullptr);
    if (IsName("recursive")) return Fail("recursive loops are not supported");
    EndTag();
    ++loops_;
    node->bodies.push_back(Statements({"else", "endfor"}));
    --loops_;
    if (AtTag({"else"})) {
      Step();
      Step();
      EndTag();
      node->bodies.push_back(Statements({"endfor"}));
    }
    CloseWith("endfor");
    return Finish(std::move(node));
  }

  JinjaNodePtr Set() {
    auto node = Make(Op::kSet);
    Step();
    auto target = Target();
    if (target != nullptr && target->op == Op::kName && TakeOp(".")) {
      auto attribute = Make(Op::kAttribute);
      attribute->name = ExpectName("the name of an attribute");
      attribute->kids.push_back(std::move(target));
      target = Finish(std::move(attribute));
    }
    node->kids.push_back(std::move(target));
    if (TakeOp("=")) {
      node->kids.push_back(Tuple(true));
      EndTag();
      return Finish(std::move(node));
    }
    node->op = Op::kSetBlock;
    node->kids.push_back(TakeOp("|") ? FilterChain(nullptr) : nullptr);
    node->bodies.push_back(BodyUntil("endset"));
    return Finish(std::move(node));
  }

  // A body whose loops are its own: break inside a macro does not leave the loop around it.
  JinjaNode::Body OwnBody(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    auto body = BodyUntil(end);
    loops_ = loops;
    return body;
  }

  JinjaNodePtr Macro() {
    auto node = Make(Op::kMacro);
    Step();
    node->name = ExpectName("the name of a macro");
    ExpectOp("(");
    Parameters(node.get());
    node->bodies.push_back(OwnBody("endmacro"));
    return Finish(std::move(node));
  }

  JinjaNodePtr CallBlock() {
    auto node = Make(Op::kCallBlock);
    Step();
    auto caller = Make(Op::kMacro);
    caller->name = "caller";
    if (TakeOp("(")) Parameters(caller.get());
    auto call = Expression();
    if (ok() && (call == nullptr || call->op != Op::kCall)) return Fail("expected a call after 'call'");
    node->kids.push_back(std::move(call));
    caller->bodies.push_back(OwnBody("endcall"));
    node->kids.push_back(Finish(std::move(caller)));
    return Finish(std::move(node));
  }

  JinjaNodePtr FilterBlock() {
    auto node = Make(Op::kFilterBlock);
    Step();
    node->kids.push_back(FilterChain(nullptr));
    node->bodies.push_back(OwnBody("endfilter"));
    return Finish(std::move(node));
  }

  JinjaNodePtr With() {
    auto node = Make(Op::kWith);
    Step();
    while (ok() && Now().kind != Kind::kBlockEnd) {
      if (!node->kids.empty()) ExpectOp(",");
      auto target = Make(Op::kName);
      target->name = ExpectName("a name to assign to");
      node->kids.push_back(Finish(std::move(target)));
      ExpectOp("=");
      node->kids.push_back(Expression());
    }
    node->bodies.push_back(BodyUntil("endwith"));
    return Finish(std::move(node));
  }

  JinjaNodePtr Generation() {
    auto node = Make(Op::kScope);
    Step();
    node->bodies.push_back(BodyUntil("endgeneration"));
    return Finish(std::move(node));
  }

  JinjaNodePtr Jump(bool breaks) {
    auto node = Make(breaks ? Op::kBreak : Op::kContinue);
    if (loops_ == 0) return Fail("'break' and 'continue' stand outside a loop");
    Step();
    EndTag();
    return node;
  }

  int loops_ = 0;
};

}  // namespace

Result<JinjaNode::Body> ParseJinja(std::string_view source) {
  BALLAST_ASSIGN_OR_RETURN(auto tokens, LexJinja(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace ballast
