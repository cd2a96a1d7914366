// Taking tokens back and moving a cache elsewhere, against a plain record of who wrote which slot last.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "cache/cache.h"

namespace ballast {
namespace {

constexpr int kHeads = 2, kDim = 16, kLayers = 2;

// A cache whose every written row carries a number of its own, beside the definition: the last writer of each
// slot and the number of each position's token on the branch that lives now.
class Recorded {
 public:
  Recorded(int64_t pinned, int64_t window, int64_t local, KvType type)
      : cache_(KvCache::Create(*MakePlan(Policy::kSinks, pinned + window, pinned),
                               {{kHeads, kDim, 0}, {kHeads, kDim, local}}, type)
                   .value()) {
    for (int l = 0; l < kLayers; ++l) slots_[l].assign(static_cast<size_t>(cache_.layout(l).capacity()), -1);
    floors_ = {0};
  }
  KvCache& cache() { return cache_; }

  void Feed(int64_t n) {
    const int64_t begin = cache_.position();
    const KvType type = cache_.type();
    for (int64_t i = 0; i < n; ++i) numbers_.push_back(next_++);
    for (int l = 0; l < kLayers; ++l) {
      std::vector<uint8_t> memory(static_cast<size_t>(2 * KvBufferBytes(type, kHeads, kDim, n)));
      const KvBuffer ck = MakeKvBuffer(type, KvSide::kKeys, kHeads, kDim, n, memory.data());
      const KvBuffer cv = MakeKvBuffer(type, KvSide::kValues, kHeads, kDim, n,
                                       memory.data() + KvBufferBytes(type, kHeads, kDim, n));
      const int64_t chunk_first = std::max(begin, cache_.layout(l).pinned);
      for (int64_t t = begin; t < begin + n; ++t) {
        const bool direct = cache_.WritesInPlace(l, t, n);
        const KvCache::Place place = cache_.PlaceOf(l, t);
        Stamp(direct ? place.part->k : ck, direct ? place.row : t - chunk_first, numbers_[t]);
        Stamp(direct ? place.part->v : cv, direct ? place.row : t - chunk_first, -numbers_[t]);
        slots_[l][static_cast<size_t>(cache_.layout(l).Slot(t))] = numbers_[t];
      }
      cache_.Commit(l, n, ck, cv);
    }
    cache_.Advance(n);
    floors_.resize(static_cast<size_t>(cache_.position()) + 1, cache_.floor());
    floors_.back() = cache_.floor();
  }
  void Drop(int64_t x) {
    cache_.DropBefore(x);
    floors_.back() = cache_.floor();
  }
  int64_t FloorAt(int64_t x) const { return floors_[static_cast<size_t>(x)]; }

  // The definition: is every row that x's law makes visible still the row written for it?
  bool Exact(int64_t x) const {
    for (int l = 0; l < kLayers; ++l) {
      const Layout& law = cache_.layout(l);
      for (int64_t y = 0; y < x; ++y) {
        if (y >= law.pinned && y < std::max(x - law.window, FloorAt(x))) continue;
        if (slots_[l][static_cast<size_t>(law.Slot(y))] != numbers_[static_cast<size_t>(y)]) return false;
      }
    }
    return true;
  }
  void RollBack(int64_t x) {
    cache_.RollBack(x, FloorAt(x));
    numbers_.resize(static_cast<size_t>(x));
    floors_.resize(static_cast<size_t>(x) + 1);
  }
  // Every visible row of `other`, which stands where this cache stands, is this branch's.
  void ExpectVisibleRows(const KvCache& other) const {
    for (int l = 0; l < kLayers; ++l) {
      for (int64_t y = 0; y < other.position(); ++y) {
        if (y >= other.layout(l).pinned && y < other.Start(l, other.position() - 1)) continue;
        const KvCache::Place place = other.PlaceOf(l, y);
        ASSERT_EQ(Number(place.part->k, place.row), numbers_[static_cast<size_t>(y)]) << "position " << y;
        ASSERT_EQ(Number(place.part->v, place.row), -numbers_[static_cast<size_t>(y)]) << "position " << y;
      }
    }
  }

 private:
  static void Stamp(const KvBuffer& b, int64_t row, int32_t number) {
    for (int h = 0; h < kHeads; ++h) {
      std::vector<uint8_t> bytes(static_cast<size_t>(KvRowBytes(b.type, kDim)), static_cast<uint8_t>(number));
      std::memcpy(bytes.data(), &number, sizeof(number));
      b.Put(h, row, bytes.data(), static_cast<float>(number + h));
    }
  }
  static int32_t Number(const KvBuffer& b, int64_t row) {
    int32_t first = 0;
    for (int h = 0; h < kHeads; ++h) {
      std::vector<uint8_t> bytes(static_cast<size_t>(KvRowBytes(b.type, kDim)));
      int32_t number = 0;
      float scale = 0;
      b.Get(h, row, bytes.data(), &scale);
      std::memcpy(&number, bytes.data(), sizeof(number));
      if (h == 0) first = number;
      EXPECT_EQ(number, first);
      if (b.scale != nullptr) {
        EXPECT_EQ(scale, static_cast<float>(number + h));
      }
    }
    return first;
  }

