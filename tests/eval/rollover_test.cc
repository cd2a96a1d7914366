// Roll-over perplexity against the plain definition, on a tiny random network.
#include "eval/rollover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "eval_fixture.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::Definition;
using ::testing::HasSubstr;
using testing::LoadedModel;
using testing::TinyLlama;

struct Tiny {
  TinyLlama network{testing::TinySpec{}};
  std::unique_ptr<LoadedModel> loaded =
      testing::LoadFile(network.WriteTemp("rollover_test.gguf"), Compute::kF32, 1);
};
Tiny& TheTiny() {
  static Tiny tiny;
  return tiny;
}

RolloverOptions F32Options(Policy policy, int64_t context, int64_t pinned, int64_t chunk) {
  RolloverOptions options;
  options.stream = {policy, context, pinned, KvType::kF32, chunk};
  options.per_token = true;
  return options;
}

Result<RolloverRun> RunTiny(std::span<const Token> tokens, const RolloverOptions& options) {
  SpanTokens source(tokens);
  const LoadedModel& loaded = *TheTiny().loaded;
  return RunRollover(*loaded.model, *loaded.pool, source, options);
}

double LogSumExpOf(const std::vector<double>& logits) {
  double sum = 0;
  for (const double v : logits) sum += std::exp(v);
  return std::log(sum);
}

// nll[i] = -log p(token i + 1 | cache after token i): off by one in either place would still look plausible.
TEST(Rollover, NllIsThatOfTheDefinition) {
  const std::vector<Token> tokens = testing::RandomTokens(60, TheTiny().network.spec().vocab, 5);
  Definition definition(TheTiny().network, 2, 10);
  const auto run = RunTiny(tokens, F32Options(Policy::kSinks, 12, 2, 7));
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_EQ(run->nll.size(), tokens.size() - 1);
  double sum = 0, tail = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::vector<double> logits = definition.Feed(tokens[i]);
    const double want = LogSumExpOf(logits) - logits[static_cast<size_t>(tokens[i + 1])];
    EXPECT_NEAR(run->nll[i], want, 1e-4) << i;
    sum += want;
    if (i >= 12) tail += want;
  }
  EXPECT_NEAR(run->mean_nll, sum / 59, 1e-4);
  EXPECT_NEAR(run->perplexity, std::exp(sum / 59), 1e-2);
  ASSERT_NE(run->Tail(12), nullptr);  // where eviction starts
  EXPECT_EQ(run->Tail(12)->count, 47);
  EXPECT_NEAR(run->Tail(12)->perplexity(), std::exp(tail / 47), 1e-2);
  EXPECT_EQ(run->evicted_tokens, 48);
  EXPECT_EQ(run->sinks, 2);
  EXPECT_EQ(run->context, 12);
  EXPECT_EQ(run->tokens, 60);
  EXPECT_GT(run->kv_bytes, 0);
  EXPECT_GT(run->tokens_per_second, 0);
}

// The cost of every block is on record: a stream that slows down or grows cannot hide behind its mean.
TEST(Rollover, EveryBlockSaysWhatItCost) {
  const std::vector<Token> tokens = testing::RandomTokens(2100, TheTiny().network.spec().vocab, 5);
  const auto run = RunTiny(tokens, F32Options(Policy::kSinks, 24, 4, 256));
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_EQ(run->blocks.size(), 3u);
  double seconds = 0;
  for (const PerplexityBlock& block : run->blocks) {
    EXPECT_GT(block.seconds, 0);
    EXPECT_GT(block.rss_bytes, 1 << 20);
    EXPECT_LE(block.rss_bytes, run->rss_peak_bytes);
    seconds += block.seconds;
  }
  EXPECT_NEAR(seconds, run->seconds, 0.1 * run->seconds + 0.01);
}

TEST(Rollover, ChunkSizeChangesNothing) {
  const std::vector<Token> tokens = testing::RandomTokens(80, TheTiny().network.spec().vocab, 6);
  for (const Policy policy : {Policy::kSinks, Policy::kWindow, Policy::kRecompute}) {
    const auto one = RunTiny(tokens, F32Options(policy, 16, 3, 1));
    ASSERT_TRUE(one.ok()) << one.status().message();
    for (const int64_t chunk : {2, 13, 64, 256}) {
      const auto many = RunTiny(tokens, F32Options(policy, 16, 3, chunk));
      ASSERT_TRUE(many.ok()) << many.status().message();
      for (size_t i = 0; i < one->nll.size(); ++i) ASSERT_NEAR(one->nll[i], many->nll[i], 1e-4) << i;
    }
  }
}

// Recomputation after roll-over is a dense cache over the last tokens alone.
TEST(Rollover, RecomputeSeesTheLastTokensAfresh) {
  const std::vector<Token> tokens = testing::RandomTokens(40, TheTiny().network.spec().vocab, 7);
  const auto run = RunTiny(tokens, F32Options(Policy::kRecompute, 16, 4, 8));
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->evicted_tokens, 24);
  for (const size_t i : {size_t{16}, size_t{25}, size_t{38}}) {
    const auto last = std::span<const Token>(tokens).subspan(i - 15, 17);  // 16 seen, and the one predicted
    const auto dense = RunTiny(last, F32Options(Policy::kDense, 17, 4, 8));
    ASSERT_TRUE(dense.ok()) << dense.status().message();
    EXPECT_NEAR(run->nll[i], dense->nll.back(), 1e-4) << i;
  }
}

