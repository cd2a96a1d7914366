// The gate: which reference, which ratio, and what is too short to judge.
#include "eval/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/rng.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFrom = 64;

// A run whose values after index 64 are `nll` each, with a wobble that both runs of a pair share.
RolloverRun Tail(Policy policy, double perplexity, int count = 1000, double noise = 0) {
  RolloverRun run;
  run.policy = policy;
  run.context = 64;
  run.tokens = kFrom + count + 1;
  run.tails.emplace_back();
  run.tails.back().from = kFrom;
  for (int i = 0; i < count; ++i) {
    const double wobble = std::sin(i * 0.7) + noise * std::sin(i / 50.0);
    run.tails.back().Add(std::log(perplexity) + wobble);
  }
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
  const GateVerdict good = JudgeGate(1.1, reference, {{&sinks, kFrom}});
  EXPECT_TRUE(good.passed);
  EXPECT_TRUE(good.conclusive);
  EXPECT_NEAR(good.Worst().paired.ratio, 1.05, 1e-12);
  EXPECT_TRUE(GateStatus(good, reference).ok());
  const GateVerdict bad = JudgeGate(1.1, reference, {{&sinks, kFrom}, {&window, kFrom}, {&sinks, kFrom}});
  EXPECT_FALSE(bad.passed);
  EXPECT_TRUE(bad.conclusive);
  EXPECT_EQ(bad.Worst().policy, Policy::kWindow);
  ASSERT_EQ(bad.judged.size(), 3u);
  EXPECT_NEAR(bad.judged[2].paired.ratio, 1.05, 1e-12);
  const Status status = GateStatus(bad, reference);
  EXPECT_EQ(status.code(), Code::kGate);
  EXPECT_THAT(status.message(),
              HasSubstr("(window): expected at most 1.1 times that of dense at 64, found 2.1 times (95%: "));
}

// A broken model's NaN must not slip through a comparison.
TEST(Gate, NotANumberFails) {
  const RolloverRun reference = Tail(Policy::kDense, 10);
  const RolloverRun broken = Tail(Policy::kSinks, std::nan("")), fine = Tail(Policy::kWindow, 10);
  const JudgedRun b{&broken, kFrom}, f{&fine, kFrom};
  EXPECT_FALSE(JudgeGate(2, reference, {b}).passed);
  EXPECT_FALSE(JudgeGate(2, reference, {f, b}).passed);
  EXPECT_FALSE(JudgeGate(2, reference, {b, f}).passed);
  EXPECT_FALSE(JudgeGate(2, reference, {b, f}).conclusive);  // nothing was measured
  const Status status = GateStatus(JudgeGate(2, reference, {b, f}), reference);
  EXPECT_EQ(status.code(), Code::kGate);
  EXPECT_THAT(status.message(), HasSubstr("(sinks): expected at most 2 times that of dense at"));
  EXPECT_THAT(status.message(), HasSubstr("found no number, since the model's output is not finite"));
}

TEST(Gate, DenseIsJudgedBeyondTheTrainedLengthOnly) {
  ModelConfig config;
  config.trained_context = 2048;
  StreamOptions dense;
  dense.policy = Policy::kDense;
  dense.context = 8192;
  EXPECT_EQ(JudgedFrom(config, dense, 2048), std::nullopt);
  EXPECT_EQ(JudgedFrom(config, dense, 2049), 2048);
  config.trained_context = 0;  // unknown: nothing to be beyond
  EXPECT_EQ(JudgedFrom(config, dense, 1 << 20), std::nullopt);
  StreamOptions sinks;
  sinks.context = 256;
  EXPECT_EQ(JudgedFrom(config, sinks, 10), 256);
}

