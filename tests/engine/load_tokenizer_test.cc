#include "engine/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/tensor_file.h"
#include "support/gguf_builder.h"
#include "text/tokenizer.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSmolLm2[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr char kGemma3[] = "gemma-3-270m-q4_k_m.gguf";

std::string ModelPath(const char* name) { return std::string(BALLAST_MODELS_DIR) + "/" + name; }

std::unique_ptr<const Tokenizer> LoadModel(const char* name) {
  auto file = TensorFile::Open(ModelPath(name));
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  auto tokenizer = LoadTokenizer(*file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

#define SKIP_WITHOUT(name)                                            \
  if (!std::filesystem::exists(ModelPath(name))) {                    \
    GTEST_SKIP() << "needs " << name << " in " << BALLAST_MODELS_DIR; \
  }

// Ids that two independent implementations give (SmolLM2), or one (Gemma 3), for 44 texts.
void ExpectGoldens(const char* model, const char* family) {
  const auto tokenizer = LoadModel(model);
  ASSERT_NE(tokenizer, nullptr);
  std::ifstream in(std::string(BALLAST_TEST_DATA) + "/goldens/tokenizers.json");
  const nlohmann::json texts = nlohmann::json::parse(in).at(family);
  ASSERT_EQ(texts.size(), 44u);
  for (const nlohmann::json& each : texts) {
    const std::string text = each.at("text");
    EXPECT_EQ(tokenizer->Encode(text), each.at("ids").get<std::vector<Token>>()) << text;
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
}

TEST(LoadTokenizerTest, SmolLm2AgreesWithTheGoldens) {
  SKIP_WITHOUT(kSmolLm2);
  ExpectGoldens(kSmolLm2, "smollm2");
}

TEST(LoadTokenizerTest, Gemma3AgreesWithTheGoldens) {
  SKIP_WITHOUT(kGemma3);
  ExpectGoldens(kGemma3, "gemma3");
}

TEST(LoadTokenizerTest, SmolLm2Rules) {
  SKIP_WITHOUT(kSmolLm2);
  const auto tokenizer = LoadModel(kSmolLm2);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 49152);
  EXPECT_THAT(tokenizer->Encode("Hello", {.add_special = true}),
              ElementsAre(19556));  // the file wants no BOS
  EXPECT_TRUE(tokenizer->EndsTurn(tokenizer->Find("<|im_end|>")));
  EXPECT_TRUE(tokenizer->EndsTurn(tokenizer->Find("<|endoftext|>")));
  EXPECT_FALSE(tokenizer->EndsTurn(tokenizer->Find("<|im_start|>")));
  // 0x04 and 0xFF are among the bytes it has no token for.
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a\x04\xFF")), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(LoadTokenizerTest, Gemma3Rules) {
  SKIP_WITHOUT(kGemma3);
  const auto tokenizer = LoadModel(kGemma3);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->Encode("Hello", {.add_special = true}), ElementsAre(2, 9259));
  EXPECT_THAT(tokenizer->Encode("<bos>Hello", {.add_special = true}), ElementsAre(2, 9259));
  EXPECT_TRUE(tokenizer->EndsTurn(tokenizer->Find("<end_of_turn>")));
  EXPECT_TRUE(tokenizer->EndsTurn(tokenizer->Find("<eos>")));
  EXPECT_FALSE(tokenizer->EndsTurn(tokenizer->Find("</s>")));  // an HTML tag here
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(bytes)), bytes);
}

// ---- Files made here ----

GgufBuilder SmallSentencePiece() {
  GgufBuilder file;
  file.Set("tokenizer.ggml.model", "llama")
      .Set("tokenizer.ggml.tokens",
           std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81", "a"})
      .Set("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, 0, -1, -2})
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 6, 1, 1})
      .Set("tokenizer.ggml.bos_token_id", uint32_t{1})
      .Set("tokenizer.ggml.eos_token_id", uint32_t{2})
      .Set("tokenizer.ggml.unknown_token_id", uint32_t{0});
  return file;
}

GgufBuilder SmallByteLevel() {
  GgufBuilder file;
  file.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.pre", "gpt-2")
      .Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<eos>"})
      .Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 3})
      .Set("tokenizer.ggml.merges", std::vector<std::string>{"a b"})
      .Set("tokenizer.ggml.bos_token_id", uint32_t{3})
      .Set("tokenizer.ggml.eos_token_id", uint32_t{3});
  return file;
}

Result<std::unique_ptr<const Tokenizer>> Load(const GgufBuilder& builder) {
  auto file = TensorFile::Parse("small.gguf", builder.Build());
  if (!file.ok()) return file.status();
  return LoadTokenizer(*file);
}

