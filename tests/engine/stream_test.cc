// The engine against the definition of StreamingLLM, and the laws a stream must keep.
#include "engine/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::Definition;
using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

struct Loaded {
  ThreadPool pool;
  Result<TensorFile> file;
  std::unique_ptr<const Model> model;
  explicit Loaded(const TinyLlama& tiny, Compute compute = Compute::kF32, int threads = 2)
      : pool(threads), file(TensorFile::Open(tiny.WriteTemp("stream"))) {
    EXPECT_TRUE(file.ok()) << file.status().message();
    Result<std::unique_ptr<const Model>> loaded = Model::Load(*file, {compute, nullptr}, pool);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = std::move(loaded).value();
  }
  std::unique_ptr<Stream> NewStream(const StreamOptions& options) {
    Result<std::unique_ptr<Stream>> s = Stream::Create(*model, pool, options);
    EXPECT_TRUE(s.ok()) << s.status().message();
    return std::move(s).value();
  }
};

StreamOptions Options(Policy policy, int64_t context, int64_t pinned, KvType kv = KvType::kF32,
                      int64_t chunk = 256) {
  StreamOptions o;
  o.policy = policy;
  o.context = context;
  o.pinned = pinned;
  o.kv = kv;
  o.chunk = chunk;
  return o;
}

// Logits of every token. (tokens, vocab)
std::vector<std::vector<float>> AllLogits(Stream& stream, std::span<const Token> tokens) {
  std::vector<std::vector<float>> all;
  Stream::AppendOptions options;
  options.all_logits = true;
  options.on_row = [&](const Stream::Row& row) { all.emplace_back(row.logits.begin(), row.logits.end()); };
  const Status s = stream.Append(tokens, options);
  EXPECT_TRUE(s.ok()) << s.message();
  return all;
}

double WorstDifference(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j)
      worst = std::max(worst, std::abs(static_cast<double>(a[i][j]) - b[i][j]));
  }
  return worst;
}

std::vector<TinySpec> EverySpec() {
  std::vector<TinySpec> specs(6);
  specs[1].architecture = "qwen2";
  specs[1].biases = true;
  specs[2].rope_factors = true;
  specs[2].separate_output = true;
  specs[3].linear_factor = 4;
  specs[3].kv_heads = 1;
  specs[4].rope_dims = 8;  // partial RoPE
  specs[4].heads = 2;
  specs[5].architecture = "qwen2";
  specs[5].rope_dims = 8;
  specs[5].kv_heads = 4;
  for (size_t i = 0; i < specs.size(); ++i) specs[i].seed = static_cast<uint32_t>(i + 1);
  return specs;
}

class StreamLaw : public ::testing::TestWithParam<TinySpec> {};

// The heart of the product: pinned keys and a ring, keys rotated once, equal the paper's definition at every
// step, long after roll-over (transformers #33691, llama.cpp #3825: positions drift there).
TEST_P(StreamLaw, EqualsTheDefinitionFarBeyondRollOver) {
  const TinyLlama tiny(GetParam());
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(160, tiny.spec().vocab, 5);
  for (const auto& [pinned, window] :
       {std::pair<int64_t, int64_t>{4, 12}, {0, 16}, {1, 7}, {16, 3}, {2, 1}}) {
    Definition definition(tiny, pinned, window);
    auto stream =
        m.NewStream(Options(pinned == 0 ? Policy::kWindow : Policy::kSinks, pinned + window, pinned));
    double worst = 0, worst_mass = 0;
    Stream::AppendOptions options;
    options.all_logits = true;
    options.on_row = [&](const Stream::Row& row) {
      const std::vector<double> want = definition.Feed(tokens[static_cast<size_t>(row.position)]);
      for (size_t i = 0; i < want.size(); ++i)
        worst = std::max(worst, std::abs(want[i] - static_cast<double>(row.logits[i])));
      for (int l = 0; l < tiny.spec().layers; ++l) {
        for (int h = 0; h < tiny.spec().heads; ++h) {
          const double mass = definition.sink_mass()[static_cast<size_t>(l * tiny.spec().heads + h)];
          worst_mass = std::max(worst_mass, std::abs(mass - static_cast<double>(row.SinkMass(l, h))));
        }
      }
    };
    ASSERT_TRUE(stream->Append(tokens, options).ok());
    EXPECT_LT(worst, 2e-4) << pinned << "+" << window;
    EXPECT_LT(worst_mass, 2e-5) << pinned << "+" << window;
  }
}

