#include "tensor/kv_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace ballast {
namespace {

// A buffer with memory of its own, and a fence behind it.
class Owned {
 public:
  Owned(KvType type, KvSide side, int kv_heads, int head_dim, int64_t rows)
      : bytes_(static_cast<size_t>(KvBufferBytes(type, kv_heads, head_dim, rows))),
        memory_(bytes_ + 128, kFence) {
    uint8_t* at = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
    end_ = at + bytes_;
    buffer = MakeKvBuffer(type, side, kv_heads, head_dim, rows, at);
  }
  bool FenceStands() const {
    for (const uint8_t* at = end_; at < memory_.data() + memory_.size(); ++at) {
      if (*at != kFence) return false;
    }
    return true;
  }
  KvBuffer buffer;

 private:
  static constexpr uint8_t kFence = 0x5a;
  size_t bytes_;
  std::vector<uint8_t> memory_;
  const uint8_t* end_;
};

struct Row {
  std::vector<uint8_t> bytes;
  float scale;
};

Row RandomRow(const KvBuffer& b, std::mt19937& rng) {
  Row row{std::vector<uint8_t>(static_cast<size_t>(KvRowBytes(b.type, b.head_dim))), 0};
  for (uint8_t& byte : row.bytes) byte = static_cast<uint8_t>(rng());
  row.scale = b.scale == nullptr ? 0 : static_cast<float>(rng() % 1000);
  return row;
}

void ExpectRow(const KvBuffer& b, int head, int64_t r, const Row& expected) {
  Row found{std::vector<uint8_t>(expected.bytes.size()), 0};
  b.Get(head, r, found.bytes.data(), &found.scale);
  ASSERT_EQ(found.bytes, expected.bytes) << "head " << head << " row " << r;
  ASSERT_EQ(found.scale, expected.scale);
}

TEST(KvBuffer, RowsComeBackAsTheyWerePutAndCopiedWhereverTheyLie) {
  std::mt19937 rng(1);
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (int dim : {8, 24, 64, 80, 512}) {
        const int heads = 2;
        const int64_t rows = 1 + static_cast<int64_t>(rng() % 200);
        Owned a(type, side, heads, dim, rows), b(type, side, heads, dim, rows + 7);
        std::vector<std::vector<Row>> in_a(heads), in_b(heads);
        for (int h = 0; h < heads; ++h) {
          for (int64_t r = 0; r < rows; ++r) {
            in_a[h].push_back(RandomRow(a.buffer, rng));
            a.buffer.Put(h, r, in_a[h].back().bytes.data(), in_a[h].back().scale);
          }
          for (int64_t r = 0; r < rows + 7; ++r) {
            in_b[h].push_back(RandomRow(b.buffer, rng));
            b.buffer.Put(h, r, in_b[h].back().bytes.data(), in_b[h].back().scale);
          }
        }
        for (int i = 0; i < 5; ++i) {
          const int64_t count = static_cast<int64_t>(rng() % static_cast<uint64_t>(rows + 1));
          const int64_t from = static_cast<int64_t>(rng() % static_cast<uint64_t>(rows - count + 1));
          const int64_t to = static_cast<int64_t>(rng() % static_cast<uint64_t>(rows + 7 - count + 1));
          CopyRows(a.buffer, from, b.buffer, to, count);
          for (int h = 0; h < heads; ++h) {
            for (int64_t r = 0; r < count; ++r) in_b[h][to + r] = in_a[h][from + r];
          }
        }
        for (int h = 0; h < heads; ++h) {
          for (int64_t r = 0; r < rows; ++r) ExpectRow(a.buffer, h, r, in_a[h][r]);
          for (int64_t r = 0; r < rows + 7; ++r) ExpectRow(b.buffer, h, r, in_b[h][r]);
        }
        EXPECT_TRUE(a.FenceStands() && b.FenceStands());
      }
    }
  }
}

// What the kernels rely on: keys by words of four elements, values by four rows, keys offset by 128.
TEST(KvBuffer, TilesLieAsTheKernelsReadThem) {
  constexpr int kDim = 24;  // rows of values are padded to 32
  for (KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    Owned owned(KvType::kQ8, side, 1, kDim, 130);
    std::vector<int8_t> row(kDim);
    for (int i = 0; i < kDim; ++i) row[i] = static_cast<int8_t>(i - 7);
    owned.buffer.Put(0, 64 + 5, row.data(), 0.5f);
    const uint8_t* tile = owned.buffer.data + 64 * 32;
    for (int i = 0; i < kDim; ++i) {
      const int at = side == KvSide::kKeys ? i / 4 * 256 + 5 * 4 + i % 4 : 1 * 4 * 32 + i * 4 + 1;
      EXPECT_EQ(tile[at], static_cast<uint8_t>(side == KvSide::kKeys ? row[i] + 128 : row[i])) << i;
      EXPECT_EQ(KvTileOffset(side, kDim, 64 + 5, i), 64 * 32 + at);
    }
    EXPECT_EQ(owned.buffer.scale[69], 0.5f);
  }
}

}  // namespace
}  // namespace ballast
