// The float attention kernel: every KV type, every instruction set.
//
// Few queries (decode) read the keys and values where they lie. Many queries (prefill) first lay a block of
// keys out with the keys in lanes, so that no sum over lanes is left, and the values as floats. Tiles of q8
// have the keys in lanes already.
#include <cstring>
#include <type_traits>

#include "kernels/attention_item.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_float.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/attention_softmax-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ballast::attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using V = hn::Vec<FloatTag>;

// Vectors of a row handled together: with kMaxTile queries they fill the registers (32 from AVX-512 on, else
// 16).
constexpr int kCols = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
// Below this many queries of one KV head, packing keys costs more than it saves.
constexpr int64_t kFewQueries = 10;

// Stored elements [i, i + kLanes) of a row as floats.
template <KvType kType>
HWY_INLINE V LoadElements(const uint8_t* row, int64_t i) {
  const FloatTag d;
  if constexpr (kType == KvType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(row) + i);
  } else {
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(row) + i));
  }
}

// Words of a q8 tile with signed bytes; keys carry an offset.
template <KvSide kSide>
HWY_INLINE auto LoadWords(const uint8_t* words) {
  const hn::Rebind<uint32_t, FloatTag> du;
  const auto x = hn::LoadU(du, reinterpret_cast<const uint32_t*>(words));
  if constexpr (kSide == KvSide::kKeys) return hn::Xor(x, hn::Set(du, 0x80808080u));
  return x;
}
// Byte kByte of each as floats, without their scales.
template <int kByte, class Words>
HWY_INLINE V ByteOf(Words x) {
  const FloatTag d;
  const hn::Rebind<int32_t, FloatTag> di;
  return hn::ConvertTo(d, hn::ShiftRight<24>(hn::BitCast(di, hn::ShiftLeft<24 - 8 * kByte>(x))));
}

// out: (dim rounded up to kLanes), zeros after dim.
template <KvType kType>
void RowToFloat(const uint8_t* row, int64_t dim, float* HWY_RESTRICT out) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) hn::StoreU(LoadElements<kType>(row, i), d, out + i);
  if (i < dim) {
    HWY_ALIGN uint8_t rest[kLanes * sizeof(float)] = {};
    std::memcpy(rest, row + KvRowBytes(kType, i), KvRowBytes(kType, dim - i));
    hn::StoreU(LoadElements<kType>(rest, 0), d, out + i);
  }
}

// Rows where they lie in the cache.
template <KvType kType>
struct StoredRows {
  const uint8_t* data;
  int64_t row_bytes;
  HWY_INLINE V Load(int64_t row, int64_t i) const { return LoadElements<kType>(data + row * row_bytes, i); }
};

// A q8 tile where it lies: row s of words begins at s * step.
template <KvSide kSide>
struct TileWords {
  const uint8_t* data;
  int64_t step;
  HWY_INLINE auto Load(int64_t s, int64_t column) const {
    return LoadWords<kSide>(data + s * step + column * 4);
  }
};
inline TileWords<KvSide::kKeys> KeysOfTile(const uint8_t* data) { return {data, 4 * kKvTile}; }
inline TileWords<KvSide::kValues> ValuesOfTile(const uint8_t* data, int64_t dim) {
  return {data, 4 * KvStoredRowBytes(KvType::kQ8, dim)};
}

// (row, stride) floats.
struct FloatRows {
  const float* data;
  int64_t stride;
  HWY_INLINE V Load(int64_t row, int64_t i) const { return hn::LoadU(FloatTag(), data + row * stride + i); }
};

// out[q * kBlockKeys + c] = sum over rows [lo, hi) of a[q][row] * rows[row][column + c], for kWide vectors of
// columns. Not inlined: alone, its sums stay in registers (and sanitized builds compile in time).
template <int kTile, int kWide, class Rows>
HWY_NOINLINE void MultiplyTile(const float* const* a, const Rows& rows, int64_t lo, int64_t hi,
                               int64_t column, float* HWY_RESTRICT out) {
  const FloatTag d;
  V sums[kTile][kWide];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) sums[q][c] = hn::Zero(d);
  }
  for (int64_t r = lo; r < hi; ++r) {
    V x[kWide];
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) x[c] = rows.Load(r, column + c * kLanes);
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      const V w = hn::Set(d, a[q][r]);
      HWY_UNROLL(8)
      for (int c = 0; c < kWide; ++c) sums[q][c] = hn::MulAdd(w, x[c], sums[q][c]);
    }
  }
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) hn::Store(sums[q][c], d, out + q * kBlockKeys + c * kLanes);
  }
}

