// Which setting is chosen, and what cannot be calibrated.
#include "eval/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eval_fixture.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

TailSums Flat(double perplexity) {
  TailSums tail;
  for (int i = 0; i < 1000; ++i) tail.Add(std::log(perplexity) + std::sin(i));
  return tail;
}

Calibration Choose(const std::vector<double>& perplexities, double tolerance) {
  Calibration calibration;
  calibration.tolerance = tolerance;
  std::vector<TailSums> tails;
  for (const double p : perplexities) {
    calibration.cells.emplace_back();
    calibration.cells.back().perplexity = p;
    tails.push_back(Flat(p));
  }
  ChooseCell(tails, &calibration);
  return calibration;
}

TEST(Calibrate, TheSmallestWithinTheToleranceIsChosen) {
  const Calibration calibration = Choose({30, 20.05, 20.5, 20.0}, 0.005);
  EXPECT_EQ(calibration.best, 3u);
  EXPECT_EQ(calibration.chosen, 1u);
  EXPECT_NEAR(calibration.cells[2].to_best.ratio, 1.025, 1e-9);
  EXPECT_TRUE(calibration.certain);
  EXPECT_EQ(Choose({30, 20.05, 20.5, 20.0}, 0.001).chosen, 3u);
  EXPECT_EQ(Choose({30, 20.05, 20.5, 20.0}, 1).chosen, 0u);
}

TEST(Calibrate, NotANumberIsNeverChosen) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const Calibration calibration = Choose({kNan, 20, 21}, 0.1);
  EXPECT_EQ(calibration.best, 1u);
  EXPECT_EQ(calibration.chosen, 1u);
}

TEST(Calibrate, EveryPairSeesTheSameTokens) {
  const testing::TinyLlama network{testing::TinySpec{}};
  const auto loaded = testing::LoadFile(network.WriteTemp("calibrate_test.gguf"), Compute::kF32, 1);
  const std::vector<Token> tokens = testing::RandomTokens(400, network.spec().vocab, 3);
  SpanTokens source(tokens);
  CalibrateOptions options;
  options.contexts = {24, 48};
  options.sinks = {0, 4};
  options.kv = KvType::kF32;
  std::vector<size_t> seen;
  options.on_progress = [&](size_t cell, int64_t, int64_t) {
    if (seen.empty() || seen.back() != cell) seen.push_back(cell);
    return true;
  };
  const auto calibration = RunCalibration(*loaded->model, *loaded->pool, source, options);
  ASSERT_TRUE(calibration.ok()) << calibration.status().message();
  EXPECT_EQ(seen, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(calibration->compared, 400 - 1 - 48);
  RolloverOptions one;
  one.stream = {Policy::kSinks, 24, 4, KvType::kF32, 256};
  one.tails = {48};
  const auto run = RunRollover(*loaded->model, *loaded->pool, source, one);
  EXPECT_EQ(calibration->cells[1].perplexity, run->Tail(48)->perplexity());
  EXPECT_EQ(calibration->cells[1].context, 24);
  EXPECT_EQ(calibration->cells[1].sinks, 4);
}

TEST(Calibrate, WhatMakesNoSenseIsRefused) {
  CalibrateOptions options;
  EXPECT_EQ(CheckCalibration(options, 1000).code(), Code::kUsage);
  options.contexts = {64};
  EXPECT_TRUE(CheckCalibration(options, 1000).ok());
  EXPECT_THAT(CheckCalibration(options, 100).message(), HasSubstr("too short to roll over"));
  options.contexts = {16};  // as many sinks
  EXPECT_EQ(CheckCalibration(options, 1000).code(), Code::kUsage);
}

}  // namespace
}  // namespace ballast
