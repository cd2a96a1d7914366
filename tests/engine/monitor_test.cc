// The collapse monitor: what it must notice, when, and by which name; and that it is quiet otherwise.
#include "engine/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/rescue.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

Level After(RepetitionPart& part, std::span<const Token> tokens) {
  for (const Token token : tokens) part.Add(token);
  return part.level();
}

TEST(RepetitionPart, EveryPeriodIsFoundWithin256Tokens) {
  const std::vector<Token> text = RandomTokens(400, 500, 3);
  for (const size_t period : {1, 2, 3, 7, 16, 33, 64, 100, 128}) {
    RepetitionPart part;
    ASSERT_EQ(After(part, std::span(text).subspan(100, 300)), Level::kNone);
    size_t n = 0;
    for (; n < 256 && part.level() != Level::kFull; ++n) part.Add(text[n % period]);
    EXPECT_EQ(part.level(), Level::kFull) << period;
    EXPECT_LE(n, 256U - static_cast<size_t>(Monitor::kSustain)) << period;
  }
}

// The loops of models that are penalised for repetition are not exact.
TEST(RepetitionPart, ALoopWithAChangingWordIsALoop) {
  RepetitionPart part;
  for (Token i = 0; i < 256; ++i) part.Add(i % 12 == 5 ? 1000 + i : i % 12);
  EXPECT_EQ(part.level(), Level::kFull);
}

TEST(RepetitionPart, TextWithFewDifferentTokensIsNone) {
  RepetitionPart part;
  for (const Token token : RandomTokens(20000, 12, 9)) {
    part.Add(token);
    ASSERT_EQ(part.level(), Level::kNone) << part.share();
  }
}

TEST(RepetitionPart, AReplyIsJudgedByItself) {
  const std::vector<Token> answer = RandomTokens(60, 500, 4);
  RepetitionPart part;
  for (int turn = 0; turn < 20; ++turn) {
    part.Begin();
    EXPECT_EQ(After(part, answer), Level::kNone) << turn;
  }
}

// Shares as they are: noisy, and higher while the stream is young.
float NoisyShare(std::mt19937& random, int64_t t) {
  std::normal_distribution<float> noise(0.3F, 0.05F);
  return std::max(0.05F, noise(random) + 0.7F * std::exp(-static_cast<float>(t) / 60));
}

TEST(SinkPart, ALostSinkIsNoticedWithinAHundredTokensAndASteadyOneNever) {
  std::mt19937 random(1);
  SinkPart part;
  for (int64_t t = 0; t < 20000; ++t) {
    part.Add(NoisyShare(random, t), 1);
    ASSERT_EQ(part.level(), Level::kNone) << t;
  }
  int64_t n = 0;
  for (; part.level() != Level::kFull && n < 100; ++n) part.Add(0, 1);
  EXPECT_LT(n, 100);
}

// A prompt is read in large steps, of which only the last token is seen.
TEST(SinkPart, LargeStepsAreAsGoodAsSmallOnes) {
  std::mt19937 random(2);
  SinkPart part;
  for (int64_t t = 0; t < 100000; t += 128) {
    part.Add(NoisyShare(random, t + 127), 128);
    ASSERT_EQ(part.level(), Level::kNone) << t;
  }
  for (int i = 0; i < 4; ++i) part.Add(0, 128);
  EXPECT_EQ(part.level(), Level::kFull);
}

TEST(SinkPart, AModelThatRestsNothingOnItsFirstTokensHasNothingToLose) {
  SinkPart part;
  for (int i = 0; i < 1000; ++i) part.Add(0.004F, 1);
  for (int i = 0; i < 1000; ++i) part.Add(0, 1);
  EXPECT_EQ(part.level(), Level::kNone);
}

