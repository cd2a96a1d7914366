// The gate: which reference, which ratio, and what is too short to judge.
#include "eval/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RolloverRun Tail(Policy policy, double perplexity) {
  RolloverRun run;
  run.policy = policy;
  run.context = 64;
  run.tokens = 1000;
  run.tail_tokens = 100;
  run.tail_perplexity = perplexity;
  return run;
}

TEST(Gate, ReferenceIsDenseWithinTheTrainedLengthAndSinksBeyond) {
  ModelConfig config;
  config.trained_context = 2048;
  StreamOptions judged;
  judged.policy = Policy::kWindow;
  judged.context = 256;
  judged.kv = KvType::kF16;
  const StreamOptions within = GateReference(config, judged, 2048);
  EXPECT_EQ(within.policy, Policy::kDense);
  EXPECT_EQ(within.context, 2048);
  EXPECT_EQ(within.kv, KvType::kF16);
  const StreamOptions beyond = GateReference(config, judged, 2049);
  EXPECT_EQ(beyond.policy, Policy::kSinks);
  EXPECT_EQ(beyond.context, 2048);
  EXPECT_EQ(beyond.pinned, judged.pinned);
}

TEST(Gate, ARunThatSawTheSameIsNotRunAgain) {
  StreamOptions reference;
  reference.policy = Policy::kDense;
  reference.context = 1000;
  RolloverRun dense = Tail(Policy::kDense, 10);
  dense.context = 4096;
  EXPECT_TRUE(ServesAsReference(dense, reference));
  dense.kv = KvType::kF32;
  EXPECT_FALSE(ServesAsReference(dense, reference));
  EXPECT_FALSE(ServesAsReference(Tail(Policy::kSinks, 10), reference));
}

TEST(Gate, TooShortATextIsSaidSo) {
  EXPECT_TRUE(CheckGate(1.1, 64, 66).ok());
  const Status status = CheckGate(1.1, 64, 65);
  EXPECT_EQ(status.code(), Code::kInput);
  EXPECT_THAT(status.message(), HasSubstr("too short to roll over: expected at least 66 tokens"));
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(CheckGate(bad, 64, 1000).code(), Code::kUsage) << bad;
  }
}

TEST(Gate, TheWorstPolicyDecides) {
  const RolloverRun reference = Tail(Policy::kDense, 10);
  const RolloverRun sinks = Tail(Policy::kSinks, 10.5), window = Tail(Policy::kWindow, 21);
  const GateVerdict good = JudgeGate(1.1, reference, {&sinks});
  EXPECT_TRUE(good.passed);
  EXPECT_NEAR(good.ratio, 1.05, 1e-12);
  EXPECT_TRUE(GateStatus(good, reference).ok());
  const GateVerdict bad = JudgeGate(1.1, reference, {&sinks, &window, &sinks});
  EXPECT_FALSE(bad.passed);
  EXPECT_EQ(bad.worst, Policy::kWindow);
  EXPECT_THAT(bad.ratios, ElementsAre(1.05, 2.1, 1.05));
  const Status status = GateStatus(bad, reference);
  EXPECT_EQ(status.code(), Code::kGate);
  EXPECT_THAT(status.message(),
              HasSubstr("(window): expected at most 1.1 times that of dense at 64, found 2.1 times"));
}

// A broken model's NaN must not slip through a comparison.
TEST(Gate, NotANumberFails) {
  const RolloverRun reference = Tail(Policy::kDense, 10);
  const RolloverRun broken = Tail(Policy::kSinks, std::nan("")), fine = Tail(Policy::kWindow, 10);
  EXPECT_FALSE(JudgeGate(2, reference, {&broken}).passed);
  EXPECT_FALSE(JudgeGate(2, reference, {&fine, &broken}).passed);
  EXPECT_FALSE(JudgeGate(2, reference, {&broken, &fine}).passed);
}

}  // namespace
}  // namespace ballast
