// The integer attention kernel: q8 keys and values, AVX-512 VNNI.
//
// One instruction (vpdpbusd) multiplies 64 unsigned by 64 signed bytes and adds them in fours, of tiles as
// they lie in the cache (kv_span.h). Queries are rounded to 8 bits, as finely as the keys they meet (both
// were mixed first: Mix in ops.h). The softmax weights, which span many sizes, are rounded to 16 bits and
// used as two unsigned bytes (high, low), in two passes over a tile. The sums are exact integers.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "kernels/attention_item.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_integer.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/attention_softmax-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ballast::attention {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// Highway 1.0.3 asks for AVX3_DL's VNNI of the CPU but does not name it to the compiler.
#if HWY_COMPILER_CLANG
#pragma clang attribute push(__attribute__((target("avx512vnni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512vnni")
#endif

using V = hn::Vec<FloatTag>;

// The factors of a tile of queries as bytes: at[q * stride + i]. The second pass reads them `second` bytes
// on. The sums of query q with keys begin at bias[q].
struct Factors {
  const uint8_t* at;
  int64_t stride;
  int64_t second;
  const int32_t* bias;
};

// What they meet: step s is a row of vectors of 64 bytes at s * step. `ahead` bytes on lies what will be
// wanted next, and is fetched: the hardware's prefetch ends with the page, as tiles often do. It is never
// read.
struct Panel {
  const uint8_t* at;
  int64_t step;
  int64_t ahead;
};

// sums + a . b in fours; keys are the unsigned side of their products, softmax weights that of theirs.
template <KvSide kSide>
HWY_INLINE __m512i MultiplyAdd(__m512i sums, __m512i factors, __m512i panel) {
  if constexpr (kSide == KvSide::kKeys) return _mm512_dpbusd_epi32(sums, panel, factors);
  return _mm512_dpbusd_epi32(sums, factors, panel);
}

// out[q][vector c] = factors . panel over `steps` groups of four bytes, exactly. out: (kTile, kBlockKeys).
// Values take two passes: the second's sums count 1, the first's 2^8. Not inlined: alone, its sums stay in
// registers.
template <KvSide kSide, int kTile, int kWide>
HWY_NOINLINE void MultiplyPanel(const Factors& f, const Panel& panel, int64_t steps,
                                int32_t* HWY_RESTRICT out) {
  constexpr int kPasses = kSide == KvSide::kKeys ? 1 : 2;
  __m512i sums[kTile][kWide];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) {
      sums[q][c] = kSide == KvSide::kKeys ? _mm512_set1_epi32(f.bias[q]) : _mm512_setzero_si512();
    }
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    const uint8_t* factors = f.at + pass * f.second;
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      HWY_UNROLL(8)
      for (int c = 0; c < kWide && kPasses > 1; ++c) sums[q][c] = _mm512_slli_epi32(sums[q][c], 8);
    }
    const uint8_t* row = panel.at;
    for (int64_t s = 0; s < steps; ++s, row += panel.step) {
      __m512i x[kWide];
      HWY_UNROLL(8)
      for (int c = 0; c < kWide; ++c) {
        x[c] = _mm512_load_si512(row + c * 64);
        if (pass == 0) _mm_prefetch(reinterpret_cast<const char*>(row + c * 64 + panel.ahead), _MM_HINT_T1);
      }
      HWY_UNROLL(8)
      for (int q = 0; q < kTile; ++q) {
        int32_t four;
        std::memcpy(&four, factors + q * f.stride + 4 * s, 4);
        const __m512i w = _mm512_set1_epi32(four);
        HWY_UNROLL(8)
        for (int c = 0; c < kWide; ++c) sums[q][c] = MultiplyAdd<kSide>(sums[q][c], w, x[c]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) _mm512_store_si512(out + q * kBlockKeys + 16 * c, sums[q][c]);
  }
}

