// Sums over a stream of values: blocks, curve and batches keep the mean, stay small and survive a trip to
// JSON.
#include "eval/nll_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

TEST(NllStats, BlocksCountPredictedPositions) {
  NllStats stats({1500, 3000});
  // Value i predicts position i + 1: 1.0 in the first block, 2.0 in the second, 3.0 after.
  for (int i = 0; i < 2100; ++i) stats.Add(i + 1 < 1024 ? 1 : i + 1 < 2048 ? 2 : 3);
  const std::vector<PerplexityBlock> blocks = stats.Blocks();
  ASSERT_EQ(blocks.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(blocks[i].from, static_cast<int64_t>(i) * 1024);
    EXPECT_NEAR(blocks[i].perplexity, std::exp(1.0 + static_cast<double>(i)), 1e-9);
  }
  EXPECT_EQ(blocks[0].to, 1024);
  EXPECT_EQ(blocks[2].to, 2101);
  ASSERT_EQ(stats.tails().size(), 2u);
  EXPECT_EQ(stats.tails()[0].count, 600);
  EXPECT_NEAR(stats.tails()[0].sum, 547 * 2.0 + 53 * 3.0, 1e-9);
  EXPECT_EQ(stats.tails()[1].count, 0);
  EXPECT_EQ(stats.tails()[1].perplexity(), 0);
  EXPECT_NEAR(stats.mean(), (1023 * 1.0 + 1024 * 2.0 + 53 * 3.0) / 2100, 1e-12);
}

// The picture's bins stay few however long the text, and their weighted mean stays the mean.
TEST(NllStats, CurveStaysSmall) {
  for (const int n : {1, 31, 32, 2047, 2048, 100000}) {
    NllStats stats({});
    for (int i = 0; i < n; ++i) stats.Add(0.001 * (i % 1000));
    const std::vector<PerplexityBlock> curve = stats.Curve();
    EXPECT_LE(curve.size(), 32u);
    double sum = 0;
    int64_t at = 0;
    for (const PerplexityBlock& b : curve) {
      EXPECT_EQ(b.from, at);
      at = b.to;
      sum += std::log(b.perplexity) * static_cast<double>(b.to - std::max<int64_t>(b.from, 1));
    }
    EXPECT_EQ(at, n + 1);
    EXPECT_NEAR(sum / n, stats.mean(), 1e-9);
  }
}

// Batches never get many, hold equally many values, and add up to the sum.
TEST(NllStats, BatchesAddUp) {
  for (const int n : {1, 63, 64, 65, 2047, 2048, 2049, 100000}) {
    TailSums tail;
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      tail.Add(0.001 * (i % 1000));
      sum += 0.001 * (i % 1000);
    }
    EXPECT_LE(tail.batches.size(), TailSums::kMaxBatches);
    EXPECT_GT(2 * tail.batches.size() * static_cast<size_t>(tail.width), static_cast<size_t>(n));
    double added = 0;
    for (const double b : tail.batches) added += b;
    EXPECT_NEAR(added, sum, 1e-6);
    double first = 0;
    for (int i = 0; i < std::min<int64_t>(n, tail.width); ++i) first += 0.001 * (i % 1000);
    EXPECT_NEAR(tail.batches[0], first, 1e-9);
  }
}

TEST(NllStats, JsonCarriesEveryBit) {
  NllStats stats({10, 700}, 100);
  for (int i = 0; i < 5000; ++i) stats.Add(std::sin(i) + 1.5);
  stats.Add(std::numeric_limits<double>::infinity());
  NllStats other({10, 700}, 100);
  const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(stats.ToJson());
  ASSERT_TRUE(other.FromJson(nlohmann::json::from_cbor(bytes)).ok());
  stats.Add(0.1);
  other.Add(0.1);
  EXPECT_EQ(nlohmann::json::to_cbor(stats.ToJson()), nlohmann::json::to_cbor(other.ToJson()));
}

TEST(NllStats, WhatItCannotHaveWrittenIsRefused) {
  NllStats stats({10}, 100);
  for (int i = 0; i < 300; ++i) stats.Add(1);
  const nlohmann::json good = stats.ToJson();
  EXPECT_TRUE(NllStats({10}, 100).FromJson(good).ok());
  EXPECT_FALSE(NllStats({11}, 100).FromJson(good).ok());
  EXPECT_FALSE(NllStats({10}, 101).FromJson(good).ok());
  EXPECT_FALSE(NllStats({10, 20}, 100).FromJson(good).ok());
  for (const char* edit :
       {R"({"count":301})", R"({"count":-1})", R"({"count":9223372036854775807})", R"({"sum":"x"})",
        R"({"curve":{"width":0,"sums":[]}})", R"({"curve":{"width":48,"sums":[]}})",
        R"({"tails":[{"from":10,"count":290,"sum":1,"width":0,"batches":[]}]})", R"({"blocks":null})"}) {
    nlohmann::json bad = good;
    bad.merge_patch(nlohmann::json::parse(edit));
    NllStats read({10}, 100);
    EXPECT_EQ(read.FromJson(bad).code(), Code::kInput) << edit;
    EXPECT_EQ(read.count(), 0);
  }
}

}  // namespace
}  // namespace ballast
