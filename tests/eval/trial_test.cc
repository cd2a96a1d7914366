// Trials of the collapse monitor: what they count, and that they are repeatable.
#include "eval/trial.h"

#include <gtest/gtest.h>

#include "engine/load_tokenizer.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

TEST(FindLoop, TellsPeriodShareAndLength) {
  std::vector<Token> tokens = RandomTokens(300, 5000, 1);
  EXPECT_LT(FindLoop(tokens).share, 0.1);
  for (Token i = 0; i < 100; ++i) tokens.push_back(10000 + i % 20);
  const Loop loop = FindLoop(tokens);
  EXPECT_EQ(loop.period, 20);
  EXPECT_NEAR(loop.share, 80 / 128.0, 0.02);
  EXPECT_NEAR(static_cast<double>(loop.tokens), 100, 1) << "80 of 100 are repeated";
  EXPECT_EQ(FindLoop(std::vector<Token>{}).period, 0);
  EXPECT_EQ(FindLoop(std::vector<Token>{7}).period, 0);
}

class TrialTest : public ::testing::Test {
 protected:
  TrialTest() : tiny_(Spec()), pool_(2), file_(TensorFile::Open(tiny_.WriteTemp("trial"))) {
    EXPECT_TRUE(file_.ok());
    tokenizer_ = std::move(LoadTokenizer(*file_)).value();
    model_ = std::move(Model::Load(*file_, {Compute::kF32, nullptr}, pool_)).value();
  }
  static TinySpec Spec() {
    TinySpec spec;
    spec.vocab = 160;
    return spec;
  }
  TrialOptions Options(Policy policy) const {
    TrialOptions o;
    o.stream.policy = policy;
    o.stream.context = 64;
    o.stream.chunk = 16;
    o.stream.kv = KvType::kF32;
    return o;
  }
  Result<TrialRun> Fed(const TrialOptions& options) {
    const std::vector<Token> tokens = RandomTokens(500, 160, 5);
    SpanTokens source(tokens);
    return RunFedTrial(*model_, *tokenizer_, pool_, source, options);
  }

  TinyLlama tiny_;
  ThreadPool pool_;
  Result<TensorFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const Model> model_;
};

TEST_F(TrialTest, OneAlarmUnderAWindowNoneUnderSinksNoneAfterARescue) {
  const Result<TrialRun> window = Fed(Options(Policy::kWindow));
  ASSERT_TRUE(window.ok());
  ASSERT_EQ(window->alarms.size(), 1U);
  EXPECT_EQ(window->alarms[0].reason, Ailment::kSinkLoss);
  EXPECT_GE(window->alarms[0].position, 64);
  EXPECT_EQ(window->tokens, 500);
  EXPECT_EQ(window->nll.size(), 499U);
  const Result<TrialRun> sinks = Fed(Options(Policy::kSinks));
  ASSERT_TRUE(sinks.ok());
  EXPECT_TRUE(sinks->alarms.empty());
  TrialOptions rescue = Options(Policy::kWindow);
  rescue.rescue = true;
  const Result<TrialRun> rescued = Fed(rescue);
  ASSERT_TRUE(rescued.ok());
  EXPECT_EQ(rescued->alarms.size(), 1U);
  ASSERT_EQ(rescued->rescues.size(), 1U);
  EXPECT_EQ(rescued->tokens, 500);
  EXPECT_EQ(rescued->nll.size(), 499U);
}

TEST_F(TrialTest, FreeStreamsAreRepeatableWhateverTheThreads) {
  FreeTrialOptions o;
  static_cast<TrialOptions&>(o) = Options(Policy::kWindow);
  o.sampler.seed = 4;
  o.sampler.temperature = 1.5;
  o.openings = {"ab", "user"};
  o.streams = 3;
  o.length = 250;
  const Result<TrialRun> one = RunFreeTrial(*model_, *tokenizer_, pool_, o);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->tokens, 750);
  EXPECT_EQ(one->alarms.size(), 3U);
  ThreadPool single(1);
  const Result<TrialRun> other = RunFreeTrial(*model_, *tokenizer_, single, o);
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(other->alarms.size(), one->alarms.size());
  for (size_t i = 0; i < one->alarms.size(); ++i)
    EXPECT_EQ(one->alarms[i].position, other->alarms[i].position);
}

}  // namespace
}  // namespace ballast