// Whole turns leave at once; what stays moves up inside the cache without a byte moving.
TEST_P(StreamLaw, DroppingTurnsEqualsTheDefinition) {
  const TinyLlama tiny(GetParam());
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(120, tiny.spec().vocab, 6);
  Definition definition(tiny, 4, 20);
  auto stream = m.NewStream(Options(Policy::kSinks, 24, 4));
  std::mt19937 rng(3);
  double worst = 0;
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min<size_t>(1 + rng() % 9, tokens.size() - at);
    std::vector<double> want;
    for (size_t i = at; i < at + n; ++i) want = definition.Feed(tokens[i]);
    ASSERT_TRUE(stream->Append(std::span(tokens).subspan(at, n)).ok());
    for (size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, std::abs(want[i] - static_cast<double>(stream->logits()[i])));
    at += n;
    if (rng() % 3 == 0) {
      const int64_t x = static_cast<int64_t>(at) - static_cast<int64_t>(rng() % 12);
      definition.DropBefore(x);
      ASSERT_TRUE(stream->DropBefore(x).ok());
    }
  }
  EXPECT_LT(worst, 2e-4);
}

// streaming-llm #4, mlx-examples #1000: a prompt of several windows in one call, or many tokens after the
// ring has wrapped.
TEST_P(StreamLaw, AnyChunkingGivesTheSameLogits) {
  const TinyLlama tiny(GetParam());
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(200, tiny.spec().vocab, 8);
  std::mt19937 rng(11);
  for (KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    auto one_by_one = m.NewStream(Options(Policy::kSinks, 24, 4, kv, 1));
    const auto want = AllLogits(*one_by_one, tokens);
    for (int round = 0; round < 4; ++round) {
      auto stream = m.NewStream(Options(Policy::kSinks, 24, 4, kv, 1 + static_cast<int64_t>(rng() % 100)));
      std::vector<std::vector<float>> got;
      for (size_t at = 0; at < tokens.size();) {
        const size_t n = std::min<size_t>(1 + rng() % 90, tokens.size() - at);
        for (auto& row : AllLogits(*stream, std::span(tokens).subspan(at, n))) got.push_back(std::move(row));
        at += n;
      }
      // In float the chunking is invisible but for summation order; where rows are rounded on their way into
      // the cache, a difference in the last bit can flip a rounding, and that step is what is allowed here
      // (logits are of size 10).
      EXPECT_LT(WorstDifference(want, got), kv == KvType::kF32   ? 1e-4
                                            : kv == KvType::kF16 ? 1e-2
                                                                 : 5e-2)
          << KvTypeName(kv);
    }
  }
}

// float32 angles would be off by 0.47 rad at 10^7 already.
TEST_P(StreamLaw, PositionABillionGivesTheLogitsOfPositionZero) {
  const TinyLlama tiny(GetParam());
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(100, tiny.spec().vocab, 9);
  const std::span<const Token> all(tokens);
  for (int64_t skip : {int64_t{1000000000}, int64_t{1} << 40}) {
    auto near = m.NewStream(Options(Policy::kSinks, 20, 4));
    auto far = m.NewStream(Options(Policy::kSinks, 20, 4));
    ASSERT_TRUE(near->Append(all.first(4)).ok());
    ASSERT_TRUE(far->Append(all.first(4)).ok());
    far->SkipForTesting(skip);
    const auto want = AllLogits(*near, all.subspan(4));
    const auto got = AllLogits(*far, all.subspan(4));
    EXPECT_EQ(far->position(), skip + 100);
    EXPECT_LT(WorstDifference(want, got), skip < (int64_t{1} << 35) ? 1e-4 : 5e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, StreamLaw, ::testing::ValuesIn(EverySpec()),
                         [](const auto& p) { return p.param.architecture + "_" + std::to_string(p.index); });

TEST(Stream, RecomputeEqualsADenseRunOverTheLastTokens) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(40, 64, 2);
  auto recompute = m.NewStream(Options(Policy::kRecompute, 16, 4, KvType::kF32, 5));
  const auto got = AllLogits(*recompute, tokens);
  ASSERT_EQ(got.size(), tokens.size());
  EXPECT_EQ(recompute->position(), 40);
  EXPECT_EQ(recompute->evicted(), 24);
  for (size_t end = 1; end <= tokens.size(); ++end) {
    const size_t begin = end > 16 ? end - 16 : 0;
    auto dense = m.NewStream(Options(Policy::kDense, 16, 4));
    ASSERT_TRUE(dense->Append(std::span(tokens).subspan(begin, end - begin)).ok());
    const std::vector<float> want(dense->logits().begin(), dense->logits().end());
    EXPECT_LT(WorstDifference({want}, {got[end - 1]}), 1e-4) << "after token " << end;
  }
}

TEST(Stream, DenseAndSinksAgreeUntilTheCacheIsFull) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(32, 64, 2);
  auto dense = m.NewStream(Options(Policy::kDense, 32, 4));
  auto sinks = m.NewStream(Options(Policy::kSinks, 32, 4));
  auto window = m.NewStream(Options(Policy::kWindow, 32, 4));
  const auto want = AllLogits(*dense, tokens);
  EXPECT_LT(WorstDifference(want, AllLogits(*sinks, tokens)), 1e-4);
  EXPECT_LT(WorstDifference(want, AllLogits(*window, tokens)), 1e-4);
  const Status full = dense->Append(std::span(tokens).first(1));
  EXPECT_EQ(full.code(), Code::kInput);
  EXPECT_EQ(dense->position(), 32);
  EXPECT_TRUE(sinks->Append(std::span(tokens).first(1)).ok());
  EXPECT_EQ(sinks->evicted(), 1);
}

