#include "text/jinja.h"

#include <utility>

#include "text/jinja_ast.h"
#include "text/jinja_eval.h"
#include "text/jinja_parser.h"
#include "text/jinja_runtime.h"

namespace ballast {

struct JinjaProgram {
  JinjaNode::Body body;
};

Result<JinjaTemplate> JinjaTemplate::Parse(std::string_view source) {
  BALLAST_ASSIGN_OR_RETURN(auto body, ParseJinja(source));
  auto program = std::make_shared<JinjaProgram>();
  program->body = std::move(body);
  JinjaTemplate made;
  made.program_ = std::move(program);
  return made;
}

Result<std::string> JinjaTemplate::Render(const JinjaValue& context, const JinjaLimits& limits) const {
  BALLAST_ASSIGN_OR_RETURN(const MarkedText text, RenderMarked(context, limits));
  return text.str();
}

Result<MarkedText> JinjaTemplate::RenderMarked(const JinjaValue& context, const JinjaLimits& limits) const {
  BALLAST_CHECK(program_ != nullptr);
  JinjaRuntime runtime(limits);
  JinjaEvaluator evaluator(&runtime, context);
  MarkedText text = evaluator.Render(program_->body);
  if (!runtime.ok()) return runtime.status();
  return text;
}

}  // namespace ballast
