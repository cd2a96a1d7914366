// tokenizer.json, run as the `tokenizers` package runs it: 30 kinds of pipeline, 1,000 random strings each
// (tools/make_tokenizer_goldens.py), and files that lie.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/hf_tokenizer_json.h"
#include "engine/load_tokenizer.h"
#include "formats/tensor_file.h"
#include "support/safetensors_builder.h"
#include "support/sanitized.h"
#include "text/hf_pipeline.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kGoldens = std::filesystem::path(BALLAST_TEST_DATA) / "goldens" / "hf_tokenizers";

Json ReadGolden(const std::filesystem::path& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

std::vector<std::string> Kinds() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    if (entry.path().filename() != "texts.json") out.push_back(entry.path().stem());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::unique_ptr<const Tokenizer>> Make(const std::string& json) {
  BALLAST_ASSIGN_OR_RETURN(HfTokenizerJson read, ParseHfTokenizerJson("tokenizer.json", json));
  return MakeHfTokenizer(std::move(read.vocab), std::move(read.pipeline));
}

std::string Fnv(const std::vector<Token>& ids) {
  uint32_t h = 2166136261u;
  for (const Token id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      h = (h ^ ((static_cast<uint32_t>(id) >> shift) & 0xFF)) * 16777619u;
  }
  char text[16];
  std::snprintf(text, sizeof(text), "%08x", h);
  return text;
}

class HfTokenizerGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(HfTokenizerGolden, GivesTheIdsOfTheTokenizersPackage) {
  const Json golden = ReadGolden(kGoldens / (GetParam() + ".json"));
  const std::vector<std::string> texts = ReadGolden(kGoldens / "texts.json");
  const auto made = Make(golden["tokenizer"].dump());
  ASSERT_TRUE(made.ok()) << made.status().message();
  const std::string hashes = golden["hashes"];
  ASSERT_EQ(hashes.size(), texts.size() * 8);
  int wrong = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<Token> ids = (*made)->Encode(texts[i], {.add_special = i % 2 == 1});
    if (i < golden["ids"].size()) {
      EXPECT_EQ(ids, golden["ids"][i].get<std::vector<Token>>()) << texts[i];
    }
    if (Fnv(ids) == hashes.substr(i * 8, 8)) continue;
    if (++wrong <= 3)
      ADD_FAILURE() << "text " << i << ": " << Json(texts[i]).dump() << " gives " << Json(ids).dump();
  }
  EXPECT_EQ(wrong, 0) << "of " << texts.size();
}

INSTANTIATE_TEST_SUITE_P(All, HfTokenizerGolden, ::testing::ValuesIn(Kinds()),
                         [](const auto& test) { return test.param; });

TEST(HfTokenizer, ThirtyKindsAreCompared) { EXPECT_GE(Kinds().size(), 20u); }

// Pipelines that lose nothing give the text back, any bytes at all.
TEST(HfTokenizer, ByteLevelTextComesBack) {
  std::string bytes = "Hello, <|endoftext|> w\xC3\xA9lt \xE4\xBD\xA0\xE5\xA5\xBD\n\n";
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  for (const char* kind : {"gpt2", "smollm2", "deepseek_v3", "falcon", "bloom", "o200k"}) {
    const auto made = Make(ReadGolden(kGoldens / (std::string(kind) + ".json"))["tokenizer"].dump());
    ASSERT_TRUE(made.ok()) << made.status().message();
    for (const bool special : {true, false}) {
      EXPECT_EQ((*made)->Decode((*made)->Encode(bytes, {.parse_special = special})), bytes) << kind;
    }
  }
  for (const char* kind : {"llama2", "mistral", "gemma"}) {
    const auto made = Make(ReadGolden(kGoldens / (std::string(kind) + ".json"))["tokenizer"].dump());
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ((*made)->Decode((*made)->Encode(bytes)), bytes) << kind;
  }
}

