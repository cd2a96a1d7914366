// The integer attention kernel: q8 keys and values, AVX-512 VNNI.
//
// One instruction (vpdpbusd) multiplies 64 unsigned by 64 signed bytes and adds them in fours. Cached keys
// and values are the signed side. Queries are rounded to 8 bits, as finely as the keys they meet (both were
// mixed first: Mix in ops.h). The softmax weights, which span many sizes, are rounded to 16 bits and used as
// two unsigned bytes (high, low), in two passes over a packed block that lies in L1. The sums are exact
// integers.
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

// Packed keys: (dim / 4, kBlockKeys, 4 bytes). Packed values: (PaddedDim / 64, kBlockKeys / 4, 64 dims, 4
// bytes), the four bytes being four keys; the unpack instructions shuffle the 64 (IntegerPlace).
using V = hn::Vec<FloatTag>;
constexpr int64_t kStepBytes = 4 * kBlockKeys;

// Bytes [e, e + 64) of rows first..first + kRows - 1 of (count, dim); zeros outside.
template <int kRows>
HWY_INLINE void LoadRows(const uint8_t* rows, int first, int count, int64_t dim, int64_t e, __m512i* out) {
  if (first + kRows <= count && e + 64 <= dim) {
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i) out[i] = _mm512_loadu_si512(rows + (first + i) * dim + e);
    return;
  }
  const __mmask64 mask = dim - e >= 64 ? ~uint64_t{0} : (uint64_t{1} << (dim - e)) - 1;
  HWY_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    out[i] = _mm512_maskz_loadu_epi8(first + i < count ? mask : 0, rows + (first + i) * dim + e);
  }
}

// Turns 16 rows of 16 words of four bytes around, and returns the sums of all bytes of each row.
HWY_INLINE __m512i TransposeWords(__m512i* r, uint8_t* out) {
  __m512i t[16];
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    t[4 * i + 0] = _mm512_unpacklo_epi32(r[4 * i], r[4 * i + 1]);
    t[4 * i + 1] = _mm512_unpackhi_epi32(r[4 * i], r[4 * i + 1]);
    t[4 * i + 2] = _mm512_unpacklo_epi32(r[4 * i + 2], r[4 * i + 3]);
    t[4 * i + 3] = _mm512_unpackhi_epi32(r[4 * i + 2], r[4 * i + 3]);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {  // r[4i + j], block b: column 4b + j of rows 4i..4i+3
    r[4 * i + 0] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  HWY_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);  // blocks 0 2 of rows 0-3, of 4-7
    const __m512i b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);  // blocks 1 3
    const __m512i d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(c, d, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(a, b, 0xdd);
    t[12 + j] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
  HWY_UNROLL(16)
  for (int s = 0; s < 16; ++s) _mm512_store_si512(out + s * kStepBytes, t[s]);
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i total[4] = {};
  HWY_UNROLL(16)
  for (int s = 0; s < 16; ++s) total[s % 4] = _mm512_dpbusd_epi32(total[s % 4], ones, t[s]);
  return _mm512_add_epi32(_mm512_add_epi32(total[0], total[1]), _mm512_add_epi32(total[2], total[3]));
}

// bias: (kBlockKeys) 2^7 times the sum of each key's bytes: what the offset of the queries adds to a score.
HWY_INLINE void PackKeys(const uint8_t* keys, int count, int64_t dim, uint8_t* out, int32_t* bias) {
  for (int k = 0; k < count; k += 16) {
    __m512i total = _mm512_setzero_si512();
    for (int64_t e = 0; e < dim; e += 64) {
      __m512i rows[16];
      LoadRows<16>(keys, k, count, dim, e, rows);
      total = _mm512_add_epi32(total, TransposeWords(rows, out + e / 4 * kStepBytes + k * 4));
    }
    _mm512_store_si512(bias + k, _mm512_slli_epi32(total, 7));
  }
}

