// The parsed form of a template.
//
// Thread safety: const after parsing. Invariant: no node is nested deeper than kJinjaMaxNesting, so walking
// the tree (and freeing it) uses bounded stack.
#ifndef BALLAST_TEXT_JINJA_AST_H_
#define BALLAST_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <vector>

#include "text/jinja_value.h"

namespace ballast {

constexpr int kJinjaMaxNesting = 200;

struct JinjaNode;
using JinjaNodePtr = std::unique_ptr<JinjaNode>;

struct JinjaNode {
  enum class Op : uint8_t {
    // Expressions.
    kLiteral,    // value
    kName,       // name
    kList,       // kids
    kTuple,      // kids
    kDict,       // kids: key, value, key, value, ...
    kAttribute,  // kids[0] . name
    kItem,       // kids[0] [ kids[1] ]
    kSlice,      // kids[0] [ kids[1] : kids[2] : kids[3] ], each bound may be null
    kCall,       // kids[0] ( kids[1..] ); the last names.size() kids are keyword arguments
    kFilter,     // kids[0] | name ( kids[1..] ), as kCall; kids[0] null: of a block
    kTest,       // kids[0] is name ( kids[1..] ), as kCall
    kNegate,     // - kids[0]
    kPlus,       // + kids[0]
    kNot,        // not kids[0]
    kAnd,        // kids, left to right
    kOr,
    kConcat,   // kids joined by ~
    kChain,    // kids[0] names[0] kids[1] names[1] ..., left to right: + - * / // % **
    kCompare,  // the same with == != < <= > >= in "not in": all pairs must hold
    kIfElse,   // kids[0] if kids[1] else kids[2] (null: undefined)
    // Statements.
    kData,         // value, printed as it is
    kOutput,       // print kids[0]
    kIf,           // kids: conditions; bodies[i] for each, then perhaps one for else
    kFor,          // kids: target, iterable, filter (may be null); bodies[0], perhaps bodies[1] for else
    kSet,          // kids: target, value
    kSetBlock,     // kids: target, filter chain (may be null); bodies[0]
    kMacro,        // name; names: parameters, kids: defaults of the last ones; bodies[0]
    kCallBlock,    // kids: the call, the macro that it sees as `caller`
    kFilterBlock,  // kids[0]: filter chain; bodies[0]
    kWith,         // kids: target, value, target, value, ...; bodies[0]
    kScope,        // bodies[0] in a scope of its own (generation)
    kBreak,
    kContinue
  };
  using Body = std::vector<JinjaNodePtr>;

  Op op = Op::kLiteral;
  int line = 1;
  int height = 1;  // of the tree below, set by the parser
  std::string name;
  JinjaValue value;
  std::vector<JinjaNodePtr> kids;
  std::vector<std::string> names;
  std::vector<Body> bodies;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_AST_H_
