// Generation: exact budgets, stops that never leak, reproducible text.
#include "engine/generate.h"

#include <gtest/gtest.h>

#include "engine/load_tokenizer.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::TinyLlama;
using testing::TinySpec;

class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() : tiny_(Spec()), pool_(1), file_(TensorFile::Open(tiny_.WriteTemp("generate"))) {
    EXPECT_TRUE(file_.ok()) << file_.status().message();
    auto tokenizer = LoadTokenizer(*file_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    auto model = Model::Load(*file_, {Compute::kF32, nullptr}, pool_);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(model).value();
  }
  static TinySpec Spec() {
    TinySpec spec;
    spec.layers = 1;
    return spec;
  }
  std::unique_ptr<Stream> Fed(Policy policy = Policy::kSinks, int64_t context = 24) {
    StreamOptions options;
    options.policy = policy;
    options.context = context;
    auto stream = Stream::Create(*model_, pool_, options);
    EXPECT_TRUE(stream.ok());
    EXPECT_TRUE((*stream)->Append(std::vector<Token>{5, 9, 13}).ok());
    return std::move(stream).value();
  }
  Sampler NewSampler(uint64_t seed, double temperature = 1.5) {
    SamplerOptions options;
    options.seed = seed;
    options.temperature = temperature;
    auto sampler = Sampler::Create(options, Spec().vocab, 24);
    EXPECT_TRUE(sampler.ok());
    return std::move(sampler).value();
  }
  Generated Run(uint64_t seed, const GenerateOptions& options, Stream& stream) {
    Sampler sampler = NewSampler(seed);
    auto out = Generate(stream, *tokenizer_, sampler, options);
    EXPECT_TRUE(out.ok()) << out.status().message();
    return std::move(out).value();
  }

  TinyLlama tiny_;
  ThreadPool pool_;
  Result<TensorFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const Model> model_;
};

// llama.cpp #4047, vllm #6521: limits 0, 1 and 2 gave extra tokens.
TEST_F(GenerateTest, TheBudgetIsKeptExactly) {
  for (int64_t n : {0, 1, 2, 3, 50}) {
    auto stream = Fed();
    GenerateOptions options;
    options.max_tokens = n;
    options.stop_at_end_of_turn = false;
    const Generated out = Run(1, options, *stream);
    EXPECT_EQ(static_cast<int64_t>(out.tokens.size()), n);
    EXPECT_EQ(stream->position(), 3 + n);
    EXPECT_EQ(out.reason, StopReason::kBudget);
  }
}

TEST_F(GenerateTest, TheSameSeedGivesTheSameTextAndAnotherSeedAnother) {
  GenerateOptions options;
  options.max_tokens = 60;
  options.stop_at_end_of_turn = false;
  auto a = Fed(), b = Fed(), c = Fed();
  const Generated first = Run(42, options, *a);
  EXPECT_EQ(first.tokens, Run(42, options, *b).tokens);
  EXPECT_NE(first.tokens, Run(43, options, *c).tokens);
}

// vllm #3574, llama.cpp PR 9867: a stop string over several tokens leaked its first ones, or the held tail
// was lost.
TEST_F(GenerateTest, AStopStringOverTokensNeverLeaks) {
  GenerateOptions options;
  options.max_tokens = 60;
  options.stop_at_end_of_turn = false;
  auto stream = Fed();
  const std::string whole = Run(7, options, *stream).text;
  ASSERT_GE(whole.size(), 30u);
  for (size_t at : {size_t{0}, size_t{1}, size_t{10}, whole.size() - 6}) {
    for (size_t length : {1, 3, 5}) {
      const std::string stop = whole.substr(at, length);
      std::string streamed;
      options.stops = {"never in this text", stop};
      options.on_text = [&](std::string_view text) {
        streamed += text;
        return true;
      };
      auto again = Fed();
      const Generated out = Run(7, options, *again);
      EXPECT_EQ(out.text, whole.substr(0, whole.find(stop)));
      EXPECT_EQ(streamed, out.text);
      EXPECT_EQ(out.reason, StopReason::kStopString);
    }
  }
}

TEST_F(GenerateTest, AReceiverThatWantsNoMoreInterrupts) {
  GenerateOptions options;
  options.stop_at_end_of_turn = false;
  int64_t seen = 0;
  options.on_token = [&](Token) { return ++seen < 5; };
  auto stream = Fed();
  const Generated out = Run(7, options, *stream);
  EXPECT_EQ(out.reason, StopReason::kInterrupted);
  EXPECT_EQ(out.tokens.size(), 5u);
  EXPECT_EQ(stream->position(), 8);
}

TEST_F(GenerateTest, EndOfTurnEndsTheReplyAndIsInTheStreamButNotInTheText) {
  GenerateOptions options;
  options.max_tokens = 2000;
  auto stream = Fed();
  const Generated out = Run(3, options, *stream);
  ASSERT_EQ(out.reason, StopReason::kEndOfTurn);  // at this temperature one of 64 tokens ends the turn soon
  EXPECT_TRUE(tokenizer_->EndsTurn(out.tokens.back()));
  EXPECT_EQ(out.text.find("<|"), std::string::npos);
  EXPECT_EQ(stream->position(), 3 + static_cast<int64_t>(out.tokens.size()));
}

TEST_F(GenerateTest, AnEmptyStreamHasNothingToContinue) {
  auto stream = Fed();
  stream->Reset();
  Sampler sampler = NewSampler(1);
  const auto out = Generate(*stream, *tokenizer_, sampler, {});
  EXPECT_EQ(out.status().code(), Code::kInput);
}

TEST_F(GenerateTest, AFullDenseCacheIsAnErrorAfterTheTextSoFar) {
  auto stream = Fed(Policy::kDense, 10);
  GenerateOptions options;
  options.stop_at_end_of_turn = false;
  std::string streamed;
  options.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  Sampler sampler = NewSampler(1);
  const auto out = Generate(*stream, *tokenizer_, sampler, options);
  EXPECT_EQ(out.status().code(), Code::kInput);
  EXPECT_FALSE(streamed.empty());
  EXPECT_EQ(stream->position(), 10);
}

// The last token of a text needs no place in a cache that nothing can follow in.
TEST_F(GenerateTest, ADenseCacheGivesAllTheTokensThatItsCapacityAllows) {
  GenerateOptions options;
  options.stop_at_end_of_turn = false;
  for (const int64_t context : {3, 4, 10}) {  // of which the prompt takes 3
    auto stream = Fed(Policy::kDense, context);
    options.max_tokens = context - 3 + 1;
    const Generated out = Run(1, options, *stream);
    EXPECT_EQ(static_cast<int64_t>(out.tokens.size()), options.max_tokens);
    EXPECT_EQ(out.reason, StopReason::kBudget);
    EXPECT_TRUE(stream->full());
    EXPECT_EQ(stream->Append(std::vector<Token>{1}).code(), Code::kInput);
    ++options.max_tokens;
    auto again = Fed(Policy::kDense, context);
    Sampler sampler = NewSampler(1);
    EXPECT_EQ(Generate(*again, *tokenizer_, sampler, options).status().code(), Code::kInput);
  }
  EXPECT_FALSE(Fed(Policy::kDense, 4)->full());
  EXPECT_FALSE(Fed(Policy::kRecompute, 3)->full());
}

}  // namespace
}  // namespace ballast
