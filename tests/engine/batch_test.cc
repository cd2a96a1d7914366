// Many streams in one step: each as if it were alone.
#include "engine/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

struct Loaded {
  ThreadPool pool{2};
  Result<TensorFile> file;
  std::unique_ptr<const Model> model;
  Loaded(const TinyLlama& tiny, Compute compute) : file(TensorFile::Open(tiny.WriteTemp("batch"))) {
    EXPECT_TRUE(file.ok()) << file.status().message();
    Result<std::unique_ptr<const Model>> loaded = Model::Load(*file, {compute, nullptr}, pool);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = std::move(loaded).value();
  }
  std::unique_ptr<Stream> NewStream(Policy policy, int64_t context, int64_t pinned, KvType kv) {
    StreamOptions o;
    o.policy = policy;
    o.context = context;
    o.pinned = pinned;
    o.kv = kv;
    Result<std::unique_ptr<Stream>> s = Stream::Create(*model, pool, o);
    EXPECT_TRUE(s.ok()) << s.status().message();
    return std::move(s).value();
  }
};

TinySpec Quantised() {
  TinySpec spec;
  spec.weights = DType::kQ4_1;
  return spec;
}

struct Case {
  Compute compute;
  KvType kv;
};

// Streams of several policies and sizes, fed pieces of random lengths side by side until all have rolled over
// many times, give bit for bit the logits and the sink mass of the same pieces fed alone.
TEST(Batch, AStreamInCompanyEqualsTheStreamAlone) {
  const TinyLlama tiny{Quantised()};
  for (const Case& c : {Case{Compute::kF32, KvType::kF32}, {Compute::kFast, KvType::kQ8}}) {
    Loaded m(tiny, c.compute);
    const auto make = [&] {
      std::vector<std::unique_ptr<Stream>> streams;
      streams.push_back(m.NewStream(Policy::kSinks, 24, 4, c.kv));
      streams.push_back(m.NewStream(Policy::kSinks, 17, 1, c.kv));
      streams.push_back(m.NewStream(Policy::kWindow, 16, 4, c.kv));
      streams.push_back(m.NewStream(Policy::kDense, 300, 4, c.kv));
      streams.push_back(m.NewStream(Policy::kRecompute, 12, 4, c.kv));
      return streams;
    };
    auto together = make(), alone = make();
    std::vector<std::vector<Token>> texts;
    for (uint32_t i = 0; i < together.size(); ++i) texts.push_back(RandomTokens(300, 64, 50 + i));
    Batch batch(*m.model, m.pool), single(*m.model, m.pool);
    std::vector<size_t> at(together.size(), 0);
    uint32_t seed = 1;
    int compared = 0;
    while (std::any_of(at.begin(), at.end(), [](size_t a) { return a < 300; })) {
      std::vector<Batch::Entry> entries;
      std::vector<size_t> who;
      for (size_t i = 0; i < together.size(); ++i) {
        seed = seed * 1664525u + 1013904223u;
        const size_t n = std::min<size_t>(seed >> 28, 300 - at[i]);
        entries.push_back({together[i].get(), std::span(texts[i]).subspan(at[i], n), (seed >> 20 & 3) != 0});
        who.push_back(i);
        at[i] += n;
      }
      batch.Step(entries);
      for (size_t e = 0; e < entries.size(); ++e) {
        if (entries[e].tokens.empty()) continue;
        ASSERT_TRUE(entries[e].status.ok()) << entries[e].status.message();
        Stream& other = *alone[who[e]];
        Batch::Entry own{&other, entries[e].tokens, entries[e].logits};
        single.Step({&own, 1});
        ASSERT_EQ(other.position(), entries[e].stream->position());
        if (other.policy() == Policy::kRecompute) continue;
        for (int layer = 0; layer < 3; ++layer) {
          for (int head = 0; head < 4; ++head) {
            ASSERT_EQ(own.SinkMass(layer, head), entries[e].SinkMass(layer, head));
          }
        }
        const auto a = other.logits(), b = entries[e].stream->logits();
        ASSERT_EQ(a.size(), entries[e].logits ? 64u : 0u);
        ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
        compared += entries[e].logits;
      }
    }
    EXPECT_GT(compared, 100);
  }
}

TEST(Batch, ARefusedEntryDisturbsNobody) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny, Compute::kF32);
  auto good = m.NewStream(Policy::kSinks, 24, 4, KvType::kF32);
  auto bad = m.NewStream(Policy::kSinks, 24, 4, KvType::kF32);
  auto full = m.NewStream(Policy::kDense, 4, 4, KvType::kF32);
  const std::vector<Token> five = {1, 2, 3, 4, 5}, wild = {1, 64};
  std::vector<Batch::Entry> entries = {
      {bad.get(), wild, true}, {good.get(), five, true}, {full.get(), five, true}};
  Batch batch(*m.model, m.pool);
  batch.Step(entries);
  EXPECT_EQ(entries[0].status.code(), Code::kInput);
  EXPECT_EQ(entries[2].status.code(), Code::kInput);
  EXPECT_TRUE(entries[1].status.ok());
  EXPECT_EQ(bad->position(), 0);
  EXPECT_EQ(full->position(), 0);
  auto alone = m.NewStream(Policy::kSinks, 24, 4, KvType::kF32);
  ASSERT_TRUE(alone->Append(five).ok());
  EXPECT_TRUE(std::equal(good->logits().begin(), good->logits().end(), alone->logits().begin()));
}

TEST(Batch, LogitsNobodyAskedForAreNotThoseOfAnOlderToken) {
  const TinyLlama tiny{TinySpec{}};
  Loaded m(tiny, Compute::kF32);
  auto s = m.NewStream(Policy::kSinks, 24, 4, KvType::kF32);
  const std::vector<Token> tokens = {1, 2, 3};
  Batch batch(*m.model, m.pool);
  Batch::Entry entry{s.get(), tokens, true};
  batch.Step({&entry, 1});
  EXPECT_EQ(s->logits().size(), 64u);
  entry.logits = false;
  batch.Step({&entry, 1});
  EXPECT_TRUE(s->logits().empty());
}

}  // namespace
}  // namespace ballast