TEST(SinkPart, AttentionSpreadEvenlyOverAGrowingCacheIsNoLoss) {
  SinkPart part;
  for (int64_t t = 4; t < 50000; ++t) {
    part.Add(4 / static_cast<float>(t), 1);
    ASSERT_EQ(part.level(), Level::kNone) << t;
  }
}

TEST(EntropyPart, NoiseIsNotCollapseAndAFlatDistributionIs) {
  std::mt19937 random(3);
  std::gamma_distribution<float> usual(1.5F, 1.8F);  // nats, as a language model's: 2.7 on average, skewed
  EntropyPart part;
  for (int i = 0; i < 50000; ++i) {
    part.Add(usual(random), 1, true);
    ASSERT_EQ(part.level(), Level::kNone) << i;
  }
  int n = 0;
  for (; part.level() != Level::kFull && n < 1000; ++n) part.Add(10, 1, false);
  EXPECT_LT(n, 256);
}

class MonitorTest : public ::testing::Test {
 protected:
  MonitorTest() : tiny_(TinySpec()), pool_(1), file_(TensorFile::Open(tiny_.WriteTemp("monitor"))) {
    EXPECT_TRUE(file_.ok());
    auto model = Model::Load(*file_, {Compute::kF32, nullptr}, pool_);
    EXPECT_TRUE(model.ok());
    model_ = std::move(model).value();
  }
  std::unique_ptr<Stream> NewStream(Policy policy, int64_t context, int64_t pinned = 4) {
    StreamOptions options;
    options.policy = policy;
    options.context = context;
    options.pinned = pinned;
    options.kv = KvType::kF32;
    auto stream = Stream::Create(*model_, pool_, options);
    EXPECT_TRUE(stream.ok());
    return std::move(stream).value();
  }
  // Feeds tokens with the monitor looking on; the position of the first alarm, -1 without.
  static int64_t Feed(Stream& stream, Monitor& monitor, std::span<const Token> tokens) {
    int64_t alarm = -1;
    for (const Token token : tokens) {
      if (!stream.logits().empty()) monitor.Drawn(stream.logits(), token, false);
      Stream::AppendOptions options;
      options.on_row = [&](const Stream::Row& row) {
        monitor.Fed(row.position + 1, 1, row.sink_mass, row.layer_stride);
      };
      EXPECT_TRUE(stream.Append({&token, 1}, options).ok());
      if (alarm < 0 && monitor.verdict().state == Health::kCollapsed) alarm = stream.position() - 1;
    }
    return alarm;
  }

  TinyLlama tiny_;
  ThreadPool pool_;
  Result<TensorFile> file_;
  std::unique_ptr<const Model> model_;
};

TEST_F(MonitorTest, ASlidingWindowLosesItsSinksAndPinnedOnesStay) {
  const std::vector<Token> tokens = RandomTokens(600, 64, 7);
  auto window = NewStream(Policy::kWindow, 64);
  Monitor monitor(*model_);
  const int64_t alarm = Feed(*window, monitor, tokens);
  EXPECT_GE(alarm, 64);
  EXPECT_LE(alarm, 64 + 128);
  EXPECT_EQ(monitor.verdict().reason, Ailment::kSinkLoss);
  EXPECT_GE(monitor.verdict().since, 64);
  EXPECT_LE(monitor.verdict().since, alarm);

  auto sinks = NewStream(Policy::kSinks, 64);
  Monitor calm(*model_);
  EXPECT_EQ(Feed(*sinks, calm, tokens), -1);
  // Nothing pinned is the same as a window, by whatever name.
  auto bare = NewStream(Policy::kSinks, 64, 0);
  Monitor other(*model_);
  EXPECT_EQ(Feed(*bare, other, tokens), alarm);
}

