// A hostile template over a fixed conversation: it ends within its limits, its errors are one line, and
// nothing a user typed becomes template text.
//
// Input: the template.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja.h"

namespace {

using ballast::JinjaValue;

// Stands in every text of the conversation, and in no template that was not written to hold it.
constexpr std::string_view kTyped = "\x02typed\x03";

JinjaValue Message(std::string_view role, std::string_view content) {
  return JinjaValue::Dict({{"role", JinjaValue::Trusted(std::string(role))},
                           {"content", JinjaValue::String(std::string(content) + std::string(kTyped))}});
}

JinjaValue Conversation() {
  const JinjaValue tool = JinjaValue::Dict(
      {{"name", JinjaValue::String("f")}, {"arguments", JinjaValue::Dict({{"n", JinjaValue::Int(-7)}})}});
  return JinjaValue::Dict(
      {{"messages",
        JinjaValue::List({Message("system", " s\n"), Message("user", "h\xC3\xA9llo \xF0\x9F\x98\x80"),
                          Message("assistant", "<think>a</think>b"), Message("user", "bad \xFF\xC3")})},
       {"tools", JinjaValue::List({tool})},
       {"x", JinjaValue::Float(2.5)},
       {"bos_token", JinjaValue::Trusted("<s>")},
       {"add_generation_prompt", JinjaValue::Bool(true)}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  ballast::JinjaLimits limits;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1 << 16;
  limits.max_memory_bytes = 4 << 20;
  const auto made = ballast::JinjaTemplate::Parse(source);
  if (!made.ok()) {
    BALLAST_CHECK(made.status().code() == ballast::Code::kModel);
    BALLAST_CHECK(made.status().message().find('\n') == std::string::npos);
    return 0;
  }
  static const JinjaValue* const conversation = new JinjaValue(Conversation());
  const auto text = made.value().RenderMarked(*conversation, limits);
  if (!text.ok()) return 0;
  BALLAST_CHECK(text->size() <= limits.max_output_bytes);
  const bool spelled = source.find_first_of("\x02\\") != std::string_view::npos;
  size_t bytes = 0;
  for (const auto& run : text->Runs()) {
    BALLAST_CHECK(!run.text.empty());
    bytes += run.text.size();
    BALLAST_CHECK(run.data || spelled || run.text.find(kTyped) == std::string_view::npos);
  }
  BALLAST_CHECK(bytes == text->size());
  const auto again = made.value().Render(*conversation, limits);
  BALLAST_CHECK(again.ok() && again.value() == text->str());
  return 0;
}