// 64 integers in [0, 65535] to their two bytes, in order: the packing instructions work inside blocks of 128
// bits, so that block b of their result holds bytes 4b..4b+3 of each of the four vectors.
HWY_INLINE void StoreFactors64(const __m512i* x, uint8_t* high, uint8_t* low) {
  const __m512i a = _mm512_packus_epi32(x[0], x[1]), b = _mm512_packus_epi32(x[2], x[3]);
  const __m512i byte = _mm512_set1_epi16(0xff);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i h = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
  const __m512i l = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
  _mm512_store_si512(high, _mm512_permutexvar_epi32(order, h));
  _mm512_store_si512(low, _mm512_permutexvar_epi32(order, l));
}

// e^x for x <= 0, within 3e-6 of itself, which is finer than the 16 bits of a weight. 2^y = 2^floor(y) 2^r;
// the polynomial for 2^r on [0, 1) is our fit.
HWY_INLINE __m512 ExpOfWeight(__m512 x) {
  const __m512 y = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
  const __m512 r = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(0.0135341668f), _mm512_set1_ps(0.0520114601f));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.241442755f));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.693003833f));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(1.00000262f));
  return _mm512_scalef_ps(p, y);
}

// Rounds a query to 8 bits: query = scale * byte; bias takes back what the keys' offset of 128 adds to every
// dot product.
struct RoundedQuery {
  float scale;
  int32_t bias;
};

// out has room for dim rounded up to 16.
HWY_INLINE RoundedQuery QuantiseQuery(const float* x, int64_t dim, uint8_t* out) {
  __m512 largest = _mm512_setzero_ps();
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = dim - i >= 16 ? 0xffff : 0xff;
    largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(mask, x + i)));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(FloatTag(), hn::Vec<FloatTag>{largest}));
  const bool zero = !(max > 1e-30f);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / max);
  __m512i total = _mm512_setzero_si512();
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = dim - i >= 16 ? 0xffff : 0xff;
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse));
    total = _mm512_add_epi32(total, rounded);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm512_cvtepi32_epi8(rounded));
  }
  return {zero ? 0.0f : max / 127.0f, -128 * _mm512_reduce_add_epi32(total)};
}

// One block of keys and values, and the scratch of a tile.
struct Block {
  const KeyBlock* keys;
  bool pinned;
  Factors queries;           // (query, dim)
  const float* query_scale;  // (query)
  const uint8_t* k;          // the tiles
  const uint8_t* v;
  float* k_scale;    // (kBlockKeys): the score scale times the key's
  float* v_scale;    // (kBlockKeys): the value's scale over value_unit
  float value_unit;  // the largest value scale of the block / 65535
  float* scores;     // (kMaxTile, kBlockKeys)
  int32_t* sums;     // (kMaxTile, kBlockKeys)
  uint8_t* weights;  // (2, kMaxTile, kBlockKeys): high bytes, low bytes
};

// Fetches the next tile, into the second-level cache (the first has no room for so many requests), while the
// first queries of this one are worked on. After a tile that is not full there is none.
HWY_INLINE int64_t Ahead(const Item& item, const KeyBlock& keys, int64_t first) {
  return first == 0 && keys.hi == kBlockKeys ? kKvTile * KvStoredRowBytes(KvType::kQ8, item.shape->head_dim)
                                             : 0;
}

// Adds the weighted values of kWide vectors of elements from `e` on.
template <int kTile, int kWide>
HWY_INLINE void ValueColumns(const Item& item, const Block& block, int64_t first, int64_t e,
                             const float* keep, const float* add) {
  const int64_t padded = PaddedDim(item.shape->head_dim);
  const int64_t step = 4 * KvStoredRowBytes(KvType::kQ8, item.shape->head_dim);
  const int64_t from = block.keys->lo / 4, to = (block.keys->hi + 3) / 4;
  const Factors f{block.weights + 4 * from, kBlockKeys, kMaxTile * kBlockKeys, nullptr};
  const Panel panel{block.v + from * step + 4 * e, step, Ahead(item, *block.keys, first)};
  MultiplyPanel<KvSide::kValues, kTile, kWide>(f, panel, to - from, block.sums);
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    float* acc = item.state.acc + (first + q) * padded + e;
    const __m512 vkeep = _mm512_set1_ps(keep[q]), vadd = _mm512_set1_ps(add[q] * block.value_unit);
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) {
      const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(acc + 16 * c), vkeep);
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(block.sums + q * kBlockKeys + 16 * c));
      _mm512_storeu_ps(acc + 16 * c, _mm512_fmadd_ps(sum, vadd, old));
    }
  }
}