HWY_INLINE void PackValues(const uint8_t* values, int count, int64_t dim, uint8_t* out) {
  for (int64_t e = 0; e < dim; e += 64) {
    for (int k = 0; k < count; k += 4) {
      __m512i r[4];
      LoadRows<4>(values, k, count, dim, e, r);
      const __m512i a = _mm512_unpacklo_epi8(r[0], r[1]), b = _mm512_unpackhi_epi8(r[0], r[1]);
      const __m512i c = _mm512_unpacklo_epi8(r[2], r[3]), d = _mm512_unpackhi_epi8(r[2], r[3]);
      _mm512_store_si512(out, _mm512_unpacklo_epi16(a, c));
      _mm512_store_si512(out + 64, _mm512_unpackhi_epi16(a, c));
      _mm512_store_si512(out + 128, _mm512_unpacklo_epi16(b, d));
      _mm512_store_si512(out + 192, _mm512_unpackhi_epi16(b, d));
      out += kStepBytes;
    }
    out += (kBlockKeys - (count + 3) / 4 * 4) / 4 * kStepBytes;
  }
}

// A tile's unsigned 16-bit factors, as bytes: high[q * stride + i], and low = high + low_offset.
struct Factors {
  const uint8_t* high;
  int64_t low_offset;
  int64_t stride;
};

// out[q][64-byte column c] = factors . panel over `steps` groups of four bytes, exactly. out: (kTile,
// kBlockKeys). Not inlined: alone, its sums stay in registers. Prefetches as many bytes at `next` as the
// panel has columns of 64.
template <int kTile, int kWide, int kPasses>
HWY_NOINLINE void MultiplyPanel(const Factors& f, const uint8_t* HWY_RESTRICT panel, int64_t steps,
                                const uint8_t* next, int32_t* HWY_RESTRICT out) {
  __m512i sums[kTile][kWide];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) sums[q][c] = _mm512_setzero_si512();
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    const uint8_t* factors = f.high + pass * f.low_offset;
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      HWY_UNROLL(8)
      for (int c = 0; c < kWide && kPasses > 1; ++c) sums[q][c] = _mm512_slli_epi32(sums[q][c], 8);
    }
    for (int64_t s = 0; s < steps; ++s, next += kStepBytes / kPasses) {
      HWY_UNROLL(4)
      for (int line = 0; line < kStepBytes / kPasses; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T0);
      }
      __m512i x[kWide];
      HWY_UNROLL(8)
      for (int c = 0; c < kWide; ++c) x[c] = _mm512_load_si512(panel + s * kStepBytes + c * 64);
      HWY_UNROLL(8)
      for (int q = 0; q < kTile; ++q) {
        int32_t four;
        std::memcpy(&four, factors + q * f.stride + 4 * s, 4);
        const __m512i w = _mm512_set1_epi32(four);
        HWY_UNROLL(8)
        for (int c = 0; c < kWide; ++c) sums[q][c] = _mm512_dpbusd_epi32(sums[q][c], w, x[c]);
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

// Rounds a query to 8 bits around 2^7; out has room for PaddedDim bytes. Returns the scale: query = scale *
// (integer - 2^7).
HWY_INLINE float QuantiseQuery(const float* x, int64_t dim, uint8_t* out) {
  __m512 largest = _mm512_setzero_ps();
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = dim - i >= 16 ? 0xffff : 0xff;
    largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(mask, x + i)));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(FloatTag(), hn::Vec<FloatTag>{largest}));
  const bool zero = !(max > 1e-30f);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / max);
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = dim - i >= 16 ? 0xffff : 0xff;
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse));
    const __m512i shifted = _mm512_add_epi32(rounded, _mm512_set1_epi32(1 << 7));
    _mm_store_si128(reinterpret_cast<__m128i*>(out + i), _mm512_cvtepi32_epi8(shifted));
  }
  return zero ? 0.0f : max / 127.0f;
}