  KvCache cache_;
  std::vector<int32_t> slots_[kLayers];
  std::vector<int32_t> numbers_;  // by position, of the living branch
  std::vector<int64_t> floors_;   // by position: the floor when the stream stood there
  int32_t next_ = 1;
};

class RollBackTest : public ::testing::TestWithParam<KvType> {};

TEST_P(RollBackTest, IsAllowedExactlyWhenEveryTokenVisibleThereIsStillThere) {
  std::mt19937_64 rng(11);
  int64_t allowed = 0, refused = 0, taken = 0;
  for (int round = 0; round < 60; ++round) {
    const int64_t window = static_cast<int64_t>(2 + rng() % 24);
    Recorded r(static_cast<int64_t>(rng() % 5), window, static_cast<int64_t>(1 + rng() % 24), GetParam());
    for (int step = 0; step < 60; ++step) {
      r.Feed(static_cast<int64_t>(1 + rng() % (rng() % 5 == 0 ? 40 : 4)));
      if (rng() % 4 == 0) r.Drop(r.cache().position() - static_cast<int64_t>(rng() % 12));
      for (int64_t x = 0; x <= r.cache().position(); ++x) {
        const bool exact = r.Exact(x);
        ASSERT_EQ(r.cache().CanRollBack(x, r.FloorAt(x)), exact)
            << "round " << round << " step " << step << " from " << r.cache().position() << " to " << x;
        ++(exact ? allowed : refused);
      }
      if (rng() % 3 != 0) continue;
      const int64_t x = std::max<int64_t>(0, r.cache().position() - static_cast<int64_t>(rng() % 30));
      if (!r.Exact(x)) continue;
      r.RollBack(x);
      ++taken;
      r.ExpectVisibleRows(r.cache());
    }
  }
  EXPECT_GT(allowed, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 100);
}

TEST_P(RollBackTest, AnImportedCacheHoldsEveryVisibleRowAndExportsTheSameBytes) {
  std::mt19937_64 rng(12);
  for (int round = 0; round < 40; ++round) {
    const int64_t pinned = static_cast<int64_t>(rng() % 5), window = static_cast<int64_t>(2 + rng() % 24);
    const int64_t local = static_cast<int64_t>(1 + rng() % 24);
    Recorded r(pinned, window, local, GetParam());
    for (int step = 0; step < 20; ++step) {
      r.Feed(static_cast<int64_t>(1 + rng() % 8));
      if (rng() % 4 == 0) r.Drop(r.cache().position() - static_cast<int64_t>(rng() % 12));
      const int64_t x = std::max<int64_t>(0, r.cache().position() - static_cast<int64_t>(rng() % 20));
      if (rng() % 3 == 0 && r.Exact(x)) r.RollBack(x);
      const size_t bytes = static_cast<size_t>(r.cache().row_bytes());
      std::vector<uint8_t> rows(bytes), again(bytes);
      r.cache().ExportRows(rows.data());
      Recorded copy(pinned, window, local, GetParam());
      copy.Feed(static_cast<int64_t>(1 + rng() % 50));  // what was there before must not show
      ASSERT_TRUE(copy.cache().Import(r.cache().state(), rows.data()).ok());
      ASSERT_EQ(copy.cache().position(), r.cache().position());
      ASSERT_EQ(copy.cache().start(), r.cache().start());
      r.ExpectVisibleRows(copy.cache());
      copy.cache().ExportRows(again.data());
      ASSERT_EQ(rows, again);
      for (int64_t back = 0; back <= r.cache().position(); ++back) {
        ASSERT_EQ(copy.cache().CanRollBack(back, r.FloorAt(back)),
                  r.cache().CanRollBack(back, r.FloorAt(back)));
      }
    }
  }
}

TEST_P(RollBackTest, AnImportThatCannotBeThisCachesStateChangesNothing) {
  Recorded r(4, 12, 6, GetParam());
  r.Feed(40);
  std::vector<uint8_t> rows(static_cast<size_t>(r.cache().row_bytes()));
  const KvCache::State good = r.cache().state();
  std::vector<KvCache::State> bad(6, good);
  bad[0].position = -1;
  bad[1].floor = 41;
  bad[2].lost = {0};
  bad[3].lost = {40, 40};  // visible rows that are not there
  bad[4].lost = {-1, 0};
  bad[5].position = INT64_MAX;
  for (const KvCache::State& state : bad) {
    EXPECT_EQ(r.cache().Import(state, rows.data()).code(), Code::kInput);
    EXPECT_EQ(r.cache().position(), 40);
    r.ExpectVisibleRows(r.cache());
  }
  Result<KvCache> dense = KvCache::Create(*MakePlan(Policy::kDense, 16, 4), {{1, 8, 0}}, GetParam());
  ASSERT_TRUE(dense.ok());
  EXPECT_FALSE(dense->Import({40, 0, {0}}, rows.data()).ok());
}

INSTANTIATE_TEST_SUITE_P(EveryType, RollBackTest, ::testing::Values(KvType::kF32, KvType::kF16, KvType::kQ8),
                         [](const auto& p) { return std::string(KvTypeName(p.param)); });

}  // namespace
}  // namespace ballast