// The same over the four bytes of each word of rows [lo / 4, hi / 4).
template <int kTile, int kWide, KvSide kSide>
HWY_NOINLINE void MultiplyTile(const float* const* a, const TileWords<kSide>& words, int64_t lo, int64_t hi,
                               int64_t column, float* HWY_RESTRICT out) {
  const FloatTag d;
  V sums[kTile][kWide];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) sums[q][c] = hn::Zero(d);
  }
  for (int64_t s = lo / 4; s < hi / 4; ++s) {
    decltype(words.Load(0, 0)) x[kWide];
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) x[c] = words.Load(s, column + c * kLanes);
    const auto add = [&](auto byte) HWY_ATTR {
      V y[kWide];
      HWY_UNROLL(8)
      for (int c = 0; c < kWide; ++c) y[c] = ByteOf<byte.value>(x[c]);
      HWY_UNROLL(8)
      for (int q = 0; q < kTile; ++q) {
        const V w = hn::Set(d, a[q][4 * s + byte.value]);
        HWY_UNROLL(8)
        for (int c = 0; c < kWide; ++c) sums[q][c] = hn::MulAdd(w, y[c], sums[q][c]);
      }
    };
    add(std::integral_constant<int, 0>());
    add(std::integral_constant<int, 1>());
    add(std::integral_constant<int, 2>());
    add(std::integral_constant<int, 3>());
  }
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) hn::Store(sums[q][c], d, out + q * kBlockKeys + c * kLanes);
  }
}

// The same for as many columns from `column` on as go together; returns how many.
template <int kTile, class Rows>
HWY_INLINE int64_t MultiplyGroup(const float* const* a, const Rows& rows, int64_t lo, int64_t hi,
                                 int64_t column, int64_t columns, float* out) {
  if (column + kCols * kLanes <= columns) {
    MultiplyTile<kTile, kCols>(a, rows, lo, hi, column, out);
    return kCols * kLanes;
  }
  MultiplyTile<kTile, 1>(a, rows, lo, hi, column, out);
  return kLanes;
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void SumFour(V v0, V v1, V v2, V v3, float* out) {
  out[0] = hn::GetLane(v0);
  out[1] = hn::GetLane(v1);
  out[2] = hn::GetLane(v2);
  out[3] = hn::GetLane(v3);
}
#else
// Adds up the blocks of four lanes.
template <class D>
HWY_INLINE void StoreSumOfBlocks(D d, hn::Vec<D> v, float* out) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, out);
  } else {
    const hn::Half<D> half;
    StoreSumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
  }
}

// out: the sums over lanes of four vectors, by a transpose inside each block of four lanes.
HWY_INLINE void SumFour(V v0, V v1, V v2, V v3, float* out) {
  const FloatTag d;
  const hn::Repartition<uint64_t, FloatTag> d64;
  const V v01 = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const V v23 = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const auto a = hn::BitCast(d64, v01), b = hn::BitCast(d64, v23);
  const V lower = hn::BitCast(d, hn::InterleaveLower(d64, a, b));
  const V upper = hn::BitCast(d, hn::InterleaveUpper(d64, a, b));
  StoreSumOfBlocks(d, hn::Add(lower, upper), out);
}
#endif

// scores[q][key] = query q . key for keys [lo, hi), where they lie. REQUIRES: dim is a multiple of kLanes.
template <int kTile, KvType kType>
HWY_NOINLINE void ScoreStored(const float* const* query, const StoredRows<kType>& keys, int lo, int hi,
                              int64_t dim, float* HWY_RESTRICT scores) {
  const FloatTag d;
  for (int k = lo / 4 * 4; k < hi; k += 4) {
    // The first and last keys of a block that is no multiple of 4 stand in for the missing ones.
    int64_t row[4];
    for (int i = 0; i < 4; ++i) row[i] = std::clamp(k + i, lo, hi - 1);
    V sums[kTile][4];
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      HWY_UNROLL(8)
      for (int i = 0; i < 4; ++i) sums[q][i] = hn::Zero(d);
    }
    for (int64_t e = 0; e < dim; e += kLanes) {
      V x[4];
      HWY_UNROLL(8)
      for (int i = 0; i < 4; ++i) x[i] = keys.Load(row[i], e);
      HWY_UNROLL(8)
      for (int q = 0; q < kTile; ++q) {
        const V y = hn::LoadU(d, query[q] + e);
        HWY_UNROLL(8)
        for (int i = 0; i < 4; ++i) sums[q][i] = hn::MulAdd(x[i], y, sums[q][i]);
      }
    }
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      SumFour(sums[q][0], sums[q][1], sums[q][2], sums[q][3], scores + q * kBlockKeys + k);
    }
  }
}