template <int kTile>
HWY_NOINLINE void RunTile(const Item& item, const Block& block, int64_t first) {
  const TileView view = ViewTile(item, *block.keys, first, kTile);
  if (!view.any) return;
  const int64_t dim = item.shape->head_dim;
  Factors queries = block.queries;
  queries.at += first * queries.stride;
  queries.bias += first;
  const Panel keys{block.k, 4 * kKvTile, Ahead(item, *block.keys, first)};
  if (block.keys->hi > 16) {
    MultiplyPanel<KvSide::kKeys, kTile, 4>(queries, keys, dim / 4, block.sums);
  } else {
    MultiplyPanel<KvSide::kKeys, kTile, 1>(queries, keys, dim / 4, block.sums);
  }
  float max[kTile], sum[kTile], keep[kTile], add[kTile];
  for (int q = 0; q < kTile; ++q) {
    const __m512 scale = _mm512_set1_ps(block.query_scale[first + q]);
    const int32_t* sums = block.sums + q * kBlockKeys;
    const auto score = [&](int i) HWY_ATTR {
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 16 * i)), scale);
      return V{_mm512_mul_ps(scaled, _mm512_load_ps(block.k_scale + 16 * i))};
    };
    float* scores = block.scores + q * kBlockKeys;
    max[q] = item.plain()
                 ? BlockScores(view.lo[q], view.hi[q], score, scores)
                 : AdjustedBlockScores(item, *block.keys, first + q, view.lo[q], view.hi[q], score, scores);
  }
  for (int q = 0; q < kTile; ++q) {
    const float* scores = block.scores + q * kBlockKeys;
    const __m512 vmax = _mm512_set1_ps(max[q]);
    __m512 total = _mm512_setzero_ps();
    __m512i w[kParts];
    HWY_UNROLL(4)
    for (int i = 0; i < kParts; ++i) {
      const __m512 below =
          _mm512_min_ps(_mm512_sub_ps(_mm512_load_ps(scores + 16 * i), vmax), _mm512_setzero_ps());
      const __m512 weight = ExpOfWeight(below);
      total = _mm512_add_ps(total, weight);
      w[i] = _mm512_cvtps_epi32(_mm512_mul_ps(weight, _mm512_load_ps(block.v_scale + 16 * i)));
    }
    sum[q] = hn::GetLane(hn::SumOfLanes(FloatTag(), V{total}));
    uint8_t* high = block.weights + q * kBlockKeys;
    StoreFactors64(w, high, high + kMaxTile * kBlockKeys);
  }
  MergeTile(item, item.spans[block.keys->span].counted, first, kTile, max, sum, keep, add);
  const int64_t stored = KvStoredRowBytes(KvType::kQ8, dim);
  int64_t e = 0;
  for (; e + 64 <= stored; e += 64) ValueColumns<kTile, 4>(item, block, first, e, keep, add);
  for (; e < stored; e += 16) ValueColumns<kTile, 1>(item, block, first, e, keep, add);
}

void RunTiles(const Item& item, const Block& block) {
  int64_t j = 0;
  for (; j + 6 <= item.queries; j += 6) RunTile<6>(item, block, j);
  switch (item.queries - j) {
    case 5:
      return RunTile<5>(item, block, j);
    case 4:
      return RunTile<4>(item, block, j);
    case 3:
      return RunTile<3>(item, block, j);
    case 2:
      return RunTile<2>(item, block, j);
    case 1:
      return RunTile<1>(item, block, j);
    default:
      return;
  }
}