TEST(Rollover, RefusesBeforeAnyWork) {
  const std::vector<Token> tokens = testing::RandomTokens(20, TheTiny().network.spec().vocab, 8);
  const auto one = RunTiny(std::span<const Token>(tokens).first(1), F32Options(Policy::kSinks, 8, 2, 4));
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.status().code(), Code::kInput);
  EXPECT_THAT(one.status().message(), HasSubstr("nothing to score"));
  RolloverOptions dense = F32Options(Policy::kDense, 19, 2, 4);
  dense.on_progress = [](int64_t, int64_t) { return ADD_FAILURE() << "work was done", true; };
  const auto full = RunTiny(tokens, dense);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.status().code(), Code::kInput);
  EXPECT_THAT(full.status().message(), HasSubstr("expected at most 19 tokens, found 20"));
  dense.stream.context = 20;
  dense.on_progress = nullptr;
  EXPECT_TRUE(RunTiny(tokens, dense).ok());
}

TEST(Rollover, IdsOutsideTheVocabularyAreRefused) {
  for (const Token bad : {-1, TheTiny().network.spec().vocab}) {
    for (const size_t at : {size_t{0}, size_t{3}, size_t{4}, size_t{9}}) {
      std::vector<Token> tokens = testing::RandomTokens(10, TheTiny().network.spec().vocab, 9);
      tokens[at] = bad;
      const auto run = RunTiny(tokens, F32Options(Policy::kSinks, 8, 2, 4));
      ASSERT_FALSE(run.ok());
      EXPECT_EQ(run.status().code(), Code::kInput);
    }
  }
}

TEST(Rollover, ProgressCountsUpAndInterrupts) {
  const std::vector<Token> tokens = testing::RandomTokens(50, TheTiny().network.spec().vocab, 10);
  for (const Policy policy : {Policy::kSinks, Policy::kRecompute}) {
    std::vector<int64_t> seen;
    RolloverOptions options = F32Options(policy, 16, 2, 8);
    options.on_progress = [&](int64_t done, int64_t total) {
      EXPECT_EQ(total, 50);
      seen.push_back(done);
      return true;
    };
    ASSERT_TRUE(RunTiny(tokens, options).ok());
    EXPECT_EQ(seen.back(), 50);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    options.on_progress = [](int64_t done, int64_t) { return done < 24; };
    const auto run = RunTiny(tokens, options);
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.status().code(), Code::kInterrupted);
    EXPECT_THAT(run.status().message(), HasSubstr("24 of 50"));
  }
}

// A run that was saved goes on bit for bit, whatever came between.
TEST(Rollover, ResumedItIsTheSameRun) {
  const LoadedModel& loaded = *TheTiny().loaded;
  const std::vector<Token> tokens = testing::RandomTokens(500, TheTiny().network.spec().vocab, 6);
  for (const Policy policy : {Policy::kSinks, Policy::kDense, Policy::kRecompute}) {
    const int64_t context = policy == Policy::kDense ? 500 : 24;
    RolloverOptions options = F32Options(policy, context, 4, 16);
    options.per_token = false;
    options.block = 64;
    options.tails = {24, 100};
    const auto whole = RunTiny(tokens, options);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    std::vector<std::vector<uint8_t>> saved;
    options.checkpoints.every = 96;
    options.checkpoints.identity =
        IdentifyModel(*loaded.file, *loaded.tokenizer, loaded.model->config(), Compute::kF32);
    options.checkpoints.save = [&](std::span<const uint8_t> image) {
      saved.emplace_back(image.begin(), image.end());
      return Status();
    };
    ASSERT_TRUE(RunTiny(tokens, options).ok());
    ASSERT_EQ(saved.size(), 6u);  // five on the way, one at the end
    for (const std::vector<uint8_t>& image : std::vector(saved)) {
      options.checkpoints.resume = image;
      const auto run = RunTiny(tokens, options);
      ASSERT_TRUE(run.ok()) << run.status().message();
      EXPECT_GT(run->resumed_at, 0);
      EXPECT_EQ(run->mean_nll, whole->mean_nll);
      ASSERT_EQ(run->blocks.size(), whole->blocks.size());
      for (size_t i = 0; i < run->blocks.size(); ++i) {
        EXPECT_EQ(run->blocks[i].perplexity, whole->blocks[i].perplexity);
        EXPECT_GT(run->blocks[i].rss_bytes, 0);
      }
      for (const int64_t tail : options.tails) {
        EXPECT_EQ(run->Tail(tail)->sum, whole->Tail(tail)->sum);
        EXPECT_EQ(run->Tail(tail)->batches, whole->Tail(tail)->batches);
      }
      EXPECT_EQ(run->evicted_tokens, whole->evicted_tokens);
    }
    const std::vector<uint8_t> first = saved.front();
    options.checkpoints.resume = first;
    std::vector<Token> other = tokens;
    other[10] = (other[10] + 1) % TheTiny().network.spec().vocab;
    EXPECT_THAT(RunTiny(other, options).status().message(), HasSubstr("checkpoint: text"));
    options.tails = {25, 100};
    EXPECT_THAT(RunTiny(tokens, options).status().message(), HasSubstr("checkpoint: sums"));
    options.tails = {24, 100};
    options.stream.pinned = 3;
    if (policy != Policy::kRecompute) {
      EXPECT_THAT(RunTiny(tokens, options).status().message(), HasSubstr("stream snapshot: options"));
    }
    options.stream.pinned = 4;
    options.checkpoints.identity.low ^= 1;
    EXPECT_THAT(RunTiny(tokens, options).status().message(), HasSubstr("stream snapshot: model"));
  }
}

TEST(PeakResident, IsKnownHere) { EXPECT_GT(PeakResidentBytes(), 1 << 20); }

}  // namespace
}  // namespace ballast