// One block of keys and values: where they lie, or packed.
template <KvType kType>
struct Block {
  const KeyBlock* keys;
  bool pinned;
  const uint8_t* k;
  const uint8_t* v;
  FloatRows packed_k{nullptr, 0};  // (dim, kBlockKeys)
  FloatRows packed_v{nullptr, 0};  // (kBlockKeys, PaddedDim)
};

// Scratch of a tile.
struct Tile {
  float* scores;         // (kMaxTile, kBlockKeys): products, then weights
  float* sums;           // (kMaxTile, kBlockKeys)
  const float* k_scale;  // (kBlockKeys): the score scale, times the key's (q8)
  const float* v_scale;  // (kBlockKeys), or null when values have none
};

// Scores to weights, exp(score - max); returns their sum.
HWY_INLINE float BlockWeights(float* scores, float max) {
  const FloatTag d;
  const auto vmax = hn::Set(d, max);
  auto sum = hn::Zero(d);
  HWY_UNROLL(8)
  for (int i = 0; i < kParts; ++i) {
    const auto w = ExpNegative(hn::Sub(hn::Load(d, scores + i * kLanes), vmax));
    hn::Store(w, d, scores + i * kLanes);
    sum = hn::Add(sum, w);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Products in tile.scores to weights, merged into the state.
HWY_NOINLINE void SoftmaxTile(const Item& item, const KeyBlock& keys, const TileView& view, int64_t first,
                              int queries, const Tile& tile, float* keep, float* add) {
  const FloatTag d;
  HWY_ALIGN float max[kTileFloats] = {}, sum[kTileFloats] = {};
  for (int q = 0; q < queries; ++q) {
    float* s = tile.scores + q * kBlockKeys;
    const auto score = [&](int i) HWY_ATTR {
      return hn::Mul(hn::Load(d, s + i * kLanes), hn::Load(d, tile.k_scale + i * kLanes));
    };
    max[q] = item.plain() ? BlockScores(view.lo[q], view.hi[q], score, s)
                          : AdjustedBlockScores(item, keys, first + q, view.lo[q], view.hi[q], score, s);
  }
  for (int q = 0; q < queries; ++q) {
    float* s = tile.scores + q * kBlockKeys;
    sum[q] = BlockWeights(s, max[q]);
    if (tile.v_scale == nullptr) continue;
    for (int i = 0; i < kBlockKeys; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, s + i), hn::Load(d, tile.v_scale + i)), d, s + i);
    }
  }
  MergeTile(item, item.spans[keys.span].counted, first, queries, max, sum, keep, add);
}

// acc[q][column + c] = keep * acc + add * sums[q][c] for `columns` columns.
HWY_NOINLINE void MergeValues(const float* sums, int queries, int64_t columns, const float* keep,
                              const float* add, float* acc, int64_t stride) {
  const FloatTag d;
  for (int q = 0; q < queries; ++q) {
    const V vkeep = hn::Set(d, keep[q]), vadd = hn::Set(d, add[q]);
    for (int64_t c = 0; c < columns; c += kLanes) {
      float* at = acc + q * stride + c;
      const V part = hn::Mul(hn::Load(d, sums + q * kBlockKeys + c), vadd);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, at), vkeep, part), d, at);
    }
  }
}

