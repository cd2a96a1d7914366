// The names a template finds: filters, tests, globals, and methods of values.
//
// Thread safety: pure functions but for the runtime they are given. Invariant: nothing here reaches outside
// the values, the limits and the budget.
#ifndef BALLAST_TEXT_JINJA_BUILTINS_H_
#define BALLAST_TEXT_JINJA_BUILTINS_H_

#include <string_view>

#include "text/jinja_runtime.h"

namespace ballast {

// `self`: what is filtered, or whose method it is; undefined for a global.
using JinjaBuiltin = JinjaValue (*)(JinjaRuntime* rt, const JinjaValue& self, const JinjaArgs& args);
using JinjaTest = bool (*)(JinjaRuntime* rt, const JinjaValue& value, const JinjaArgs& args);

struct JinjaBuiltinName {
  std::string_view name;
  JinjaBuiltin run;
};

// Null when there is none of that name.
JinjaBuiltin FindJinjaMethod(const JinjaValue& subject, std::string_view name);
JinjaBuiltin FindJinjaGlobal(std::string_view name);
// Fail with kModel when there is none of that name.
JinjaValue ApplyJinjaFilter(JinjaRuntime* rt, std::string_view name, const JinjaValue& value,
                            const JinjaArgs& args);
bool ApplyJinjaTest(JinjaRuntime* rt, std::string_view name, const JinjaValue& value, const JinjaArgs& args);

// "..." % args.
JinjaValue JinjaPercentFormat(JinjaRuntime* rt, const JinjaValue& format, const JinjaArgs& args);

// The parts of the table of filters, each in a file of its own.
JinjaBuiltin FindJinjaTextFilter(std::string_view name);
JinjaBuiltin FindJinjaListFilter(std::string_view name);

// An argument that must be text, a number, or left out; fails otherwise.
int64_t JinjaIntArg(JinjaRuntime* rt, const JinjaValue* arg, int64_t missing);
std::string JinjaTextArg(JinjaRuntime* rt, const JinjaValue* arg, std::string_view missing);
bool JinjaBoolArg(const JinjaRuntime& rt, const JinjaValue* arg, bool missing);

template <size_t N>
JinjaBuiltin FindJinjaName(const JinjaBuiltinName (&table)[N], std::string_view name) {
  for (const JinjaBuiltinName& entry : table) {
    if (entry.name == name) return entry.run;
  }
  return nullptr;
}

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_BUILTINS_H_
