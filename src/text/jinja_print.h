// How values are written: Python's str and repr, and json.dumps.
//
// Thread safety: pure functions but for the runtime's budget. Invariant: where anything written came from
// data, the whole text is data.
#ifndef BALLAST_TEXT_JINJA_PRINT_H_
#define BALLAST_TEXT_JINJA_PRINT_H_

#include <optional>
#include <string>

#include "text/jinja_runtime.h"

namespace ballast {

std::string JinjaFloatText(double value);  // as Python prints it: 1.0, 1e-05, inf
MarkedText JinjaRepr(JinjaRuntime* rt, const JinjaValue& value);

struct JinjaJsonStyle {
  std::optional<std::string> indent;  // of one level; none: all in one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ensure_ascii = false, sort_keys = false;
};
MarkedText JinjaJson(JinjaRuntime* rt, const JinjaValue& value, const JinjaJsonStyle& style);

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_PRINT_H_
