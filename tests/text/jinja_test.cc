// The interpreter against jinja2 itself: tests/goldens/templates.json holds what Python made of every
// template in tests/goldens/templates/ (tools/make_template_goldens.py).
#include "text/jinja.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "text/jinja_json.h"

namespace ballast {
namespace {

using testing::Json;
using testing::ToJinja;

std::string ReadFile(const std::string& name) {
  std::ifstream file(std::string(BALLAST_TEST_DATA) + "/goldens/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const Json& Goldens() {
  static const Json* const goldens = new Json(Json::parse(ReadFile("templates.json")));
  return *goldens;
}

Result<std::string> Render(std::string_view source, const JinjaValue& context) {
  BALLAST_ASSIGN_OR_RETURN(const JinjaTemplate made, JinjaTemplate::Parse(source));
  JinjaLimits limits;
  limits.now = Goldens()["now"].get<int64_t>();
  return made.Render(context, limits);
}

void ExpectAsPython(const Json& wanted, std::string_view source, const JinjaValue& context) {
  const auto got = Render(source, context);
  if (wanted.is_string()) {
    ASSERT_TRUE(got.ok()) << got.status().message();
    const auto* bytes = reinterpret_cast<const uint8_t*>(got->data());
    EXPECT_EQ(Sha256Hex({bytes, got->size()}).substr(0, 16), wanted.get<std::string>()) << *got;
    return;
  }
  if (wanted.contains("text")) {
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(*got, wanted["text"].get<std::string>());
    return;
  }
  ASSERT_FALSE(got.ok()) << *got;
  const std::string& message = got.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos);
  if (wanted.contains("raise")) {
    EXPECT_EQ(message, wanted["raise"].get<std::string>());
    EXPECT_EQ(got.status().code(), Code::kInput);
  } else if (wanted.contains("undefined")) {
    EXPECT_TRUE(message.ends_with(wanted["undefined"].get<std::string>())) << message;
    EXPECT_EQ(got.status().code(), Code::kInput);
  } else if (wanted.contains("syntax")) {
    EXPECT_EQ(got.status().code(), Code::kModel) << message;
    EXPECT_NE(message.find("line "), std::string::npos) << message;
  }
}

TEST(Jinja, EveryConstructMeansWhatItMeansInPython) {
  const std::string lines = ReadFile("templates/snippets.txt");
  const JinjaValue context = ToJinja(Goldens()["snippet_context"]);
  size_t at = 0, count = 0;
  for (const Json& wanted : Goldens()["snippets"]) {
    const size_t end = lines.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string source = lines.substr(at, end - at);
    SCOPED_TRACE(source);
    ExpectAsPython(wanted, source, context);
    at = end + 1;
    ++count;
  }
  EXPECT_EQ(at, lines.size());
  EXPECT_GE(count, 140u);
}

JinjaValue Context(const Json& conversation) {
  Json context = Goldens()["common"];
  context.update(conversation);
  return ToJinja(context);
}

TEST(Jinja, TemplatesOfEveryShapePrintWhatTheyPrintInPython) {
  size_t templates = 0, compared = 0;
  for (const auto& [name, goldens] : Goldens()["templates"].items()) {
    const std::string source = ReadFile("templates/" + name + ".jinja");
    ++templates;
    const std::pair<const char*, const char*> kinds[] = {{"conversations", "full"}, {"random", "digests"}};
    for (const auto& [conversations, results] : kinds) {
      const Json& list = Goldens()[conversations];
      ASSERT_EQ(list.size(), goldens[results].size());
      for (size_t i = 0; i < list.size(); ++i) {
        SCOPED_TRACE(name + " " + conversations + " " + std::to_string(i));
        ExpectAsPython(goldens[results][i], source, Context(list[i]));
        ++compared;
      }
    }
  }
  EXPECT_GE(templates, 40u);
  EXPECT_GE(compared, 4000u);
}

}  // namespace
}  // namespace ballast