TEST(HfTokenizer, PlainTextNeverBecomesAControlToken) {
  for (const std::string& kind : Kinds()) {
    const auto made = Make(ReadGolden(kGoldens / (kind + ".json"))["tokenizer"].dump());
    ASSERT_TRUE(made.ok());
    const Tokenizer& t = **made;
    for (Token id = 0; id < t.size(); ++id) {
      if (!t.IsControl(id) || id == t.vocab().unk) continue;
      for (const Token each : t.Encode(t.vocab().tokens[static_cast<size_t>(id)], {.parse_special = false})) {
        EXPECT_TRUE(!t.IsControl(each) || each == t.vocab().unk) << kind << " " << id;
      }
    }
  }
}

TEST(HfTokenizer, AMegabyteOfOneCharacterTakesLinearTime) {
  for (const std::string kind : {"llama3", "deepseek_llm", "falcon", "llama2", "xlnet", "odd_tokens_nfkc"}) {
    const auto made = Make(ReadGolden(kGoldens / (kind + ".json"))["tokenizer"].dump());
    ASSERT_TRUE(made.ok());
    for (const char* unit : {"a", " ", "\n", "'", "1", "\xCC\x81", "\xE4\xBD\xA0"}) {
      std::string text;
      while (text.size() < (testing::kSanitized ? 1 << 17 : 1 << 20)) text += unit;
      const auto began = std::chrono::steady_clock::now();
      (*made)->Encode(text);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      EXPECT_LT(took.count(), testing::kSanitized ? 30.0 : 4.0) << kind << " " << Json(unit).dump();
    }
  }
}

// ---- Files that lie ----

Json Small() {
  return Json::parse(R"({"added_tokens": [{"id": 3, "content": "<s>", "special": true}],
      "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "post_processor": null, "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

TEST(HfTokenizer, EveryBadFileIsOneClearLine) {
  struct Case {
    std::string what;
    std::function<void(Json&)> spoil;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"no merges", [](Json& j) { j["model"].erase("merges"); }, "model.merges: expected a list of merges"},
      {"no vocab", [](Json& j) { j["model"].erase("vocab"); }, "model.vocab: expected a vocabulary"},
      {"no model", [](Json& j) { j.erase("model"); }, "model: expected an object"},
      {"empty",
       [](Json& j) {
         j["model"]["vocab"] = Json::object();
         j["added_tokens"] = Json::array();
       },
       "at least one"},
      {"word piece", [](Json& j) { j["model"]["type"] = "WordPiece"; }, "found 'WordPiece'"},
      {"id text", [](Json& j) { j["model"]["vocab"]["a"] = "0"; }, "model.vocab: expected ids"},
      {"id negative", [](Json& j) { j["model"]["vocab"]["a"] = -1; }, "ids from 0"},
      {"id giant", [](Json& j) { j["model"]["vocab"]["a"] = 4000000000; }, "ids from 0"},
      {"id far", [](Json& j) { j["model"]["vocab"]["a"] = 4000000; }, "ids close together"},
      {"id twice", [](Json& j) { j["model"]["vocab"]["a"] = 1; }, "token 1: expected one text"},
      {"merge of three", [](Json& j) { j["model"]["merges"] = {"a b c"}; }, "one space between"},
      {"merge unknown", [](Json& j) { j["model"]["merges"] = {"a z"}; }, "merge 0: expected two tokens"},
      {"merge without result", [](Json& j) { j["model"]["merges"] = {"b a"}; }, "join into a token"},
      {"merge of numbers", [](Json& j) { j["model"]["merges"] = {1}; }, "pairs of texts"},
      {"merge of one", [](Json& j) { j["model"]["merges"] = Json::array({Json::array({"a"})}); },
       "pairs of texts"},
      {"bad regex",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
       },
       "regular expression '(a': expected one that PCRE2 compiles"},
      {"deep regex",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", std::string(8000, '(') + std::string(8000, ')')}}},
                               {"behavior", "Isolated"}};
       },
       "regular expression"},
      {"class and class",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}};
       },
       "an intersection"},
      {"no pattern",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"}};
       },
       "pattern: expected"},
      {"unknown step",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Magic"}};
       },
       "found 'Magic'"},
      {"charsmap",
       [](Json& j) {
         j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AA"}};
       },
       "'Precompiled' (a compiled"},
      {"step a number", [](Json& j) { j["normalizer"] = 5; }, "normalizer: expected an object with a type"},
      {"bad template",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "x"}}}}}}};
       },
       "single: expected"},
      {"template id",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {{{"SpecialToken", {{"id", "x"}}}}}},
                                {"special_tokens", {{"x", {{"ids", {99}}}}}}};
       },
       "single: expected"},
      {"added without id", [](Json& j) { j["added_tokens"][0].erase("id"); },
       "added_tokens: expected objects"},
      {"added on another", [](Json& j) { j["added_tokens"][0]["id"] = 1; }, "token 1: expected one text"},
      {"added very long", [](Json& j) { j["added_tokens"][0]["content"] = std::string(5000, 'x'); },
       "at most 1024 bytes"},
  };
  ASSERT_TRUE(Make(Small().dump()).ok());
  for (const Case& c : cases) {
    Json json = Small();
    c.spoil(json);
    const auto made = Make(json.dump());
    ASSERT_FALSE(made.ok()) << c.what;
    EXPECT_EQ(made.status().code(), Code::kModel) << c.what;
    const std::string& text = made.status().message();
    EXPECT_NE(text.find(c.says), std::string::npos) << c.what << ": " << text;
    for (const char ch : text) EXPECT_TRUE(ch >= 0x20 && ch <= 0x7e) << c.what;
  }
}