TEST_F(MonitorTest, BrokenLogitsAreAnAlarmAtOnce) {
  Monitor monitor(*model_);
  std::vector<float> logits(64, 0.5F);
  monitor.Drawn(logits, 3);
  monitor.Fed(1, 1, nullptr, 0);
  EXPECT_EQ(monitor.verdict().state, Health::kOk);
  logits[40] = std::numeric_limits<float>::quiet_NaN();
  monitor.Drawn(logits, 3);
  monitor.Fed(2, 1, nullptr, 0);
  EXPECT_EQ(monitor.verdict().state, Health::kCollapsed);
  EXPECT_EQ(monitor.verdict().reason, Ailment::kNonFinite);
  EXPECT_EQ(monitor.verdict().since, 1);
}

TEST_F(MonitorTest, ALoopIsCalledALoopAndTheAlarmEndsWithIt) {
  Monitor monitor(*model_);
  const std::vector<float> logits(64, 0.0F);
  const std::vector<Token> text = RandomTokens(1000, 64, 8);
  int64_t t = 0;
  const auto say = [&](Token token, bool generated) {
    monitor.Drawn(logits, token, generated);
    monitor.Fed(++t, 1, nullptr, 0);
  };
  for (int i = 0; i < 300; ++i)
    say(static_cast<Token>(i % 5), false);  // a text that was given may repeat itself
  EXPECT_EQ(monitor.verdict().state, Health::kOk);
  for (int i = 0; i < 200; ++i) say(static_cast<Token>(i % 5), true);
  EXPECT_EQ(monitor.verdict().state, Health::kCollapsed);
  EXPECT_EQ(monitor.verdict().reason, Ailment::kRepetition);
  for (int i = 0; i < 40; ++i) say(text[static_cast<size_t>(i)], true);
  EXPECT_EQ(monitor.verdict().state, Health::kCollapsed) << "an alarm is not dropped at the first other word";
  for (const Token token : text) say(token, true);
  EXPECT_EQ(monitor.verdict().state, Health::kOk);
}

TEST_F(MonitorTest, ALoopThatThenLosesItsSinksIsCalledByTheCause) {
  Monitor monitor(*model_);
  const std::vector<float> logits(64, 0.0F), here(3 * 4, 0.3F), gone(3 * 4, 0.0F);
  for (int64_t t = 0; t < 400; ++t) {
    monitor.Drawn(logits, static_cast<Token>(t % 5));
    monitor.Fed(t + 1, 1, t < 250 ? here.data() : gone.data(), 4);
    if (t == 249) {
      EXPECT_EQ(monitor.verdict().reason, Ailment::kRepetition);
    }
  }
  EXPECT_EQ(monitor.verdict().state, Health::kCollapsed);
  EXPECT_EQ(monitor.verdict().reason, Ailment::kSinkLoss);
  EXPECT_GE(monitor.verdict().since, 250);
}

TEST_F(MonitorTest, AStateTakenOverGoesOnAsTheOriginal) {
  const std::vector<Token> tokens = RandomTokens(600, 64, 7);
  auto stream = NewStream(Policy::kWindow, 256);
  Monitor one(*model_), two(*model_);
  Feed(*stream, one, std::span(tokens).first(250));
  ASSERT_TRUE(two.Import(one.state()).ok());
  for (int i = 0; i < 200; ++i) {  // the sinks leave
    const std::vector<float> gone(3 * 4, 0.0F);
    one.Fed(250 + i, 1, gone.data(), 4);
    two.Fed(250 + i, 1, gone.data(), 4);
    ASSERT_EQ(one.verdict().state, two.verdict().state) << i;
    ASSERT_EQ(one.verdict().since, two.verdict().since) << i;
  }
  EXPECT_EQ(two.verdict().reason, Ailment::kSinkLoss);
  Monitor::State bad = one.state();
  bad.sinks.usual = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(two.Import(bad).ok());
}