// scores = query . key for the block's keys; sums = weights . value for columns from `column` on.
template <int kTile, KvType kType>
HWY_INLINE void Scores(const Block<kType>& block, const float* const* query, int64_t dim, float* scores) {
  const KeyBlock& keys = *block.keys;
  const auto by_lanes = [&](const auto& rows) {
    for (int64_t c = keys.lo / kLanes * kLanes; c < keys.hi;) {
      c += MultiplyGroup<kTile>(query, rows, 0, dim, c, kBlockKeys, scores + c);
    }
  };
  if (block.packed_k.data != nullptr) return by_lanes(block.packed_k);
  if constexpr (kType == KvType::kQ8) {
    by_lanes(KeysOfTile(block.k));
  } else {
    ScoreStored<kTile, kType>(query, {block.k, KvRowBytes(kType, dim)}, keys.lo, keys.hi, dim, scores);
  }
}
template <int kTile, KvType kType>
HWY_INLINE int64_t Values(const Block<kType>& block, const float* const* weights, int64_t dim, int64_t column,
                          int64_t columns, float* sums) {
  const auto multiply = [&](const auto& rows) {
    return MultiplyGroup<kTile>(weights, rows, block.keys->lo, block.keys->hi, column, columns, sums);
  };
  if (block.packed_v.data != nullptr) return multiply(block.packed_v);
  if constexpr (kType == KvType::kQ8) {
    // Weights outside the block are 0: whole words may be taken.
    return MultiplyGroup<kTile>(weights, ValuesOfTile(block.v, dim), block.keys->lo,
                                (block.keys->hi + 3) / 4 * 4, column, columns, sums);
  } else {
    return multiply(StoredRows<kType>{block.v, KvRowBytes(kType, dim)});
  }
}

template <int kTile, KvType kType>
HWY_NOINLINE void RunTile(const Item& item, const Block<kType>& block, int64_t first, const Tile& tile) {
  const int64_t dim = item.shape->head_dim, padded = PaddedDim(dim);
  const TileView view = ViewTile(item, *block.keys, first, kTile);
  if (!view.any) return;
  const float* query[kTile];
  for (int q = 0; q < kTile; ++q) query[q] = item.Query(block.pinned, first + q);
  Scores<kTile, kType>(block, query, dim, tile.scores);
  HWY_ALIGN float keep[kTileFloats], add[kTileFloats];
  SoftmaxTile(item, *block.keys, view, first, kTile, tile, keep, add);
  const float* weights[kTile];
  for (int q = 0; q < kTile; ++q) weights[q] = tile.scores + q * kBlockKeys;
  float* acc = item.state.acc + first * padded;
  const int64_t columns = (dim + kLanes - 1) / kLanes * kLanes;
  for (int64_t c = 0, n; c < columns; c += n) {
    n = Values<kTile, kType>(block, weights, dim, c, columns, tile.sums);
    MergeValues(tile.sums, kTile, n, keep, add, acc + c, padded);
  }
}

// Rows [begin, end) of words, from `column` on, to four rows of floats each.
template <KvSide kSide>
void UnpackTile(const TileWords<kSide>& words, int64_t begin, int64_t end, int64_t column, int64_t columns,
                float* HWY_RESTRICT out, int64_t stride) {
  const FloatTag d;
  for (int64_t s = begin; s < end; ++s) {
    for (int64_t c = column; c < columns; c += kLanes) {
      const auto x = words.Load(s, c);
      float* to = out + 4 * s * stride + c;
      hn::StoreU(ByteOf<0>(x), d, to);
      hn::StoreU(ByteOf<1>(x), d, to + stride);
      hn::StoreU(ByteOf<2>(x), d, to + 2 * stride);
      hn::StoreU(ByteOf<3>(x), d, to + 3 * stride);
    }
  }
}

// Keys into lanes: out (dim, kBlockKeys), 0 outside the block; values to out (kBlockKeys, PaddedDim), the
// block's only. row: scratch (PaddedDim).
template <KvType kType>
void PackKeys(const Block<kType>& block, int64_t dim, float* row, float* HWY_RESTRICT out) {
  const int lo = block.keys->lo, hi = block.keys->hi;
  for (int64_t e = 0; e < dim; ++e) std::fill(out + e * kBlockKeys, out + (e + 1) * kBlockKeys, 0.0f);
  if constexpr (kType == KvType::kQ8) {
    UnpackTile(KeysOfTile(block.k), 0, dim / 4, lo / kLanes * kLanes, hi, out, kBlockKeys);
  } else {
    for (int k = lo; k < hi; ++k) {
      RowToFloat<kType>(block.k + k * KvRowBytes(kType, dim), dim, row);
      for (int64_t e = 0; e < dim; ++e) out[e * kBlockKeys + k] = row[e];
    }
  }
}
template <KvType kType>
void PackValues(const Block<kType>& block, int64_t dim, float* HWY_RESTRICT out) {
  const int64_t padded = PaddedDim(dim);
  const int lo = block.keys->lo, hi = block.keys->hi;
  if constexpr (kType == KvType::kQ8) {
    UnpackTile(ValuesOfTile(block.v, dim), lo / 4, (hi + 3) / 4, 0, dim, out, padded);
  } else {
    for (int k = lo; k < hi; ++k) {
      RowToFloat<kType>(block.v + k * KvRowBytes(kType, dim), dim, out + k * padded);
    }
  }
}