// ks, vs: scales of the tile. Those outside the block are not its own: 0.
HWY_INLINE void SetScales(const float* ks, const float* vs, float scale, Block& block) {
  const uint64_t seen = (~uint64_t{0} >> (64 - (block.keys->hi - block.keys->lo))) << block.keys->lo;
  __m512 v[4], largest = _mm512_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    const __mmask16 mask = static_cast<__mmask16>(seen >> (16 * i));
    _mm512_store_ps(block.k_scale + 16 * i,
                    _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, ks + 16 * i), _mm512_set1_ps(scale)));
    v[i] = _mm512_maskz_loadu_ps(mask, vs + 16 * i);
    largest = _mm512_max_ps(largest, v[i]);
    _mm_prefetch(reinterpret_cast<const char*>(ks + kKvTile + 16 * i), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(vs + kKvTile + 16 * i), _MM_HINT_T1);
  }
  const float max = hn::GetLane(hn::MaxOfLanes(FloatTag(), V{largest}));
  block.value_unit = max / 65535.0f;
  const __m512 inverse = _mm512_set1_ps(max > 1e-30f ? 65535.0f / max : 0.0f);
  for (int i = 0; i < 4; ++i) {
    const __m512 part = _mm512_min_ps(_mm512_mul_ps(v[i], inverse), _mm512_set1_ps(65535.0f));
    _mm512_store_ps(block.v_scale + 16 * i, part);
  }
}

void RunInteger(const Item& item) {
  ClearState(item);
  const int64_t dim = item.shape->head_dim, stored = KvStoredRowBytes(KvType::kQ8, dim);
  float* work = item.work;
  const auto take = [&work](int64_t floats) { return std::exchange(work, work + floats); };
  Block block{};
  block.sums = reinterpret_cast<int32_t*>(take(kMaxTile * kBlockKeys));
  block.scores = take(kMaxTile * kBlockKeys);
  block.k_scale = take(kBlockKeys);
  block.v_scale = take(kBlockKeys);
  block.weights = reinterpret_cast<uint8_t*>(take(2 * kMaxTile * kBlockKeys / 4));
  const int64_t padded_queries = (item.queries + 15) / 16 * 16;
  float* query_scale = take(padded_queries);
  auto* query_bias = reinterpret_cast<int32_t*>(take(padded_queries));
  auto* bytes = reinterpret_cast<uint8_t*>(take(item.queries * stored / 4));
  block.queries = {bytes, stored, 0, query_bias};
  block.query_scale = query_scale;
  std::fill(block.sums, block.sums + kMaxTile * kBlockKeys, 0);  // columns past a short block stay finite
  int64_t quantised = -1;                                        // which of the two rotations `bytes` holds
  for (const KeyBlock& keys : item.blocks) {
    const KvSpan& span = item.spans[keys.span];
    block.keys = &keys;
    block.pinned = span.pinned;
    if (quantised != block.pinned) {
      for (int64_t j = 0; j < item.queries; ++j) {
        const RoundedQuery query = QuantiseQuery(item.Query(block.pinned, j), dim, bytes + j * stored);
        query_scale[j] = query.scale;
        query_bias[j] = query.bias;
      }
      quantised = block.pinned;
    }
    block.k = RowOf(item, span.k, keys.begin);
    block.v = RowOf(item, span.v, keys.begin);
    SetScales(ScaleOf(item, span.k, keys.begin), ScaleOf(item, span.v, keys.begin), item.shape->scale, block);
    RunTiles(item, block);
  }
}

#if HWY_COMPILER_CLANG
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

bool HasInteger() { return true; }

#else  // HWY_TARGET != HWY_AVX3_DL

bool HasInteger() { return false; }
void RunInteger(const Item&) { BALLAST_CHECK(false); }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ballast::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::attention {

HWY_EXPORT(HasInteger);
HWY_EXPORT(RunInteger);

bool UsesIntegers(const AttentionShape& shape, KvType kv) {
  return shape.compute == Compute::kFast && kv == KvType::kQ8 && shape.head_dim <= kMaxIntegerDim &&
         HWY_DYNAMIC_DISPATCH(HasInteger)();
}
void RunIntegerItem(const Item& item) { HWY_DYNAMIC_DISPATCH(RunInteger)(item); }

}  // namespace ballast::attention
#endif  // HWY_ONCE