// A rescued stream is, bit for bit of its logits, the stream that a fresh prefill of the same tokens makes.
TEST_F(MonitorTest, ARescueIsAFreshPrefillAndKeepsThePosition) {
  const std::vector<Token> tokens = RandomTokens(300, 64, 11);
  for (const Policy policy : {Policy::kWindow, Policy::kSinks, Policy::kDense}) {
    auto stream = NewStream(policy, policy == Policy::kDense ? 400 : 64);
    ASSERT_TRUE(stream->Append(tokens).ok());
    const RescuePlan plan = PlanRescue(*stream, std::span(tokens).first(4), tokens, 4, -1);
    const bool kept = policy == Policy::kSinks;
    EXPECT_EQ(plan.sinks.size(), 4U);
    EXPECT_EQ(plan.sinks[0], kept ? tokens[0] : tokens[tokens.size() - plan.tail.size() - 4]);
    const auto feed = [&](std::span<const Token> piece) { return stream->Append(piece); };
    ASSERT_TRUE(Rescue(*stream, plan, feed).ok());
    EXPECT_EQ(stream->position(), 300);
    EXPECT_EQ(stream->policy(), Policy::kSinks);
    EXPECT_EQ(stream->pinned(), 4);
    auto fresh = NewStream(Policy::kSinks, stream->context());
    ASSERT_TRUE(fresh->Append(plan.sinks).ok());
    ASSERT_TRUE(fresh->Append(plan.tail).ok());
    const std::vector<Token> more = RandomTokens(200, 64, 12);
    for (const Token token : more) {  // far beyond the next roll-over
      for (size_t i = 0; i < fresh->logits().size(); ++i) {
        ASSERT_NEAR(stream->logits()[i], fresh->logits()[i], 1e-4);
      }
      ASSERT_TRUE(stream->Append({&token, 1}).ok());
      ASSERT_TRUE(fresh->Append({&token, 1}).ok());
    }
  }
}

TEST_F(MonitorTest, ARescueOfAShortStreamFeedsEveryTokenOnce) {
  const std::vector<Token> tokens = RandomTokens(9, 64, 13);
  for (const Policy policy : {Policy::kWindow, Policy::kSinks}) {
    auto stream = NewStream(policy, 64);
    ASSERT_TRUE(stream->Append(tokens).ok());
    const RescuePlan plan = PlanRescue(*stream, std::span(tokens).first(4), tokens, 4, 2);
    std::vector<Token> fed = plan.sinks;
    fed.insert(fed.end(), plan.tail.begin(), plan.tail.end());
    EXPECT_EQ(fed, tokens);
    const auto feed = [&](std::span<const Token> piece) { return stream->Append(piece); };
    ASSERT_TRUE(Rescue(*stream, plan, feed).ok());
    EXPECT_EQ(stream->position(), 9);
  }
}

TEST_F(MonitorTest, ARescuedStreamIsWellAndStaysSo) {
  const std::vector<Token> tokens = RandomTokens(900, 64, 7);
  auto stream = NewStream(Policy::kWindow, 64);
  Monitor monitor(*model_);
  ASSERT_GE(Feed(*stream, monitor, std::span(tokens).first(300)), 0);
  const auto feed = [&](std::span<const Token> piece) { return stream->Append(piece); };
  ASSERT_TRUE(Rescue(*stream, PlanRescue(*stream, {}, std::span(tokens).first(300), 4, -1), feed).ok());
  monitor.Rescued();
  EXPECT_EQ(Feed(*stream, monitor, std::span(tokens).subspan(300)), -1);
  EXPECT_EQ(monitor.verdict().state, Health::kOk);
}

TEST_F(MonitorTest, ARecomputingStreamIsNotRescued) {
  auto stream = NewStream(Policy::kRecompute, 16);
  ASSERT_TRUE(stream->Append(RandomTokens(8, 64, 1)).ok());
  const auto feed = [&](std::span<const Token> piece) { return stream->Append(piece); };
  EXPECT_EQ(Rescue(*stream, {}, feed).code(), Code::kUsage);
  EXPECT_EQ(stream->position(), 8);
}

}  // namespace
}  // namespace ballast
