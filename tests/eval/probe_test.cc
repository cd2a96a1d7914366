// The sink map against the plain definition, and what it says about real heads.
#include "eval/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "eval_fixture.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using testing::kSanitized;
using testing::LoadedModel;
using testing::ReadGolden;
using testing::SmolLm2;
using testing::TinyLlama;

SinkMap Judged(std::vector<double> heads, double p10, std::vector<int> local = {}) {
  SinkMap map;
  map.tokens = 1024;
  map.threshold = 0.05;
  map.mean = {heads};
  map.p10 = {std::vector<double>(heads.size(), p10)};
  map.local_layers = std::move(local);
  JudgeSinkMap(&map);
  return map;
}

TEST(Probe, MeansAreThoseOfTheDefinition) {
  const TinyLlama network{testing::TinySpec{}};
  const auto loaded = testing::LoadFile(network.WriteTemp("probe_test.gguf"), Compute::kF32, 1);
  ASSERT_NE(loaded, nullptr);
  const std::vector<Token> tokens = testing::RandomTokens(70, network.spec().vocab, 3);
  SpanTokens source(tokens);
  ProbeOptions options;
  options.kv = KvType::kF32;
  options.chunk = 16;
  options.limit = 50;
  const auto map = RunProbe(*loaded->model, *loaded->pool, source, options);
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->tokens, 50);

  testing::Definition definition(network, 1, 100);
  std::vector<std::vector<float>> shares(static_cast<size_t>(network.spec().layers * network.spec().heads));
  for (int i = 0; i < 50; ++i) {
    definition.Feed(tokens[static_cast<size_t>(i)]);
    for (size_t h = 0; h < shares.size(); ++h) {
      shares[h].push_back(static_cast<float>(definition.sink_mass()[h]));
    }
  }
  const auto heads = static_cast<size_t>(network.spec().heads);
  for (size_t h = 0; h < shares.size(); ++h) {
    EXPECT_EQ(shares[h][0], 1.0f);  // query 0 sees itself alone, and counts
    double sum = 0;
    for (const float s : shares[h]) sum += s;
    EXPECT_NEAR(map->mean[h / heads][h % heads], sum / 50, 1e-5);
    EXPECT_NEAR(map->p10[h / heads][h % heads], Quantile(shares[h], 0.1), 1e-5);
  }
}