template <KvType kType>
void RunTiles(const Item& item, const Block<kType>& block, const Tile& tile) {
  int64_t j = 0;
  for (; j + 6 <= item.queries; j += 6) RunTile<6, kType>(item, block, j, tile);
  for (; j + 3 <= item.queries; j += 3) RunTile<3, kType>(item, block, j, tile);
  for (; j < item.queries; ++j) RunTile<1, kType>(item, block, j, tile);
}

// Into the second-level cache, while this tile is worked on: the hardware's prefetch ends with the page, as
// tiles often do.
HWY_INLINE void FetchNextTile(const uint8_t* k, const uint8_t* v, int64_t dim) {
  const int64_t bytes = kKvTile * KvStoredRowBytes(KvType::kQ8, dim);
  for (int64_t line = bytes; line < 2 * bytes; line += 64) {
    __builtin_prefetch(k + line, 0, 2);
    __builtin_prefetch(v + line, 0, 2);
  }
}

template <KvType kType>
void RunBlocks(const Item& item) {
  const AttentionShape& shape = *item.shape;
  const int64_t dim = shape.head_dim, padded = PaddedDim(dim);
  const bool pack = item.queries >= kFewQueries || (kType != KvType::kQ8 && dim % kLanes != 0);
  float* packed_k = item.work;                              // (padded, kBlockKeys)
  float* packed_v = packed_k + padded * kBlockKeys;         // (kBlockKeys, padded)
  float* scores = packed_v + padded * kBlockKeys;           // (kMaxTile, kBlockKeys)
  float* sums = scores + kMaxTile * kBlockKeys;             // (kMaxTile, kBlockKeys)
  float* k_scale = sums + kMaxTile * kBlockKeys;            // (kBlockKeys)
  float* v_scale = k_scale + kBlockKeys;                    // (kBlockKeys)
  std::fill(scores, scores + kMaxTile * kBlockKeys, 0.0f);  // columns past a short block stay finite
  std::fill(k_scale, k_scale + kBlockKeys, shape.scale);
  const Tile tile{scores, sums, k_scale, kType == KvType::kQ8 ? v_scale : nullptr};
  for (const KeyBlock& keys : item.blocks) {
    const KvSpan& span = item.spans[keys.span];
    Block<kType> block{&keys, span.pinned, RowOf(item, span.k, keys.begin), RowOf(item, span.v, keys.begin)};
    if constexpr (kType == KvType::kQ8) {
      const float* ks = ScaleOf(item, span.k, keys.begin);
      const float* vs = ScaleOf(item, span.v, keys.begin);
      std::fill(v_scale, v_scale + kBlockKeys, 0.0f);  // those outside the block are not its own
      for (int k = keys.lo; k < keys.hi; ++k) k_scale[k] = ks[k] * shape.scale;
      std::copy(vs + keys.lo, vs + keys.hi, v_scale + keys.lo);
    }
    if (pack) {
      PackKeys<kType>(block, dim, packed_v, packed_k);
      PackValues<kType>(block, dim, packed_v);
      block.packed_k = {packed_k, kBlockKeys};
      block.packed_v = {packed_v, padded};
    }
    if constexpr (kType == KvType::kQ8) {
      if (keys.hi == kBlockKeys) FetchNextTile(block.k, block.v, dim);
    }
    RunTiles<kType>(item, block, tile);
  }
}

void RunFloat(const Item& item) {
  ClearState(item);
  switch (item.kv) {
    case KvType::kF32:
      return RunBlocks<KvType::kF32>(item);
    case KvType::kF16:
      return RunBlocks<KvType::kF16>(item);
    case KvType::kQ8:
      return RunBlocks<KvType::kQ8>(item);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::attention {

HWY_EXPORT(RunFloat);
void RunFloatItem(const Item& item) { HWY_DYNAMIC_DISPATCH(RunFloat)(item); }

}  // namespace ballast::attention
#endif  // HWY_ONCE