// ---- Folders ----

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::map<std::string, std::vector<uint8_t>> Folder(const std::string& kind) {
  const Json config = {{"model_type", "llama"},         {"num_hidden_layers", 1},  {"hidden_size", 32},
                       {"num_attention_heads", 4},      {"intermediate_size", 64}, {"rms_norm_eps", 1e-5},
                       {"max_position_embeddings", 256}};
  return {{"config.json", Bytes(config.dump())},
          {"model.safetensors",
           testing::SafetensorsBuilder().Add("model.norm.weight", DType::kF32, {32}).Build()},
          {"tokenizer.json", Bytes(ReadGolden(kGoldens / (kind + ".json"))["tokenizer"].dump())}};
}

TEST(LoadHfTokenizer, NeighboursNameTheSpecialTokens) {
  auto files = Folder("llama2");
  files["tokenizer_config.json"] =
      Bytes(R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": false,
      "tokenizer_class": "LlamaTokenizer"})");
  files["generation_config.json"] = Bytes(R"({"eos_token_id": [2, 5]})");
  const auto file = TensorFile::ParseFolder("folder", std::move(files));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tokenizer = LoadTokenizer(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const Tokenizer& t = **tokenizer;
  EXPECT_EQ(t.vocab().bos, 1);
  EXPECT_EQ(t.vocab().eos, 2);
  EXPECT_FALSE(t.vocab().add_bos);  // the switch wins over the template, as in that class
  EXPECT_TRUE(t.EndsTurn(2));
  EXPECT_TRUE(t.EndsTurn(5));
  EXPECT_FALSE(t.EndsTurn(6));
  EXPECT_TRUE(t.vocab().add_space_prefix);
  // A text in pieces is the text, when the later ones say that they continue it.
  std::vector<Token> parts = t.Encode("Hello");
  for (const Token id : t.Encode("\nworld", {.leading_space = false})) parts.push_back(id);
  EXPECT_EQ(t.Decode(parts), "Hello\nworld");
}

TEST(LoadHfTokenizer, ASecondBosIsNotAdded) {
  const auto file = TensorFile::ParseFolder("folder", Folder("llama3"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tokenizer = LoadTokenizer(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const Tokenizer& t = **tokenizer;
  EXPECT_EQ(t.Encode("<|begin_of_text|>x", {.add_special = true}), t.Encode("x", {.add_special = true}));
  EXPECT_TRUE(t.vocab().add_bos);
}

TEST(LoadHfTokenizer, AFolderWithoutTokenizerSaysSo) {
  auto files = Folder("gpt2");
  files.erase("tokenizer.json");
  const auto file = TensorFile::ParseFolder("folder", std::move(files));
  ASSERT_TRUE(file.ok());
  const auto tokenizer = LoadTokenizer(*file);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().message(), "folder: expected tokenizer.json, found none");
}

}  // namespace
}  // namespace ballast