TEST(Probe, QuantileInterpolates) {
  std::vector<float> values = {5, 1, 4, 2, 3};
  EXPECT_DOUBLE_EQ(Quantile(values, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 5);
  std::vector<float> one = {7};
  EXPECT_DOUBLE_EQ(Quantile(one, 0.1), 7);
}

TEST(Probe, VerdictsFollowTheirStatedLimits) {
  std::vector<double> heads(20, 0.01);
  EXPECT_EQ(Judged(heads, 0).verdict, SinkVerdict::kNotVulnerable);
  heads[0] = 0.3;
  EXPECT_EQ(Judged(heads, 0).verdict, SinkVerdict::kMild);  // 5%
  std::fill(heads.begin(), heads.begin() + 5, 0.06);
  const SinkMap quarter = Judged(heads, 0);
  EXPECT_EQ(quarter.verdict, SinkVerdict::kVulnerable);
  EXPECT_DOUBLE_EQ(quarter.heads_over_threshold, 0.25);
  EXPECT_THAT(quarter.why, HasSubstr("25.0% of 20 heads"));
  EXPECT_EQ(quarter.warning, "");
  EXPECT_EQ(Judged(std::vector<double>(20, 0.01), 0.06).verdict, SinkVerdict::kVulnerable);  // by p10
  EXPECT_EQ(Judged(std::vector<double>(20, 0.05), 0.05).heads_over_threshold, 0);  // over means over
}

TEST(Probe, LocalLayersAreNotCounted) {
  SinkMap map;
  map.tokens = 1024;
  map.threshold = 0.05;
  map.mean = {{0, 0}, {0.5, 0.5}};
  map.p10 = map.mean;
  map.local_layers = {0};
  JudgeSinkMap(&map);
  EXPECT_DOUBLE_EQ(map.heads_over_threshold, 1);
  EXPECT_THAT(map.why, HasSubstr("of 2 global heads"));
  EXPECT_THAT(map.why, HasSubstr("1 of 2 layers"));
}

// In 20 tokens even blind attention gives token 0 a large share: a verdict from that would be false.
TEST(Probe, ShortTextsWarn) {
  SinkMap map = Judged({0.2}, 0);
  map.tokens = 20;
  JudgeSinkMap(&map);
  EXPECT_THAT(map.warning, HasSubstr("short text: 20 tokens"));
  map.tokens = 1024;
  JudgeSinkMap(&map);
  EXPECT_EQ(map.warning, "");
}

std::vector<Token> StreamTokens() { return ReadGolden("smollm2_stream.json")["tokens"]; }

Result<SinkMap> ProbeSmolLm2(Compute compute, const std::vector<Token>& tokens, int64_t limit) {
  const LoadedModel* loaded = SmolLm2(compute);
  if (loaded == nullptr) return Status(Code::kModel, "no model");
  SpanTokens source(tokens);
  ProbeOptions options;
  options.kv = compute == Compute::kF32 ? KvType::kF32 : KvType::kQ8;
  options.limit = limit;
  return RunProbe(*loaded->model, *loaded->pool, source, options);
}

double WorstDifference(const SinkMap& map, const std::vector<std::vector<double>>& want) {
  double worst = map.mean.size() == want.size() ? 0 : INFINITY;
  for (size_t l = 0; l < want.size() && l < map.mean.size(); ++l) {
    for (size_t h = 0; h < want[l].size(); ++h) {
      worst = std::max(worst, std::abs(map.mean[l].at(h) - want[l][h]));
    }
  }
  return worst;
}

TEST(Probe, OneTokenIsNothingToScore) {
  const auto map = ProbeSmolLm2(Compute::kFast, {198}, 1024);
  ASSERT_FALSE(map.ok());
  EXPECT_EQ(map.status().code(), Code::kInput);
  EXPECT_THAT(map.status().message(), HasSubstr("nothing to score"));
}

// Our own map of the golden text, recorded in f32 once the engine agreed with the independent reference's map
// of a novel (a text that is not in this repository; see below).
TEST(Probe, FastAgreesWithTheRecordedMap) {
  if (kSanitized) GTEST_SKIP() << "too slow under a sanitizer";
  const nlohmann::json golden = ReadGolden("smollm2_stream_sink_map.json");
  const auto map = ProbeSmolLm2(Compute::kFast, StreamTokens(), golden["tokens"]);
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_LE(WorstDifference(*map, golden["mass"]), 0.006);  // 0.01 with 8 bits of the first token
  EXPECT_EQ(map->verdict, SinkVerdict::kVulnerable);
}

TEST(Probe, F32AgreesWithTheRecordedMap) {
  if (kSanitized) GTEST_SKIP() << "too slow under a sanitizer";
  const nlohmann::json golden = ReadGolden("smollm2_stream_sink_map.json");
  const auto map = ProbeSmolLm2(Compute::kF32, StreamTokens(), golden["tokens"]);
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_LE(WorstDifference(*map, golden["mass"]), 1e-3);
}

// Where the reference's own files lie beside the checkout.
TEST(Probe, AgreesWithTheReferenceMapOfANovel) {
  const std::string shared = std::string(BALLAST_TEST_DATA) + "/../../shared/goldens/";
  if (kSanitized || !std::filesystem::exists(shared + "smollm2_sink_map.json")) {
    GTEST_SKIP() << "no reference map here";
  }
  const std::vector<Token> tokens = testing::ReadJson(shared + "smollm2_novel.json")["tokens"];
  const auto map = ProbeSmolLm2(Compute::kFast, tokens, 1024);
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_LE(WorstDifference(*map, testing::ReadJson(shared + "smollm2_sink_map.json")["mass"]), 0.006);
}

}  // namespace
}  // namespace ballast