TEST(Gate, AChosenReferenceHasItsOwnCapacity) {
  ModelConfig config;
  config.trained_context = 2048;
  StreamOptions judged;
  judged.context = 256;
  const auto at = [&](Policy policy, int64_t context) {
    return GateReference(config, judged, 5000, {policy, context}).context;
  };
  EXPECT_EQ(at(Policy::kDense, 0), 5000);
  EXPECT_EQ(at(Policy::kSinks, 0), 2048);
  EXPECT_EQ(at(Policy::kRecompute, 0), 256);
  EXPECT_EQ(at(Policy::kWindow, 0), 256);
  EXPECT_EQ(at(Policy::kSinks, 777), 777);
}

// What both runs share cancels, however wild the text; what differs slowly widens the interval, though the
// point ratio is the same.
TEST(Paired, TheIntervalKnowsOnlyTheDifference) {
  const TailSums reference = Tail(Policy::kDense, 10).tails[0];
  const PairedRatio calm = ComparePaired(Tail(Policy::kSinks, 10.5).tails[0], reference);
  EXPECT_NEAR(calm.ratio, 1.05, 1e-12);
  EXPECT_NEAR(calm.low, 1.05, 1e-9);
  EXPECT_NEAR(calm.high, 1.05, 1e-9);
  const PairedRatio wild = ComparePaired(Tail(Policy::kSinks, 10.5, 1000, 0.2).tails[0], reference);
  EXPECT_LT(wild.low, wild.ratio);
  EXPECT_GT(wild.high, wild.ratio);
  EXPECT_GT(wild.high - wild.low, 0.05);
  const PairedRatio longer = ComparePaired(Tail(Policy::kSinks, 10.5, 64000, 0.2).tails[0],
                                           Tail(Policy::kDense, 10, 64000).tails[0]);
  EXPECT_LT(longer.high - longer.low, (wild.high - wild.low) / 4);
}

// Simulated: the interval covers the truth about 95 times in 100 although neighbouring values depend on each
// other (an autoregression with 0.9); treating them as independent would cover about 35.
TEST(Paired, TheIntervalCoversTheTruthOfDependentValues) {
  Rng rng(7);
  int covered = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    TailSums judged, reference;
    double state = 0;
    for (int i = 0; i < 8192; ++i) {
      state = 0.9 * state + (rng.Uniform() - 0.5);
      judged.Add(0.1 + state);
      reference.Add(0);
    }
    const PairedRatio paired = ComparePaired(judged, reference);
    covered += paired.low <= std::exp(0.1) && std::exp(0.1) <= paired.high;
  }
  EXPECT_GT(covered, kTrials * 0.90);
  EXPECT_LT(covered, kTrials * 0.99);
}

TEST(Paired, TooFewValuesHaveNoInterval) {
  const PairedRatio paired =
      ComparePaired(Tail(Policy::kSinks, 10, 100).tails[0], Tail(Policy::kDense, 10, 100).tails[0]);
  EXPECT_EQ(paired.batches, 1);
  EXPECT_TRUE(std::isnan(paired.low) && std::isnan(paired.high));
  const RolloverRun reference = Tail(Policy::kDense, 10, 100), run = Tail(Policy::kSinks, 10, 100);
  const GateVerdict verdict = JudgeGate(1.05, reference, {{&run, kFrom}});
  EXPECT_TRUE(verdict.passed);
  EXPECT_FALSE(verdict.conclusive);
}

// A limit inside the interval: the point ratio decides, and it is said that it might have gone otherwise.
TEST(Gate, ALimitInsideTheIntervalIsInconclusive) {
  const RolloverRun reference = Tail(Policy::kDense, 10), run = Tail(Policy::kSinks, 10.5, 1000, 0.2);
  const double ratio = JudgeGate(1, reference, {{&run, kFrom}}).Worst().paired.ratio;
  const GateVerdict passed = JudgeGate(ratio + 0.001, reference, {{&run, kFrom}});
  EXPECT_TRUE(passed.passed && !passed.conclusive);
  const GateVerdict failed = JudgeGate(ratio - 0.001, reference, {{&run, kFrom}});
  EXPECT_TRUE(!failed.passed && !failed.conclusive);
}

}  // namespace
}  // namespace ballast