// One block of keys and values, packed, and the scratch of a tile.
struct Block {
  const KeyBlock* keys;
  bool pinned;
  Factors queries;           // (query, dim)
  const float* query_scale;  // (query)
  uint8_t* k;
  uint8_t* v;
  // Where the next block probably lies: fetched while this one is worked on, since the hardware's prefetch
  // ends with the page, as blocks often do. Never read.
  const uint8_t* next_k;
  const uint8_t* next_v;
  int32_t* bias;     // (kBlockKeys)
  float* k_scale;    // (kBlockKeys): the score scale times the key's
  float* v_scale;    // (kBlockKeys): the value's scale over value_unit
  float value_unit;  // the largest value scale of the block / 65535
  float* scores;     // (kMaxTile, kBlockKeys)
  int32_t* sums;     // (kMaxTile, kBlockKeys)
  uint8_t* weights;  // (2, kMaxTile, kBlockKeys): high bytes, low bytes
};

template <int kTile>
HWY_INLINE void ValueTile(const Item& item, const Block& block, int64_t first, const float* keep,
                          const float* add) {
  const int64_t padded = PaddedDim(item.shape->head_dim);
  const Factors f{block.weights, kMaxTile * kBlockKeys, kBlockKeys};
  const int64_t steps = (block.keys->count + 3) / 4;
  for (int64_t e = 0; e < padded; e += 64) {
    MultiplyPanel<kTile, 4, 2>(f, block.v + e * kBlockKeys, steps, block.next_v + e * kBlockKeys, block.sums);
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      float* acc = item.state.acc + (first + q) * padded + e;
      const __m512 vkeep = _mm512_set1_ps(keep[q]), vadd = _mm512_set1_ps(add[q] * block.value_unit);
      HWY_UNROLL(8)
      for (int c = 0; c < 4; ++c) {
        const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(acc + 16 * c), vkeep);
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(block.sums + q * kBlockKeys + 16 * c));
        _mm512_storeu_ps(acc + 16 * c, _mm512_fmadd_ps(sum, vadd, old));
      }
    }
  }
}

template <int kTile>
HWY_NOINLINE void RunTile(const Item& item, const Block& block, int64_t first) {
  const TileView view = ViewTile(item, *block.keys, first, kTile);
  if (!view.any) return;
  const int64_t dim = item.shape->head_dim;
  Factors queries = block.queries;
  queries.high += first * queries.stride;
  if (block.keys->count > 16) {
    MultiplyPanel<kTile, 4, 1>(queries, block.k, dim / 4, block.next_k, block.sums);
  } else {
    MultiplyPanel<kTile, 1, 1>(queries, block.k, dim / 4, block.next_k, block.sums);
  }
  float max[kTile], sum[kTile], keep[kTile], add[kTile];
  for (int q = 0; q < kTile; ++q) {
    const __m512 scale = _mm512_set1_ps(block.query_scale[first + q]);
    const int32_t* sums = block.sums + q * kBlockKeys;
    const auto score = [&](int i) HWY_ATTR {
      const __m512i dot =
          _mm512_sub_epi32(_mm512_load_si512(sums + 16 * i), _mm512_load_si512(block.bias + 16 * i));
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale);
      return V{_mm512_mul_ps(scaled, _mm512_load_ps(block.k_scale + 16 * i))};
    };
    float* scores = block.scores + q * kBlockKeys;
    max[q] = item.plain()
                 ? BlockScores(view.lo[q], view.hi[q], score, scores)
                 : AdjustedBlockScores(item, *block.keys, first + q, view.lo[q], view.hi[q], score, scores);
  }
  for (int q = 0; q < kTile; ++q) {
    __m512i w[kParts];
    const auto weight = [&](int i, V v) HWY_ATTR {
      w[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v.raw, _mm512_load_ps(block.v_scale + 16 * i)));
    };
    sum[q] = BlockWeights(block.scores + q * kBlockKeys, max[q], weight);
    uint8_t* high = block.weights + q * kBlockKeys;
    StoreFactors64(w, high, high + kMaxTile * kBlockKeys);
  }
  MergeTile(item, item.spans[block.keys->span].counted, first, kTile, max, sum, keep, add);
  ValueTile<kTile>(item, block, first, keep, add);
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

