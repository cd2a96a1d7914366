#include "cache/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

namespace ballast {
namespace {

TEST(Policy, EveryNameParsesToItself) {
  for (const char* name : {"sinks", "window", "dense", "recompute"}) {
    const Result<Policy> p = ParsePolicy(name);
    ASSERT_TRUE(p.ok());
    EXPECT_EQ(PolicyName(*p), name);
  }
  EXPECT_EQ(ParsePolicy("Sinks").status().code(), Code::kUsage);
}

TEST(Policy, AContextWithoutRoomForAWindowIsRefused) {
  const Result<CachePlan> plan = MakePlan(Policy::kSinks, 4, 4);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kUsage);
  EXPECT_NE(plan.status().message().find("at least 5"), std::string::npos);
  EXPECT_TRUE(MakePlan(Policy::kSinks, 5, 4).ok());
}

TEST(Policy, HostileSizesAreRefused) {
  EXPECT_FALSE(MakePlan(Policy::kSinks, 0, 0).ok());
  EXPECT_FALSE(MakePlan(Policy::kSinks, -5, 0).ok());
  EXPECT_FALSE(MakePlan(Policy::kSinks, 100, -1).ok());
  EXPECT_FALSE(MakePlan(Policy::kDense, INT64_MAX, 4).ok());
  EXPECT_FALSE(MakePlan(Policy::kSinks, 100, INT64_MAX).ok());
}

TEST(Policy, WindowPinsNothingWhateverWasAsked) {
  const Result<CachePlan> plan = MakePlan(Policy::kWindow, 16, 4);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->layout.pinned, 0);
  EXPECT_EQ(plan->layout.window, 16);
}

TEST(Store, AnAbsurdCacheIsRefusedNotAttempted) {
  const Result<KvStore> store = KvStore::Create({{64, 512, 4, int64_t{1} << 40}}, KvType::kF32);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), Code::kUsage);
}

class CacheWalk : public ::testing::TestWithParam<KvType> {};

