// JinjaTemplate: a chat template, run as its author wrote it.
//
// Purpose: the subset of jinja2 that chat templates use, with the settings, filters and globals that
// transformers gives them, written as a closed interpreter: a template reaches its inputs and nothing else,
// and every rendering ends within its limits. Differences from jinja2, all on the lenient side: integers are
// 64 bits (more is an error), the results of map, select and the like may be indexed and counted, a list made
// by the template has append(). Thread safety: const after Parse; Render may run on several threads at once.
// Invariants: 1. the output depends on the context and the limits alone (the clock is one of the limits). 2.
// A failed rendering gives no text. 3. Stack, steps, memory and output are bounded, whatever the template.
#ifndef BALLAST_TEXT_JINJA_H_
#define BALLAST_TEXT_JINJA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja_value.h"

namespace ballast {

struct JinjaLimits {
  int64_t max_steps = 2'000'000;  // expressions and statements run, and bytes handled, 256 a step
  size_t max_output_bytes = 16 << 20;
  size_t max_memory_bytes = 40 << 20;  // of all values that live at once
  int64_t now = 0;                     // what strftime_now prints: local time, as seconds since 1970
};

struct JinjaProgram;

class JinjaTemplate {
 public:
  // kModel with the line where the source is not a template.
  static Result<JinjaTemplate> Parse(std::string_view source);

  // `context` is a dict. kInput when the template refuses it: the text of raise_exception as it is, or
  // "chat template, line N: ..."; kModel when the template asks for a filter or test there is not.
  Result<std::string> Render(const JinjaValue& context, const JinjaLimits& limits = {}) const;
  // The same, with the bytes that came from the context marked as data.
  Result<MarkedText> RenderMarked(const JinjaValue& context, const JinjaLimits& limits = {}) const;

 private:
  std::shared_ptr<const JinjaProgram> program_;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_H_
