// Taking tokens back, and moving a stream: both as if the other branch had never been.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/stream.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

class StreamRollBack : public ::testing::TestWithParam<Policy> {
 protected:
  StreamRollBack() : pool_(1), file_(TensorFile::Open(TinyLlama(TinySpec{}).WriteTemp("rollback"))) {
    model_ = Model::Load(*file_, {Compute::kF32, nullptr}, pool_).value();
  }
  std::unique_ptr<Stream> New(int64_t context = 24) {
    StreamOptions o;
    o.policy = GetParam();
    o.context = context;
    o.kv = KvType::kF32;
    return Stream::Create(*model_, pool_, o).value();
  }
  // One token at a time, so that both branches are fed in the same pieces.
  static void Feed(Stream& s, std::span<const Token> tokens) {
    for (const Token& t : tokens) ASSERT_TRUE(s.Append({&t, 1}).ok());
  }
  static bool SameLogits(const Stream& a, const Stream& b) {
    return std::equal(a.logits().begin(), a.logits().end(), b.logits().begin(), b.logits().end());
  }

  ThreadPool pool_;
  Result<TensorFile> file_;
  std::unique_ptr<const Model> model_;
};

// Where it is allowed, the other branch gives bit for bit the logits of a stream that never took the first
// one. Where it is not, nothing changes.
TEST_P(StreamRollBack, TheOtherBranchIsThatOfAFreshStream) {
  std::mt19937 rng(2);
  int allowed = 0, refused = 0;
  for (int round = 0; round < 60; ++round) {
    auto stream = New();
    const int64_t fed = 2 + static_cast<int64_t>(rng() % 22), more = static_cast<int64_t>(rng() % 12);
    if (GetParam() == Policy::kDense && fed + more > 24) continue;
    const std::vector<Token> common = RandomTokens(fed, 64, rng()), first = RandomTokens(more, 64, rng());
    Feed(*stream, common);
    const bool dropped = GetParam() != Policy::kRecompute && rng() % 3 == 0;
    Feed(*stream, first);
    if (dropped) {
      ASSERT_TRUE(stream->DropBefore(fed - 1).ok());
    }
    const std::vector<float> before(stream->logits().begin(), stream->logits().end());
    if (!stream->CanRollBack(fed, 0)) {
      ++refused;
      EXPECT_EQ(stream->RollBack(fed, 0).code(), Code::kInput);
      EXPECT_EQ(stream->position(), fed + more);
      EXPECT_TRUE(std::equal(before.begin(), before.end(), stream->logits().begin()));
      continue;
    }
    ++allowed;
    ASSERT_TRUE(stream->RollBack(fed, 0).ok());
    EXPECT_EQ(stream->position(), fed);
    if (more > 0) {
      EXPECT_TRUE(stream->logits().empty()) << "those of a token that was taken back";
    }
    auto fresh = New();
    Feed(*fresh, common);
    const std::vector<Token> second = RandomTokens(GetParam() == Policy::kDense ? 24 - fed : 60, 64, rng());
    for (const Token& t : second) {
      ASSERT_TRUE(stream->Append({&t, 1}).ok());
      ASSERT_TRUE(fresh->Append({&t, 1}).ok());
      ASSERT_TRUE(SameLogits(*stream, *fresh)) << "round " << round;
      ASSERT_EQ(stream->live(), fresh->live());
    }
  }
  EXPECT_GT(allowed, 10);
  if (GetParam() != Policy::kDense) {
    EXPECT_GT(refused, 10);
  }
}

TEST_P(StreamRollBack, AnImportedStreamGoesOnBitForBit) {
  for (const int64_t fed : {1, 4, 23, 24, 25, 100}) {
    if (GetParam() == Policy::kDense && fed > 20) continue;
    auto stream = New();
    Feed(*stream, RandomTokens(fed, 64, 3));
    std::vector<uint8_t> rows(static_cast<size_t>(stream->cache().row_bytes()));
    stream->cache().ExportRows(rows.data());
    auto copy = New();
    Feed(*copy, RandomTokens(7, 64, 4));
    ASSERT_TRUE(copy->Import(stream->state(), rows.data()).ok());
    EXPECT_EQ(copy->position(), fed);
    ASSERT_TRUE(SameLogits(*stream, *copy));
    for (const Token& t : RandomTokens(GetParam() == Policy::kDense ? 4 : 60, 64, 5)) {
      ASSERT_TRUE(stream->Append({&t, 1}).ok());
      ASSERT_TRUE(copy->Append({&t, 1}).ok());
      ASSERT_TRUE(SameLogits(*stream, *copy)) << fed;
    }
  }
}

TEST_P(StreamRollBack, AStateOfAnotherShapeIsRefusedAndNothingChanges) {
  auto stream = New();
  Feed(*stream, RandomTokens(10, 64, 3));
  std::vector<uint8_t> rows(static_cast<size_t>(stream->cache().row_bytes()));
  Stream::State state = stream->state();
  state.logits.pop_back();
  EXPECT_EQ(stream->Import(state, rows.data()).code(), Code::kInput);
  state = stream->state();
  state.cache.lost.pop_back();
  EXPECT_EQ(stream->Import(state, rows.data()).code(), Code::kInput);
  state = stream->state();
  state.history.push_back(1);
  EXPECT_EQ(stream->Import(state, rows.data()).code(), Code::kInput);
  EXPECT_EQ(stream->position(), 10);
  EXPECT_EQ(stream->logits().size(), 64u);
}

INSTANTIATE_TEST_SUITE_P(EveryPolicy, StreamRollBack,
                         ::testing::Values(Policy::kSinks, Policy::kWindow, Policy::kDense,
                                           Policy::kRecompute),
                         [](const auto& p) { return std::string(PolicyName(p.param)); });

}  // namespace
}  // namespace ballast
