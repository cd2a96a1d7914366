// What a template cannot do: run for ever, fill the memory, overflow the stack, reach outside, change its
// input.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/sanitized.h"
#include "text/jinja.h"
#include "text/jinja_json.h"

namespace ballast {
namespace {

using testing::Json;
using testing::ToJinja;

Result<std::string> Render(std::string_view source, const Json& context = Json::object(),
                           const JinjaLimits& limits = {}) {
  BALLAST_ASSIGN_OR_RETURN(const JinjaTemplate made, JinjaTemplate::Parse(source));
  return made.Render(ToJinja(context), limits);
}

std::string Times(int count, std::string_view text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

int64_t PeakKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes;
  }
  return 0;
}

// Fails with one line, soon, and without much memory.
void ExpectRefused(const std::string& source, Code code, std::string_view part) {
  SCOPED_TRACE(source.substr(0, 120));
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is counted from here
  const int64_t memory = PeakKilobytes();
  const auto start = std::chrono::steady_clock::now();
  JinjaLimits limits;
  if (testing::kSanitized) limits.max_steps = 400'000;
  const auto result = Render(source, Json::object(), limits);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_FALSE(result.ok()) << result->substr(0, 100);
  EXPECT_EQ(result.status().code(), code) << result.status().message();
  const std::string& message = result.status().message();
  const bool fewer_steps = testing::kSanitized && message.find("steps") != std::string::npos;
  EXPECT_TRUE(fewer_steps || message.find(part) != std::string::npos) << message;
  EXPECT_EQ(result.status().message().find('\n'), std::string::npos);
  if (testing::kSanitized) return;  // too slow, and too large, to be measured
  EXPECT_LT(took.count(), 2.0);
  EXPECT_LT(PeakKilobytes() - memory, 64 * 1024);
}

TEST(JinjaLimits, NestingIsRefusedByTheParserWhateverIsNested) {
  constexpr int kDeep = 60'000;
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{
           {"(", ")"}, {"[", "]"}, {"{1:", "}"}, {"f(", ")"}, {"x[", "]"}, {"-", ""}}) {
    ExpectRefused("{{ " + Times(kDeep, open) + "1" + Times(kDeep, close) + " }}", Code::kModel, "line 1");
    ExpectRefused("{{ " + Times(kDeep, open), Code::kModel, "line 1");
  }
  ExpectRefused("{{ " + Times(9'000, "x.a if 1 else ") + "1 }}", Code::kModel, "nesting");
  const int tags = 9'000;  // as many as a template may be long
  for (const std::string open : {"{% if 1 %}", "{% for x in y %}", "{% macro f() %}", "{% set x %}",
                                 "{% with %}", "{% generation %}", "{% filter trim %}", "{% call f() %}"}) {
    ExpectRefused(Times(tags, open), Code::kModel, "nest");
  }
  ExpectRefused("{{ x" + Times(30'000, "|trim") + " }}", Code::kModel, "nesting");
  ExpectRefused("{{ x" + Times(60'000, ".a") + " }}", Code::kModel, "nesting");
  ExpectRefused("{% set " + Times(60'000, "(") + "a" + Times(60'000, ")") + " = 1 %}", Code::kModel, "deep");
  ExpectRefused(std::string(300 << 10, 'x'), Code::kModel, "bytes");
}

TEST(JinjaLimits, LongChainsAreNotDeep) {
  const auto sum = Render("{{ 1" + Times(20'000, "+1") + " }}");
  ASSERT_TRUE(sum.ok()) << sum.status().message();
  EXPECT_EQ(*sum, "20001");
  EXPECT_TRUE(Render("{{ 'a'" + Times(5'000, "~'b'") + " }}").ok());
  EXPECT_TRUE(Render("{{ " + Times(20'001, "not ") + "1 }}").ok());
  EXPECT_TRUE(Render("{{ 1" + Times(20'000, " or 1") + " }}").ok());
  EXPECT_TRUE(Render("{% if 0 %}" + Times(5'000, "{% elif 0 %}") + "{% endif %}").ok());
}

TEST(JinjaLimits, EndlessWorkEnds) {
  ExpectRefused("{% for i in range(1000000000) %}x{% endfor %}", Code::kInput, "Range too big");
  ExpectRefused("{% for i in range(100000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
                Code::kInput, "steps");
  ExpectRefused("{% for i in range(100000) %}{% for j in range(10000) if false %}{% endfor %}{% endfor %}",
                Code::kInput, "steps");
  ExpectRefused("{% set x = 'ab' * 4000000 %}{% for i in range(100000) %}{{ x.count('ab') }}{% endfor %}",
                Code::kInput, "");
  ExpectRefused("{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set y = x|upper %}{% endfor %}",
                Code::kInput, "steps");
  ExpectRefused(
      "{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set y = x.rfind('ab' * 9 ~ 'c') %}{% "
      "endfor %}",
      Code::kInput, "steps");
  ExpectRefused("{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{% set y = x|tojson %}{% endfor %}",
                Code::kInput, "steps");
  ExpectRefused("{% set x = 'é' * 1000000 %}{% for i in range(100000) %}{% set y = x[900000] %}{% endfor %}",
                Code::kInput, "steps");
  ExpectRefused(
      "{% set x = range(100000)|list %}{% for i in x %}{% if x == (x + [1])[:-1] %}{% endif %}{% endfor %}",
      Code::kInput, "steps");
  ExpectRefused("{% set x = range(100000)|list %}{% for i in x %}{% if -1 in x %}{% endif %}{% endfor %}",
                Code::kInput, "steps");
  ExpectRefused("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", Code::kInput, "nested");
  ExpectRefused("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
                Code::kInput, "steps");
}

TEST(JinjaLimits, RecursionEndsBeforeTheStackAlsoOnAThread) {
  std::thread thread([] {
    ExpectRefused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", Code::kInput, "nested");
    ExpectRefused("{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}", Code::kInput,
                  "nested");
    ExpectRefused("{% macro f(a=f()) %}{% endmacro %}{{ f() }}", Code::kInput, "");
    ExpectRefused("{% macro f() %}" + Times(150, "{% if 1 %}") + "{{ f() }}" + Times(150, "{% endif %}") +
                      "{% endmacro %}{{ f() }}",
                  Code::kInput, "nested");
    ExpectRefused("{% macro f() %}{% set x %}{{ f() }}{% endset %}{% endmacro %}{{ f() }}", Code::kInput,
                  "nested");
  });
  thread.join();
}

TEST(JinjaLimits, MemoryIsCountedBeforeItIsTaken) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "one thread, half an hour: the address sanitizer has seen it";
#endif
  ExpectRefused("{{ ('\\n' * 3000000)|indent }}", Code::kInput, "bytes of values");
  ExpectRefused("{{ ('a b ' * 4000000).split()|length }}", Code::kInput, "bytes of values");
  ExpectRefused("{{ ('é' * 5000000)[::-1]|length }}", Code::kInput, "bytes of values");
  ExpectRefused("{{ 'x' * 1000000000 }}", Code::kInput, "bytes of values");
  ExpectRefused("{{ [1] * 9223372036854775807 }}", Code::kInput, "bytes of values");
  ExpectRefused(
      "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      Code::kInput, "bytes of values");
  ExpectRefused(
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      Code::kInput, "bytes of values");
  ExpectRefused("{% set x = 'a' * 5000 %}{{ x|replace('a', x)|replace('a', x) }}", Code::kInput, "bytes");
  ExpectRefused("{{ (['x' * 1000] * 1000000)|join }}", Code::kInput, "bytes");
  ExpectRefused("{{ ('%999d' * 100000) % (1,) }}", Code::kInput, "");
  ExpectRefused("{{ ('a,' * 5000000).split(',')|length }}", Code::kInput, "bytes");
  ExpectRefused("{{ ('a' * 20000000)|list|length }}", Code::kInput, "bytes");
  ExpectRefused("{% set x = 'y' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}", Code::kInput,
                "bytes of output");
  ExpectRefused("{% macro f(n) %}{% set x = 'y' * 1000000 %}{{ x }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
                Code::kInput, "");
  // Doubly linked sharing: small to hold, endless to print.
  const std::string shared =
      "{% set ns = namespace(x=[1]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  ExpectRefused(shared + "{{ ns.x }}", Code::kInput, "");
  ExpectRefused(shared + "{{ ns.x|tojson(indent=90) }}", Code::kInput, "");
  ExpectRefused(shared + "{% set a = ns.x %}" + shared +
                    "{% for i in range(9) %}{% if a == ns.x %}{% endif %}{% endfor %}",
                Code::kInput, "steps");
}

TEST(JinjaLimits, CyclesAndDepthAreReleased) {
  EXPECT_TRUE(Render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}ok").ok());
  EXPECT_TRUE(Render("{% set l = [] %}{% set _ = l.append(l) %}{{ l|length }}").ok());
  ExpectRefused("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", Code::kInput, "nested too deep");
  ExpectRefused("{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", Code::kInput, "nested too deep");
  EXPECT_TRUE(
      Render("{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}ok")
          .ok());
  EXPECT_TRUE(Render("{% macro f() %}{% endmacro %}{% set g = f %}{{ g() }}ok").ok());
  EXPECT_TRUE(Render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{% "
                     "set ns.f = f %}"
                     "{% endfor %}{{ ns.f() }}")
                  .ok());
}

TEST(JinjaLimits, ABudgetIsPerRendering) {
  const auto made = JinjaTemplate::Parse("{% for i in range(n) %}x{% endfor %}");
  ASSERT_TRUE(made.ok());
  JinjaLimits limits;
  limits.max_steps = 1000;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(made.value().Render(ToJinja(Json{{"n", 200}}), limits).ok());
  EXPECT_FALSE(made.value().Render(ToJinja(Json{{"n", 2000}}), limits).ok());
  limits = JinjaLimits();
  limits.max_output_bytes = 10;
  EXPECT_TRUE(made.value().Render(ToJinja(Json{{"n", 10}}), limits).ok());
  EXPECT_FALSE(made.value().Render(ToJinja(Json{{"n", 11}}), limits).ok());
}

TEST(JinjaLimits, NothingOutsideTheInputsCanBeReached) {
  const Json context = {{"m", {{"role", "user"}, {"tags", {"a"}}}}};
  for (const char* source :
       {"{{ ''.__class__ }}", "{{ m.__class__ }}", "{{ m.tags.__len__ }}", "{{ range.__globals__ }}",
        "{{ m.items.__self__ }}", "{{ self }}", "{{ _context }}", "{{ cycler }}", "{{ joiner }}"}) {
    const auto printed = Render(source, context);
    ASSERT_TRUE(printed.ok()) << source;
    EXPECT_EQ(*printed, "") << source;
  }
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ m.__class__() }}", "{{ open('/etc/passwd') }}"}) {
    EXPECT_FALSE(Render(source, context).ok()) << source;
  }
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% block b %}{% endblock %}",
        "{% do 1 %}", "{% for x in y recursive %}{% endfor %}", "{{ f(*args) }}"}) {
    const auto refused = Render(source, context);
    ASSERT_FALSE(refused.ok()) << source;
    EXPECT_EQ(refused.status().code(), Code::kModel) << source;
  }
}

TEST(JinjaLimits, ATemplateChangesNothingItWasGiven) {
  const JinjaValue context = ToJinja(Json{{"l", {1, 2}}, {"d", {{"a", 1}}}});
  const auto append = JinjaTemplate::Parse("{% set _ = l.append(3) %}");
  EXPECT_FALSE(append.value().Render(context).ok());
  for (const char* source :
       {"{% set d.b = 2 %}", "{{ d.update({'b': 2}) }}", "{{ d.pop('a') }}", "{{ l.clear() }}"}) {
    EXPECT_FALSE(JinjaTemplate::Parse(source).value().Render(context).ok()) << source;
  }
  EXPECT_TRUE(JinjaTemplate::Parse("{% set l = 5 %}{% set d = 6 %}").value().Render(context).ok());
  EXPECT_EQ(*JinjaTemplate::Parse("{{ l }}{{ d }}").value().Render(context), "[1, 2]{'a': 1}");
  EXPECT_EQ(*Render("{% set l = [] %}{% set _ = l.append(1) %}{{ l }}"), "[1]");
}

TEST(JinjaLimits, OneTemplateRendersOnManyThreads) {
  const auto made = JinjaTemplate::Parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content|length %}{{ m.role "
      "~ ns.n }}{% endfor %}");
  const JinjaValue context =
      ToJinja(Json{{"messages", {{{"role", "a"}, {"content", "xy"}}, {{"role", "b"}, {"content", "z"}}}}});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto out = made.value().Render(context);
        if (!out.ok() || *out != "a2b3") ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(JinjaLimits, ErrorsNameTheLine) {
  EXPECT_EQ(Render("a\n{% set x = 1 %}\n{{ y.z }}").status().message(),
            "chat template, line 3: 'y' is undefined");
  EXPECT_EQ(Render("a\nb {{ 1 +\n }}").status().message(),
            "chat template, line 3: expected an expression, found the end of the tag");
  EXPECT_EQ(Render("\n\n{{ 'x'|nope }}").status().message(),
            "chat template, line 3: No filter named 'nope'.");
}

}  // namespace
}  // namespace ballast