// A distinct pattern for (layer, position, head), so that a later read can tell whose row it is.
std::vector<uint8_t> StampBytes(const KvBuffer& b, int head, int layer, int64_t position, int salt) {
  std::vector<uint8_t> bytes(static_cast<size_t>(KvRowBytes(b.type, b.head_dim)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(position * 31 + layer * 7 + head * 3 + static_cast<int64_t>(i) + salt);
  }
  return bytes;
}

void Stamp(const KvBuffer& b, int64_t row, int layer, int64_t position, int salt) {
  for (int h = 0; h < b.kv_heads; ++h) {
    b.Put(h, row, StampBytes(b, h, layer, position, salt).data(), static_cast<float>(position + salt));
  }
}

// `rows` are a view of `b`, or of the buffer that `b` describes.
void ExpectStamp(const KvRows& rows, KvBuffer b, int64_t row, int layer, int64_t position, int salt) {
  b.data = const_cast<uint8_t*>(rows.data);
  b.scale = const_cast<float*>(rows.scale);
  b.stride = rows.head_stride;
  for (int h = 0; h < b.kv_heads; ++h) {
    std::vector<uint8_t> found(static_cast<size_t>(KvRowBytes(b.type, b.head_dim)));
    float scale = static_cast<float>(position + salt);
    b.Get(h, rows.first + row, found.data(), &scale);
    ASSERT_EQ(found, StampBytes(b, h, layer, position, salt)) << "position " << position;
    ASSERT_EQ(scale, static_cast<float>(position + salt));
  }
}

// Rows keep every byte from the write until the law evicts them, whatever the chunking and dropping: nothing
// is ever moved, re-rotated or re-quantised (streams of other engines drift here: llama.cpp #4097, #5652).
TEST_P(CacheWalk, RowsStayByteForByteFromWriteToEviction) {
  const KvType type = GetParam();
  std::mt19937_64 rng(7);
  for (int round = 0; round < 30; ++round) {
    const int64_t pinned = static_cast<int64_t>(rng() % 5);
    const int64_t window = static_cast<int64_t>(1 + rng() % 24);
    const Result<CachePlan> plan = MakePlan(Policy::kSinks, pinned + window, pinned);
    ASSERT_TRUE(plan.ok());
    const std::vector<KvCache::LayerShape> shapes = {{2, 16, 0},
                                                     {2, 16, 5}};  // the second: a trained local window
    Result<KvCache> made = KvCache::Create(*plan, shapes, type);
    ASSERT_TRUE(made.ok());
    KvCache& cache = *made;
    for (int step = 0; step < 60; ++step) {
      const int64_t n = static_cast<int64_t>(1 + rng() % (rng() % 4 == 0 ? 40 : 6));
      const int64_t begin = cache.position();
      for (int layer = 0; layer < 2; ++layer) {
        std::vector<uint8_t> memory(static_cast<size_t>(2 * KvBufferBytes(type, 2, 16, n)));
        const KvBuffer ck = MakeKvBuffer(type, KvSide::kKeys, 2, 16, n, memory.data());
        const KvBuffer cv =
            MakeKvBuffer(type, KvSide::kValues, 2, 16, n, memory.data() + KvBufferBytes(type, 2, 16, n));
        const Layout& law = cache.layout(layer);
        const int64_t chunk_first = std::max(begin, law.pinned);
        for (int64_t t = begin; t < begin + n; ++t) {
          const bool in_place = cache.WritesInPlace(layer, t, n);
          const KvCache::Place place = cache.PlaceOf(layer, t);
          Stamp(in_place ? place.part->k : ck, in_place ? place.row : t - chunk_first, layer, t, 0);
          Stamp(in_place ? place.part->v : cv, in_place ? place.row : t - chunk_first, layer, t, 100);
        }
        // Every query of the step finds every row the law lets it see, intact.
        const KvCache::Spans spans = cache.Visible(layer, n, ck, cv);
        std::map<int64_t, std::pair<const KvSpan*, int64_t>> found;
        for (const KvSpan& s : spans.view()) {
          for (int64_t i = 0; i < s.count; ++i) {
            ASSERT_TRUE(found.emplace(s.first_position + i, std::make_pair(&s, i)).second) << "twice";
            ASSERT_EQ(s.pinned, s.first_position + i < law.pinned);
          }
        }
        for (int64_t t = begin; t < begin + n; ++t) {
          for (int64_t p = 0; p <= t; ++p) {
            if (p >= law.pinned && p < cache.Start(layer, t)) continue;
            const auto it = found.find(p);
            ASSERT_NE(it, found.end()) << "position " << p << " missing for query " << t;
            const KvStore::Part& part = *cache.PlaceOf(layer, p).part;
            ExpectStamp(it->second.first->k, part.k, it->second.second, layer, p, 0);
            ExpectStamp(it->second.first->v, part.v, it->second.second, layer, p, 100);
          }
        }
        cache.Commit(layer, n, ck, cv);
      }
      cache.Advance(n);
      if (rng() % 8 == 0) cache.DropBefore(cache.position() - static_cast<int64_t>(rng() % 10));
      ASSERT_LE(cache.live(), plan->layout.capacity());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, CacheWalk, ::testing::Values(KvType::kF32, KvType::kF16, KvType::kQ8),
                         [](const auto& p) { return std::string(KvTypeName(p.param)); });

TEST(Cache, DenseRefusesWhatDoesNotFitAndKeepsItsState) {
  Result<KvCache> cache = KvCache::Create(*MakePlan(Policy::kDense, 8, 4), {{1, 8, 0}}, KvType::kF32);
  ASSERT_TRUE(cache.ok());
  EXPECT_TRUE(cache->CheckRoom(8).ok());
  cache->Advance(6);
  const Status full = cache->CheckRoom(3);
  EXPECT_EQ(full.code(), Code::kInput);
  EXPECT_NE(full.message().find("at most 8"), std::string::npos);
  EXPECT_EQ(cache->position(), 6);
}

}  // namespace
}  // namespace ballast