// ks, vs: (count).
HWY_INLINE void PackScales(const float* ks, const float* vs, float scale, Block& block) {
  const int count = block.keys->count;
  __m512 v[4], largest = _mm512_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    const __mmask16 mask = static_cast<__mmask16>((1u << std::clamp(count - 16 * i, 0, 16)) - 1);
    _mm512_store_ps(block.k_scale + 16 * i,
                    _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, ks + 16 * i), _mm512_set1_ps(scale)));
    v[i] = _mm512_maskz_loadu_ps(mask, vs + 16 * i);
    largest = _mm512_max_ps(largest, v[i]);
  }
  const float max = hn::GetLane(hn::MaxOfLanes(FloatTag(), V{largest}));
  block.value_unit = max / 65535.0f;
  const __m512 inverse = _mm512_set1_ps(max > 1e-30f ? 65535.0f / max : 0.0f);
  for (int i = 0; i < 4; ++i) {
    const __m512 part = _mm512_min_ps(_mm512_mul_ps(v[i], inverse), _mm512_set1_ps(65535.0f));
    _mm512_store_ps(block.v_scale + 16 * i, part);
  }
}

void PackBlock(const Item& item, Block& block) {
  const AttentionShape& shape = *item.shape;
  const KvSpan& span = item.spans[block.keys->span];
  const int64_t begin = block.keys->begin;
  const int count = block.keys->count;
  const uint8_t* keys = RowOf(item, span.k, begin);
  const uint8_t* values = RowOf(item, span.v, begin);
  PackKeys(keys, count, shape.head_dim, block.k, block.bias);
  PackValues(values, count, shape.head_dim, block.v);
  block.next_k = keys + int64_t{count} * shape.head_dim;
  block.next_v = values + int64_t{count} * shape.head_dim;
  PackScales(span.k.scale + item.kv_head * span.k.head_stride + begin,
             span.v.scale + item.kv_head * span.v.head_stride + begin, shape.scale, block);
}

void RunInteger(const Item& item) {
  ClearState(item);
  const int64_t dim = item.shape->head_dim, padded = PaddedDim(dim);
  float* work = item.work;
  const auto take = [&work](int64_t floats) { return std::exchange(work, work + floats); };
  Block block{};
  block.k = reinterpret_cast<uint8_t*>(take(padded * kBlockKeys / 4));
  block.v = reinterpret_cast<uint8_t*>(take(padded * kBlockKeys / 4));
  block.sums = reinterpret_cast<int32_t*>(take(kMaxTile * kBlockKeys));
  block.scores = take(kMaxTile * kBlockKeys);
  block.k_scale = take(kBlockKeys);
  block.v_scale = take(kBlockKeys);
  block.bias = reinterpret_cast<int32_t*>(take(kBlockKeys));
  block.weights = reinterpret_cast<uint8_t*>(take(2 * kMaxTile * kBlockKeys / 4));
  float* query_scale = take((item.queries + 15) / 16 * 16);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(take(item.queries * padded / 4));
  block.queries = {bytes, item.queries * padded, padded};
  block.query_scale = query_scale;
  std::fill(block.sums, block.sums + kMaxTile * kBlockKeys, 0);
  std::fill(block.bias, block.bias + kBlockKeys, 0);
  int64_t quantised = -1;  // which of the two rotations `bytes` holds
  for (const KeyBlock& keys : item.blocks) {
    block.keys = &keys;
    block.pinned = item.spans[keys.span].pinned;
    if (quantised != block.pinned) {
      for (int64_t j = 0; j < item.queries; ++j) {
        query_scale[j] = QuantiseQuery(item.Query(block.pinned, j), dim, bytes + j * padded);
      }
      quantised = block.pinned;
    }
    PackBlock(item, block);
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
