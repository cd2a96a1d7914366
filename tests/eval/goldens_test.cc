// The whole engine against an independent float32 reference, token by token, before and after roll-over.
//
// tests/goldens/smollm2_stream.json: nll of every token of a text under five caches; smollm2_logits.json:
// logits and hidden states after four prefixes. Tolerances are those the reference was published with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/stream.h"
#include "eval/rollover.h"
#include "eval_fixture.h"
#include "kernels/ops.h"

namespace ballast {
namespace {

using testing::kSanitized;
using testing::LoadedModel;
using testing::ReadGolden;
using testing::SmolLm2;

struct Difference {
  double mean = 0;
  double worst = 0;
  size_t worst_at = 0;
};

Difference Compare(const std::vector<float>& got, const std::vector<double>& want) {
  Difference d;
  for (size_t i = 0; i < got.size(); ++i) {
    const double diff = static_cast<double>(got[i]) - want[i];
    d.mean += diff / static_cast<double>(got.size());
    if (std::abs(diff) > d.worst || std::isnan(diff)) d.worst = std::abs(diff), d.worst_at = i;
  }
  return d;
}

// The golden run `name` over the first `limit` tokens, fed `chunk` at a time.
std::vector<float> Nll(const LoadedModel& loaded, const std::string& name, KvType kv, int64_t limit,
                       int64_t chunk) {
  static const nlohmann::json golden = ReadGolden("smollm2_stream.json");
  std::vector<Token> tokens = golden["tokens"];
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(limit)));
  const nlohmann::json& run = golden["runs"][name];
  const auto policy = ParsePolicy(run["policy"].get<std::string>());
  EXPECT_TRUE(policy.ok());
  RolloverOptions options;
  options.stream.policy = *policy;
  options.stream.pinned = run["sinks"];
  options.stream.context = run["sinks"].get<int64_t>() + run["window"].get<int64_t>();
  if (*policy == Policy::kDense) options.stream.context = limit;
  options.stream.kv = kv;
  options.stream.chunk = chunk;
  options.per_token = true;
  SpanTokens source(tokens);
  const auto result = RunRollover(*loaded.model, *loaded.pool, source, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->nll : std::vector<float>();
}

std::vector<double> Golden(const std::string& name, int64_t limit) {
  std::vector<double> nll = ReadGolden("smollm2_stream.json")["runs"][name]["nll"];
  nll.resize(static_cast<size_t>(limit - 1));
  return nll;
}

class StreamGolden : public ::testing::TestWithParam<const char*> {};

// A 64-slot cache rolls over within the sanitizers' short run too.
constexpr int64_t kF32Limit = kSanitized ? 80 : 500;
constexpr int64_t kFastLimit = kSanitized ? 80 : 1400;

TEST_P(StreamGolden, F32AgreesOnEveryToken) {
  const LoadedModel* loaded = SmolLm2(Compute::kF32);
  ASSERT_NE(loaded, nullptr);
  const std::vector<double> want = Golden(GetParam(), kF32Limit);
  const std::vector<float> got = Nll(*loaded, GetParam(), KvType::kF32, kF32Limit, 256);
  ASSERT_EQ(got.size(), want.size());
  const Difference d = Compare(got, want);
  EXPECT_LE(std::abs(d.mean), 1e-4);
  EXPECT_LE(d.worst, 5e-3) << "at token " << d.worst_at;
}

TEST_P(StreamGolden, FastAgreesOnAverage) {
  const LoadedModel* loaded = SmolLm2(Compute::kFast);
  ASSERT_NE(loaded, nullptr);
  const std::vector<double> want = Golden(GetParam(), kFastLimit);
  const std::vector<float> got = Nll(*loaded, GetParam(), KvType::kQ8, kFastLimit, 256);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LE(std::abs(Compare(got, want).mean), kSanitized ? 0.03 : 0.01);
}

INSTANTIATE_TEST_SUITE_P(Caches, StreamGolden,
                         ::testing::Values("dense", "window_256", "sinks_4_252", "sinks_1_63",
                                           "sinks_4_1020"),
                         [](const auto& p) { return std::string(p.param); });

// The control: the same stream without sinks must blow up where the one with sinks stays flat. A cure that
// looks no different from the disease cures nothing. (streaming-llm issue 63)
TEST(RollOver, NoSinksNoCoherence) {
  if (kSanitized) GTEST_SKIP() << "too slow under a sanitizer";
  const LoadedModel* loaded = SmolLm2(Compute::kFast);
  ASSERT_NE(loaded, nullptr);
  const auto tail_mean = [&](const char* name) {
    const std::vector<float> nll = Nll(*loaded, name, KvType::kQ8, 1400, 256);
    double sum = 0;
    for (size_t i = 256; i < nll.size(); ++i) sum += nll[i];
    return sum / static_cast<double>(nll.size() - 256);
  };
  const double dense = tail_mean("dense");
  EXPECT_LT(std::exp(tail_mean("sinks_4_252") - dense), 1.2);
  EXPECT_GT(std::exp(tail_mean("window_256") - dense), 1.5);
}

// Chunks that straddle the moment of roll-over must see exactly what single tokens see.
TEST(RollOver, ChunkSizeChangesNothing) {
  const LoadedModel* loaded = SmolLm2(Compute::kF32);
  ASSERT_NE(loaded, nullptr);
  constexpr int64_t kLimit = kSanitized ? 70 : 130;
  const std::vector<float> one = Nll(*loaded, "sinks_1_63", KvType::kF32, kLimit, 1);
  ASSERT_EQ(one.size(), static_cast<size_t>(kLimit - 1));
  for (const int64_t chunk : {97, 256}) {
    const std::vector<float> many = Nll(*loaded, "sinks_1_63", KvType::kF32, kLimit, chunk);
    ASSERT_EQ(many.size(), one.size());
    EXPECT_LE(Compare(many, {one.begin(), one.end()}).worst, 1e-3) << "chunk " << chunk;
  }
}

// 500 and more one-token evictions, the fast path included: drift would grow with every one of them.
// (llama.cpp issue 4097)
TEST(RollOver, NoDriftAfterHundredsOfEvictions) {
  if (kSanitized) GTEST_SKIP() << "too slow under a sanitizer";
  const LoadedModel* loaded = SmolLm2(Compute::kFast);
  ASSERT_NE(loaded, nullptr);
  constexpr int64_t kLimit = 800;  // 736 evictions from 64 slots
  const std::vector<double> want = Golden("sinks_1_63", kLimit);
  const std::vector<float> got = Nll(*loaded, "sinks_1_63", KvType::kQ8, kLimit, 1);
  ASSERT_EQ(got.size(), want.size());
  const auto gap = [&](size_t from, size_t to) {
    double sum = 0;
    for (size_t i = from; i < to; ++i) sum += static_cast<double>(got[i]) - want[i];
    return sum / static_cast<double>(to - from);
  };
  EXPECT_LE(std::abs(gap(64, 300)), 0.03);
  EXPECT_LE(std::abs(gap(560, 799)), 0.03);
}

TEST(LogitsGolden, PrefixesAgree) {
  const LoadedModel* loaded = SmolLm2(Compute::kF32);
  ASSERT_NE(loaded, nullptr);
  for (const nlohmann::json& golden : ReadGolden("smollm2_logits.json")) {
    const std::vector<Token> tokens = golden["tokens"];
    if (kSanitized && tokens.size() > 80) continue;
    StreamOptions options;
    options.policy = Policy::kDense;
    options.context = static_cast<int64_t>(tokens.size()) + 1;
    options.kv = KvType::kF32;
    auto stream = Stream::Create(*loaded->model, *loaded->pool, options);
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    ASSERT_TRUE((*stream)->Append(tokens).ok());
    const std::span<const float> logits = (*stream)->logits();
    SCOPED_TRACE(std::to_string(tokens.size()) + " tokens");
    EXPECT_NEAR(LogSumExp(logits.data(), static_cast<int64_t>(logits.size())),
                golden["logsumexp"].get<double>(), 5e-3);
    EXPECT_EQ(ArgMax(logits.data(), static_cast<int64_t>(logits.size())),
              golden["top_ids"][0].get<int64_t>());
    for (size_t i = 0; i < golden["top_ids"].size(); ++i) {
      const auto id = golden["top_ids"][i].get<size_t>();
      EXPECT_NEAR(logits[id], golden["top_logits"][i].get<double>(), 5e-3) << "id " << id;
    }
  }
}

}  // namespace
}  // namespace ballast