TEST(Stream, ThreadsDoNotChangeABit) {
  const TinyLlama tiny{TinySpec{}};
  const std::vector<int32_t> tokens = RandomTokens(100, 64, 4);
  for (Compute compute : {Compute::kF32, Compute::kFast}) {
    std::vector<std::vector<std::vector<float>>> results;
    for (int threads : {1, 2, 3}) {
      Loaded m(tiny, compute, threads);
      auto s = m.NewStream(Options(Policy::kSinks, 24, 4, KvType::kQ8, 32));
      results.push_back(AllLogits(*s, tokens));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Stream, FastAgreesWithTheReferenceOnQuantisedWeights) {
  TinySpec spec;
  spec.weights = DType::kQ8_0;
  spec.embed = 64;
  spec.ffn = 128;
  const TinyLlama tiny(spec);
  Loaded plain(tiny, Compute::kF32);
  Loaded fast(tiny, Compute::kFast);
  const std::vector<int32_t> tokens = RandomTokens(100, 64, 4);
  auto a = plain.NewStream(Options(Policy::kSinks, 24, 4));
  auto b = fast.NewStream(Options(Policy::kSinks, 24, 4, KvType::kQ8));
  const auto want = AllLogits(*a, tokens);
  const auto got = AllLogits(*b, tokens);
  // Mean negative log likelihood, the figure that quantisation must not move.
  double want_nll = 0, got_nll = 0;
  const auto nll = [](const std::vector<float>& logits, int32_t next) {
    double sum = 0;
    for (float x : logits) sum += std::exp(static_cast<double>(x) - 50);
    return std::log(sum) + 50 - static_cast<double>(logits[static_cast<size_t>(next)]);
  };
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    want_nll += nll(want[i], tokens[i + 1]) / 99;
    got_nll += nll(got[i], tokens[i + 1]) / 99;
  }
  EXPECT_NEAR(got_nll, want_nll, 0.05 * want_nll);
}

TEST(Stream, BadTokensAreRefusedAndNothingIsFed) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny);
  auto s = m.NewStream(Options(Policy::kSinks, 24, 4));
  const std::vector<Token> bad = {1, 2, 64};
  const Status status = s->Append(bad);
  EXPECT_EQ(status.code(), Code::kInput);
  EXPECT_EQ(status.message(), "token 2: expected an id from 0 to 63, found 64");
  EXPECT_EQ(s->position(), 0);
  EXPECT_EQ(s->Append(std::vector<Token>{-1}).code(), Code::kInput);
  EXPECT_TRUE(s->Append({}).ok());
  EXPECT_TRUE(s->logits().empty());
}

TEST(Stream, AnInterruptKeepsWhatWasFed) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(100, 64, 4);
  auto s = m.NewStream(Options(Policy::kSinks, 24, 4, KvType::kF32, 10));
  Stream::AppendOptions options;
  options.on_step = [](int64_t done) { return done < 30; };
  EXPECT_EQ(s->Append(tokens, options).code(), Code::kInterrupted);
  EXPECT_EQ(s->position(), 30);
  EXPECT_TRUE(s->logits().empty());  // those of token 29 were never computed
  ASSERT_TRUE(s->Append(std::span(tokens).subspan(30)).ok());
  auto whole = m.NewStream(Options(Policy::kSinks, 24, 4));
  ASSERT_TRUE(whole->Append(tokens).ok());
  const std::vector<float> a(s->logits().begin(), s->logits().end());
  const std::vector<float> b(whole->logits().begin(), whole->logits().end());
  EXPECT_LT(WorstDifference({a}, {b}), 1e-4);
}

TEST(Stream, ResetGivesAFreshStreamInTheSameMemory) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny);
  const std::vector<int32_t> tokens = RandomTokens(50, 64, 4);
  for (Policy policy : {Policy::kSinks, Policy::kRecompute}) {
    auto s = m.NewStream(Options(policy, 24, 4));
    const auto first = AllLogits(*s, tokens);
    s->Reset();
    EXPECT_EQ(s->position(), 0);
    EXPECT_EQ(AllLogits(*s, tokens), first);
  }
}

TEST(Stream, OptionsThatMakeNoSenseAreUsageErrors) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny);
  for (const StreamOptions& bad :
       {Options(Policy::kSinks, 4, 4), Options(Policy::kSinks, -1, 0),
        Options(Policy::kSinks, 24, 4, KvType::kF32, 0), Options(Policy::kSinks, int64_t{1} << 32, 4)}) {
    const auto s = Stream::Create(*m.model, m.pool, bad);
    ASSERT_TRUE(!s.ok() || bad.context > 1000000);
    if (!s.ok()) {
      EXPECT_EQ(s.status().code(), Code::kUsage) << s.status().message();
    }
  }
  // Default context: the trained length when that is below 8192.
  EXPECT_EQ(m.NewStream(StreamOptions{})->context(), 256);
}

}  // namespace
}  // namespace ballast
