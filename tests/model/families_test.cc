// Every family against `transformers` (dense) and against the definition of StreamingLLM (past roll-over).
// tests/goldens/families/ is made by tools/make_family_goldens.py: tiny random models as Hugging Face
// folders.
#include "model/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "model/model.h"

namespace ballast {
namespace {

const std::string kFolder = std::string(BALLAST_TEST_DATA) + "/goldens/families/";

struct Golden {
  nlohmann::json json;
  std::vector<int32_t> tokens;
  int64_t sinks = 0, window = 0, every = 1, dense_tokens = 0;

  explicit Golden(const std::string& family) {
    std::ifstream file(kFolder + family + "/golden.json");
    json = nlohmann::json::parse(file);
    tokens = json["tokens"].get<std::vector<int32_t>>();
    sinks = json["sinks"];
    window = json["window"];
    every = json["every"];
    dense_tokens = json["dense_tokens"];
  }
};

struct Loaded {
  ThreadPool pool{2};
  Result<TensorFile> file;
  std::unique_ptr<const Model> model;
  Loaded(const std::string& path, Compute compute) : file(TensorFile::Open(path)) {
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (!file.ok()) return;
    LoadOptions options;
    options.compute = compute;
    Result<std::unique_ptr<const Model>> loaded = Model::Load(*file, options, pool);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (loaded.ok()) model = std::move(loaded).value();
  }
  // Logits of every token, fed in pieces of `chunk`. (token, vocab)
  std::vector<std::vector<float>> Run(Policy policy, int64_t context, int64_t pinned, KvType kv,
                                      std::span<const int32_t> tokens, int64_t chunk) {
    const Result<CachePlan> plan = MakePlan(policy, context, pinned);
    Result<KvCache> cache = KvCache::Create(*plan, model->CacheShape(), kv);
    EXPECT_TRUE(cache.ok()) << cache.status().message();
    Workspace ws;
    const int64_t vocab = model->config().vocab;
    std::vector<std::vector<float>> all;
    for (size_t at = 0; at < tokens.size();) {
      const size_t n = std::min<size_t>(chunk, tokens.size() - at);
      const Segment segment{&*cache, tokens.subspan(at, n)};
      model->Forward({&segment, 1}, ws, pool);
      for (size_t i = 0; i < n; ++i) {
        const int64_t row = static_cast<int64_t>(i);
        all.emplace_back(static_cast<size_t>(vocab));
        model->Logits(ws, {&row, 1}, all.back().data(), pool);
      }
      at += n;
    }
    return all;
  }
};

double Worst(const std::vector<std::vector<float>>& got, const nlohmann::json& want, int64_t every) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<float>& row = got[(i + 1) * every - 1];
    EXPECT_EQ(row.size(), want[i].size());
    for (size_t j = 0; j < row.size(); ++j) {
      const double difference = std::abs(row[j] - want[i][j].get<double>());
      worst = std::max(worst, std::isnan(difference) ? 1e9 : difference);
    }
  }
  return worst;
}

double WorstBetween(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j)
      worst = std::max(worst, std::abs(static_cast<double>(a[i][j]) - b[i][j]));
  }
  return worst;
}

double NegativeLogLikelihood(const std::vector<float>& logits, int32_t token) {
  double sum = 0;
  const double max = *std::max_element(logits.begin(), logits.end());
  for (float v : logits) sum += std::exp(v - max);
  return max + std::log(sum) - logits[token];
}

double MeanNll(const std::vector<std::vector<float>>& rows, const std::vector<int32_t>& tokens) {
  double sum = 0;
  for (size_t i = 0; i + 1 < rows.size(); ++i) sum += NegativeLogLikelihood(rows[i], tokens[i + 1]);
  return sum / static_cast<double>(rows.size() - 1);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, DenseLogitsAreThoseOfTransformers) {
  const Golden golden(GetParam());
  Loaded m(kFolder + GetParam(), Compute::kF32);
  ASSERT_NE(m.model, nullptr);
  const auto tokens = std::span(golden.tokens).first(golden.dense_tokens);
  EXPECT_LT(Worst(m.Run(Policy::kDense, 64, 0, KvType::kF32, tokens, 64), golden.json["dense"], golden.every),
            2e-3);
}

// More than five times the capacity, so that every slot was reused several times.
TEST_P(Families, StreamingLogitsAreThoseOfTheDefinitionHoweverTheTextIsCut) {
  const Golden golden(GetParam());
  ASSERT_GE(static_cast<int64_t>(golden.tokens.size()), 5 * (golden.sinks + golden.window));
  Loaded m(kFolder + GetParam(), Compute::kF32);
  ASSERT_NE(m.model, nullptr);
  const int64_t context = golden.sinks + golden.window;
  std::vector<std::vector<float>> one_by_one;
  for (int64_t chunk : {1, 2, 7, 16, 90}) {
    const auto rows = m.Run(Policy::kSinks, context, golden.sinks, KvType::kF32, golden.tokens, chunk);
    EXPECT_LT(Worst(rows, golden.json["stream"], golden.every), 2e-3) << "chunk " << chunk;
    if (chunk == 1) one_by_one = rows;
    EXPECT_LT(WorstBetween(rows, one_by_one), 1e-4) << "chunk " << chunk;
  }
}

TEST_P(Families, QuantisedCacheAndFastComputeKeepTheLikelihood) {
  const Golden golden(GetParam());
  Loaded exact(kFolder + GetParam(), Compute::kF32), fast(kFolder + GetParam(), Compute::kFast);
  ASSERT_NE(exact.model, nullptr);
  ASSERT_NE(fast.model, nullptr);
  const int64_t context = golden.sinks + golden.window;
  const double reference = MeanNll(
      exact.Run(Policy::kSinks, context, golden.sinks, KvType::kF32, golden.tokens, 16), golden.tokens);
  const double quantised =
      MeanNll(fast.Run(Policy::kSinks, context, golden.sinks, KvType::kQ8, golden.tokens, 16), golden.tokens);
  EXPECT_NEAR(quantised, reference, 0.02);
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Values("llama", "llama3", "mistral", "smollm3", "qwen2", "qwen3", "gemma2",
                                         "gemma3", "phi3", "gptneox", "falcon", "falcon40", "mpt", "stablelm",
                                         "olmo2", "granite", "cohere", "cohere2"),
                         [](const auto& family) { return family.param; });

// The same models as GGUF files, with what llama.cpp's converter changes (tools/make_family_gguf.py): two
// here, all of them in the folder that BALLAST_FAMILIES_GGUF names (tests/long/families.sh).
TEST(FamiliesAsGguf, LogitsAreThoseOfTheFolder) {
  const char* more = std::getenv("BALLAST_FAMILIES_GGUF");
  const std::string folder =
      more != nullptr ? more : std::string(BALLAST_TEST_DATA) + "/goldens/families_gguf";
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const Golden golden(entry.path().stem().string());
    Loaded m(entry.path().string(), Compute::kF32);
    ASSERT_NE(m.model, nullptr);
    const auto tokens = std::span(golden.tokens).first(golden.dense_tokens);
    EXPECT_LT(
        Worst(m.Run(Policy::kDense, 64, 0, KvType::kF32, tokens, 64), golden.json["dense"], golden.every),
        2e-3);
    EXPECT_LT(Worst(m.Run(Policy::kSinks, golden.sinks + golden.window, golden.sinks, KvType::kF32,
                          golden.tokens, 7),
                    golden.json["stream"], golden.every),
              2e-3);
    ++compared;
  }
  EXPECT_GE(compared, more != nullptr ? 18 : 2);
}

}  // namespace
}  // namespace ballast