TEST(LoadTokenizerTest, SilentFilesFollowTheHabitOfTheFamily) {
  auto sentencepiece = Load(SmallSentencePiece());
  ASSERT_TRUE(sentencepiece.ok()) << sentencepiece.status().message();
  EXPECT_THAT((*sentencepiece)->Encode("a\n", {.add_special = true}), ElementsAre(1, 4, 5, 3));
  auto byte_level = Load(SmallByteLevel());
  ASSERT_TRUE(byte_level.ok()) << byte_level.status().message();
  EXPECT_THAT((*byte_level)->Encode("ab", {.add_special = true}), ElementsAre(2));
  GgufBuilder llama3 = SmallByteLevel();
  llama3.Remove("tokenizer.ggml.pre");
  llama3.Set("tokenizer.ggml.pre", "llama-bpe");
  auto with_bos = Load(llama3);
  ASSERT_TRUE(with_bos.ok()) << with_bos.status().message();
  EXPECT_THAT((*with_bos)->Encode("ab", {.add_special = true}), ElementsAre(3, 2));
}

TEST(LoadTokenizerTest, TheFileHasTheLastWord) {
  GgufBuilder file = SmallSentencePiece();
  file.Set("tokenizer.ggml.add_bos_token", false)
      .Set("tokenizer.ggml.add_eos_token", true)
      .Set("tokenizer.ggml.add_space_prefix", false);
  auto tokenizer = Load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_THAT((*tokenizer)->Encode("a", {.add_special = true}), ElementsAre(5, 2));
}

struct Bad {
  const char* name;
  std::function<void(GgufBuilder*)> spoil;
  const char* message;
};

void Replace(GgufBuilder* file, std::string_view key, const auto& value) {
  file->Remove(key);
  file->Set(key, value);
}

TEST(LoadTokenizerTest, BadMetadataIsRefusedByKey) {
  const std::vector<Bad> cases = {
      {"no model", [](GgufBuilder* f) { f->Remove("tokenizer.ggml.model"); },
       "tokenizer.ggml.model: expected gpt2"},
      {"bert", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.model", "bert"); },
       "found 'bert' (WordPiece)"},
      {"t5", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.model", "t5"); },
       "found 't5' (SentencePiece unigram)"},
      {"rwkv", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.model", "rwkv"); }, "found 'rwkv'"},
      {"model no text", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.model", 5); },
       "tokenizer.ggml.model"},
      {"unknown pre", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.pre", "zork"); }, "found 'zork'"},
      {"no tokens", [](GgufBuilder* f) { f->Remove("tokenizer.ggml.tokens"); }, "tokenizer.ggml.tokens"},
      {"empty tokens",
       [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.tokens", std::vector<std::string>{}); },
       "expected an id below 0"},
      {"token numbers",
       [](GgufBuilder* f) {
         Replace(f, "tokenizer.ggml.tokens", std::vector<int32_t>{1, 2});
       },
       "tokenizer.ggml.tokens: expected a list of texts"},
      {"no merges", [](GgufBuilder* f) { f->Remove("tokenizer.ggml.merges"); }, "tokenizer.ggml.merges"},
      {"short types",
       [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.token_type", std::vector<int32_t>{1}); },
       "token types: expected one for each of the 4 tokens, found 1"},
      {"types text",
       [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.token_type", std::vector<std::string>{"1"}); },
       "tokenizer.ggml.token_type: expected a list of numbers"},
      {"huge type",
       [](GgufBuilder* f) {
         Replace(f, "tokenizer.ggml.token_type", std::vector<uint64_t>{1, 1, 1, uint64_t{1} << 63});
       },
       "tokenizer.ggml.token_type: expected small whole numbers"},
      {"bos", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.bos_token_id", uint32_t{4}); },
       "tokenizer.ggml.bos_token_id: expected an id below 4, found 4"},
      {"eos", [](GgufBuilder* f) { Replace(f, "tokenizer.ggml.eos_token_id", uint32_t{0xFFFFFFFF}); },
       "tokenizer.ggml.eos_token_id: expected an id below 4"},
      {"eot", [](GgufBuilder* f) { f->Set("tokenizer.ggml.eot_token_id", int32_t{-7}); }, "eot_token_id"},
      {"add_bos", [](GgufBuilder* f) { f->Set("tokenizer.ggml.add_bos_token", "yes"); }, "add_bos_token"},
  };
  for (const Bad& bad : cases) {
    GgufBuilder file = SmallByteLevel();
    bad.spoil(&file);
    const auto tokenizer = Load(file);
    ASSERT_FALSE(tokenizer.ok()) << bad.name;
    EXPECT_EQ(tokenizer.status().code(), Code::kModel) << bad.name;
    EXPECT_THAT(tokenizer.status().message(), StartsWith("small.gguf: ")) << bad.name;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(bad.message)) << bad.name;
  }
}

TEST(LoadTokenizerTest, SentencePieceNeedsScores) {
  GgufBuilder file = SmallSentencePiece();
  file.Remove("tokenizer.ggml.scores");
  EXPECT_THAT(Load(file).status().message(),
              HasSubstr("token scores: expected one for each of the 6 tokens"));
}

}  // namespace
}  // namespace ballast
