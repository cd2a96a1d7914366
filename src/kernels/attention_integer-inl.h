// The integer attention kernel, for one instruction set and one kind of byte dot product (BALLAST_VNNI).
// Included by attention_integer.cc only, once per kind, inside the namespace of the instruction set: no
// guard.

// NOLINTBEGIN(misc-definitions-in-headers)

#if BALLAST_VECTOR_DOT

using V = hn::Vec<FloatTag>;
using DI = hn::RebindToSigned<FloatTag>;
using DI16 = hn::Repartition<int16_t, DI>;
using DU8 = hn::Repartition<uint8_t, DI>;

// Vectors of columns handled together: with kMaxTile queries they fill the registers (32 from AVX-512 on,
// else 16).
constexpr int kWideColumns = kLanes == 16 ? 4 : kVnni ? 2 : 1;
// A group of four factors: bytes, or 16-bit pairs of its even and of its odd ones.
constexpr int kGroupBytes = kVnni ? 4 : 8;
// Softmax weights in steps: one unsigned byte, or one signed 16-bit number.
constexpr float kWeightSteps = kVnni ? 255.0f : 32767.0f;

// The factors of a tile of queries: group i of query q at at[q * stride + kGroupBytes * i]. With VNNI, the
// sums of query q with keys begin at bias[q].
struct Factors {
  const uint8_t* at;
  int64_t stride;
  const int32_t* bias;
};

// What they meet: step s is a row of words of four bytes at s * step. `ahead` bytes on lies what will be
// wanted next, and is fetched: the hardware's prefetch ends with the page, as tiles often do. It is never
// read.
struct Panel {
  const uint8_t* at;
  int64_t step;
  int64_t ahead;
};

// sums + a . b in fours; keys are the unsigned side of their products, softmax weights that of theirs.
template <KvSide kSide>
HWY_INLINE VI MultiplyAddBytes(VI sums, VI factors, VI panel) {
  if constexpr (kSide == KvSide::kKeys) return DotVnni(sums, hn::BitCast(DU8(), panel), factors);
  return DotVnni(sums, hn::BitCast(DU8(), factors), panel);
}

// out[q][column] = factors . panel over `steps` groups of four, exactly, for kWide vectors of columns. out:
// (kTile, kBlockKeys). Not inlined: alone, its sums stay in registers.
template <KvSide kSide, int kTile, int kWide>
HWY_NOINLINE void MultiplyPanel(const Factors& f, const Panel& panel, int64_t steps,
                                int32_t* HWY_RESTRICT out) {
  VI sums[kTile][kWide];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) {
      sums[q][c] = kVnni && kSide == KvSide::kKeys ? hn::Set(DI(), f.bias[q]) : hn::Zero(DI());
    }
  }
  const uint8_t* row = panel.at;
  for (int64_t s = 0; s < steps; ++s, row += panel.step) {
    VI x[kWide];
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) {
      const uint8_t* words = row + c * kLanes * 4;
      x[c] = hn::Load(DI(), reinterpret_cast<const int32_t*>(words));
      if (c * kLanes % 16 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(words + panel.ahead), _MM_HINT_T1);
      }
    }
    if constexpr (kVnni) {
      HWY_UNROLL(8)
      for (int q = 0; q < kTile; ++q) {
        const VI w = BroadcastFour(f.at + q * f.stride + kGroupBytes * s);
        HWY_UNROLL(8)
        for (int c = 0; c < kWide; ++c) sums[q][c] = MultiplyAddBytes<kSide>(sums[q][c], w, x[c]);
      }
    } else {
      VI16 even[kWide], odd[kWide];
      HWY_UNROLL(8)
      for (int c = 0; c < kWide; ++c) {
        // Keys carry an offset of 128.
        if constexpr (kSide == KvSide::kKeys)
          x[c] = hn::Xor(x[c], hn::Set(DI(), static_cast<int32_t>(0x80808080u)));
        const VI16 pairs = hn::BitCast(DI16(), x[c]);
        even[c] = hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs));
        odd[c] = hn::ShiftRight<8>(pairs);
      }
      HWY_UNROLL(8)
      for (int q = 0; q < kTile; ++q) {
        const uint8_t* group = f.at + q * f.stride + kGroupBytes * s;
        const VI16 w0 = hn::BitCast(DI16(), BroadcastFour(group)),
                   w1 = hn::BitCast(DI16(), BroadcastFour(group + 4));
        HWY_UNROLL(8)
        for (int c = 0; c < kWide; ++c) {
          sums[q][c] = hn::Add(hn::Add(sums[q][c], PairDot16(w0, even[c])), PairDot16(w1, odd[c]));
        }
      }
    }
  }
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) hn::Store(sums[q][c], DI(), out + q * kBlockKeys + kLanes * c);
  }
}

// Added to a weight before it is cut to a byte: for each key another fraction, evenly spread, so that the
// many small weights of a flat tail keep their sum. And 2^15, which puts the integer into the second byte of
// a float.
struct Dither {
  alignas(64) float at[kBlockKeys] = {};
  constexpr Dither() {
    for (int i = 0; i < kBlockKeys; ++i) {
      int reversed = 0;
      for (int bit = 0; bit < 6; ++bit) reversed |= (i >> bit & 1) << (5 - bit);
      at[i] = 32768.0f + (static_cast<float>(reversed) + 0.5f) / kBlockKeys;
    }
  }
};
static_assert(kBlockKeys == 64);
inline constexpr Dither kDither;

// weight * scale of the keys from `at` on, in steps: for StoreWeights.
HWY_INLINE VI RoundWeight(V weight, V scale, int at) {
  if constexpr (kVnni)
    return hn::BitCast(DI(), hn::MulAdd(weight, scale, hn::Load(FloatTag(), kDither.at + at)));
  return hn::NearestInt(hn::Mul(weight, scale));
}

// The weights of all keys, as groups in order.
#if BALLAST_VNNI == BALLAST_NO_VNNI
HWY_INLINE void StoreWeights(const VI* x, uint8_t* out) {
  const hn::Rebind<int16_t, DI> d16;
  const hn::Repartition<uint8_t, decltype(d16)> d8;
  HWY_ALIGN static constexpr uint8_t kOrder[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  const auto order = hn::LoadDup128(d8, kOrder);
  HWY_UNROLL(16)
  for (int i = 0; i < kParts; ++i) {
    const auto bytes = hn::BitCast(d8, hn::DemoteTo(d16, x[i]));
    hn::StoreU(hn::TableLookupBytes(bytes, order), d8, out + 2 * kLanes * i);
  }
}
#elif HWY_TARGET == HWY_AVX3_DL
HWY_INLINE void StoreWeights(const VI* x, uint8_t* out) {
  HWY_ALIGN static constexpr uint8_t kSecondBytes[64] = {1,  5,  9,  13,  17,  21,  25,  29,  33,  37, 41,
                                                         45, 49, 53, 57,  61,  65,  69,  73,  77,  81, 85,
                                                         89, 93, 97, 101, 105, 109, 113, 117, 121, 125};
  const __m512i order = _mm512_load_si512(kSecondBytes);
  const __m512i a = _mm512_permutex2var_epi8(x[0].raw, order, x[1].raw);
  const __m512i b = _mm512_permutex2var_epi8(x[2].raw, order, x[3].raw);
  _mm512_store_si512(out, _mm512_inserti64x4(a, _mm512_castsi512_si256(b), 1));
}
#else
HWY_INLINE void StoreWeights(const VI* x, uint8_t* out) {
  const hn::RebindToUnsigned<DI> du;
  const hn::Rebind<uint8_t, DI> d8;
  HWY_UNROLL(16)
  for (int i = 0; i < kParts; ++i) {
    hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<8>(hn::BitCast(du, x[i]))), d8, out + kLanes * i);
  }
}
#endif

// 2^r for r in [0, 1) (AVX-512) or [-1/2, 1/2], exactly 1 at 0; finer than a weight: within 1.1e-4 of itself,
// or 3e-6 where weights have 15 bits. Our fits.
HWY_INLINE V PowerOfFraction(V r) {
  const FloatTag d;
  constexpr bool kFromZero = HWY_TARGET <= HWY_AVX3;
  V p;
  if constexpr (kVnni) {
    p = hn::MulAdd(r, hn::Set(d, kFromZero ? 0.0770670593f : 0.0550089315f),
                   hn::Set(d, kFromZero ? 0.227644972f : 0.242210965f));
    p = hn::MulAdd(r, p, hn::Set(d, kFromZero ? 0.695116791f : 0.693282928f));
  } else {
    p = hn::MulAdd(r, hn::Set(d, kFromZero ? 0.0134266863f : 0.0095828532f),
                   hn::Set(d, kFromZero ? 0.0522424709f : 0.0559064253f));
    p = hn::MulAdd(r, p, hn::Set(d, kFromZero ? 0.241280206f : 0.240240986f));
    p = hn::MulAdd(r, p, hn::Set(d, kFromZero ? 0.693044845f : 0.693124193f));
  }
  return hn::MulAdd(r, p, hn::Set(d, 1.0f));
}

// 2^y for y <= 0.
HWY_INLINE V PowerOfTwo(V y) {
#if HWY_TARGET <= HWY_AVX3
  const V r{_mm512_reduce_ps(y.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};  // y - floor(y)
  return V{_mm512_scalef_ps(PowerOfFraction(r).raw, y.raw)};
#else
  const FloatTag d;
  const V lowest = hn::Set(d, -126.0f);
  const auto seen = hn::Gt(y, lowest);
  y = hn::Max(y, lowest);
  const V magic = hn::Set(d, 12582912.0f);  // adding it leaves the nearest integer in the low bits
  const V shifted = hn::Add(y, magic);
  const V p = PowerOfFraction(hn::Sub(y, hn::Sub(shifted, magic)));
  const VI exponent = hn::ShiftLeft<23>(hn::BitCast(DI(), shifted));
  return hn::IfThenElseZero(seen, hn::BitCast(d, hn::Add(hn::BitCast(DI(), p), exponent)));
#endif
}

struct LargestFold {
  static HWY_INLINE V Pair(V a, V b) { return hn::Max(a, b); }
  static HWY_INLINE float All(V v) { return hn::GetLane(hn::MaxOfLanes(FloatTag(), v)); }
};
struct SumFold {
  static HWY_INLINE V Pair(V a, V b) { return hn::Add(a, b); }
  static HWY_INLINE float All(V v) { return hn::GetLane(hn::SumOfLanes(FloatTag(), v)); }
};

// out[q]: all lanes of v[q], folded; out[kTile..] is unspecified. out: (kTileFloats), aligned. All at once,
// since one alone is four steps that wait for one another.
template <class Fold, int kTile>
HWY_INLINE void FoldLanes(const V* v, float* out) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kTile > 1) {
    const auto at = [&](int q) HWY_ATTR { return v[q < kTile ? q : 0].raw; };
    const auto pair = [](__m512 a, __m512 b) HWY_ATTR { return Fold::Pair(V{a}, V{b}).raw; };
    __m512 x[4], y[2];
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      x[i] = pair(_mm512_shuffle_f32x4(at(i), at(i + 4), 0x44), _mm512_shuffle_f32x4(at(i), at(i + 4), 0xee));
    }
    HWY_UNROLL(2)
    for (int i = 0; i < 2; ++i) {
      y[i] = pair(_mm512_shuffle_f32x4(x[i], x[i + 2], 0x88), _mm512_shuffle_f32x4(x[i], x[i + 2], 0xdd));
    }
    // In each fourth two of them: 0 1, 4 5, 2 3, 6 7.
    const __m512 z = pair(_mm512_unpacklo_ps(y[0], y[1]), _mm512_unpackhi_ps(y[0], y[1]));
    const __m512 all = pair(z, _mm512_permute_ps(z, 0x4e));
    const __m512i order = _mm512_setr_epi32(0, 1, 8, 9, 4, 5, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    return hn::Store(V{_mm512_permutexvar_ps(order, all)}, FloatTag(), out);
  }
#endif
  for (int q = 0; q < kTile; ++q) out[q] = Fold::All(v[q]);
}

// Rounds a query to 8 bits: query = scale * byte; bias takes back what the keys' offset of 128 adds to every
// dot product (with VNNI).
struct RoundedQuery {
  float scale;
  int32_t bias;
};

// out has room for the groups of dim rounded up to 16.
HWY_INLINE RoundedQuery QuantiseQuery(const float* x, int64_t dim, uint8_t* out) {
  const FloatTag d;
  const auto load = [&](int64_t i) HWY_ATTR {  // dim is a multiple of 8
    if constexpr (kLanes <= 8) return hn::LoadU(d, x + i);
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(dim - i)), d, x + i);
  };
  V largest = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += kLanes) largest = hn::Max(largest, hn::Abs(load(i)));
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  const bool zero = !(max > 1e-30f);
  const V inverse = hn::Set(d, zero ? 0.0f : 127.0f / max);
  VI total = hn::Zero(DI());
  for (int64_t i = 0; i < dim; i += kLanes) {
    const VI rounded = hn::NearestInt(hn::Mul(load(i), inverse));
    total = hn::Add(total, rounded);
    if constexpr (kVnni) {
      const hn::Rebind<int8_t, DI> d8;
      hn::StoreU(hn::DemoteTo(d8, rounded), d8, reinterpret_cast<int8_t*>(out + i));
    } else {
      HWY_ALIGN int32_t codes[kLanes];
      hn::Store(rounded, DI(), codes);
      for (int k = 0; k < kLanes; ++k) {  // the pairs of a group: its even ones, its odd ones
        const int64_t at = (i + k) / 4 * 4 + (k & 1) * 2 + (k & 2) / 2;
        const auto code = static_cast<int16_t>(codes[k]);
        std::memcpy(out + 2 * at, &code, sizeof(code));
      }
    }
  }
  return {zero ? 0.0f : max / 127.0f, -128 * hn::GetLane(hn::SumOfLanes(DI(), total))};
}

// One block of keys and values, and the scratch of a tile.
struct Block {
  const KeyBlock* keys;
  bool pinned;
  bool whole;                // every query sees all of its keys, and scores are products alone
  Factors queries;           // (query, dim)
  const float* query_scale;  // (query)
  const uint8_t* k;          // the tiles
  const uint8_t* v;
  float* k_scale;    // (kBlockKeys): the score scale times the key's
  float* v_scale;    // (kBlockKeys): the value's scale over value_unit
  float value_unit;  // the largest value scale of the block / kWeightSteps
  float* scores;     // (kMaxTile, kBlockKeys)
  int32_t* sums;     // (kMaxTile, kBlockKeys)
  uint8_t* weights;  // (kMaxTile, kBlockKeys), in groups
};

// Fetches the next tile, into the second-level cache (the first has no room for so many requests), while the
// first queries of this one are worked on. After a tile that is not full there is none.
HWY_INLINE int64_t Ahead(const Item& item, const KeyBlock& keys, int64_t first) {
  return first == 0 && keys.hi == kBlockKeys ? kKvTile * KvStoredRowBytes(KvType::kQ8, item.shape->head_dim)
                                             : 0;
}

// The products of kTile queries with the first `keys` keys of a tile, or some more.
template <int kTile>
HWY_INLINE void MultiplyKeys(const Factors& queries, Panel panel, int64_t steps, int keys, int32_t* sums) {
  const auto columns = [&](auto wide) HWY_ATTR {
    constexpr int kColumns = wide.value * kLanes;
    for (int at = 0; at < keys; at += kColumns, panel.at += 4 * kColumns) {
      MultiplyPanel<KvSide::kKeys, kTile, wide.value>(queries, panel, steps, sums + at);
    }
  };
  if (keys > kLanes) return columns(std::integral_constant<int, kWideColumns>());
  columns(std::integral_constant<int, 1>());
}

// Adds the weighted values of kWide vectors of elements from `e` on.
template <int kTile, int kWide>
HWY_INLINE void ValueColumns(const Item& item, const Block& block, int64_t first, int64_t e,
                             const float* keep, const float* add) {
  const FloatTag d;
  const int64_t padded = PaddedDim(item.shape->head_dim);
  const int64_t step = 4 * KvStoredRowBytes(KvType::kQ8, item.shape->head_dim);
  const int64_t from = block.keys->lo / 4, to = (block.keys->hi + 3) / 4;
  const Factors f{block.weights + kGroupBytes * from, kGroupBytes / 4 * kBlockKeys, nullptr};
  const Panel panel{block.v + from * step + 4 * e, step, Ahead(item, *block.keys, first)};
  MultiplyPanel<KvSide::kValues, kTile, kWide>(f, panel, to - from, block.sums);
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    float* acc = item.state.acc + (first + q) * padded + e;
    const V vkeep = hn::Set(d, keep[q]), vadd = hn::Set(d, add[q] * block.value_unit);
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) {
      const V old = hn::Mul(hn::LoadU(d, acc + kLanes * c), vkeep);
      const V sum = hn::ConvertTo(d, hn::Load(DI(), block.sums + q * kBlockKeys + kLanes * c));
      hn::StoreU(hn::MulAdd(sum, vadd, old), d, acc + kLanes * c);
    }
  }
}

// Of each query of a tile: weights are 2^(factor (score - highest)), and sum to `sum`. max: the largest
// score, within kScoreLimit.
struct TileSoftmax {
  HWY_ALIGN float max[kTileFloats] = {};
  HWY_ALIGN float highest[kTileFloats] = {};
  HWY_ALIGN float factor[kTileFloats] = {};
  HWY_ALIGN float sum[kTileFloats] = {};
};
constexpr float kLog2E = 1.44269504f;

// The product of a query with vector i of the keys, but for the query's scale.
HWY_INLINE V UnscaledScore(const Block& block, int q, int i) {
  const FloatTag d;
  const V product = hn::ConvertTo(d, hn::Load(DI(), block.sums + q * kBlockKeys + kLanes * i));
  return hn::Mul(product, hn::Load(d, block.k_scale + kLanes * i));
}

// Scores of a whole block; the queries' scales stay in `factor`.
template <int kTile>
HWY_INLINE void ScoreWhole(const Block& block, int64_t first, TileSoftmax& tile) {
  const FloatTag d;
  V largest[kTile];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(16)
    for (int i = 0; i < kParts; ++i) {
      const V x = UnscaledScore(block, q, i);
      hn::Store(x, d, block.scores + q * kBlockKeys + kLanes * i);
      largest[q] = i == 0 ? x : hn::Max(largest[q], x);
    }
  }
  FoldLanes<LargestFold, kTile>(largest, tile.highest);
  const V limit = hn::Set(d, kScoreLimit);
  for (int q = 0; q < kTile; q += kLanes) {
    const V scale = hn::LoadU(d, block.query_scale + first + q);
    const V max = hn::Mul(hn::Load(d, tile.highest + q), scale);
    hn::Store(hn::Min(hn::Max(max, hn::Neg(limit)), limit), d, tile.max + q);
    hn::Store(hn::Mul(scale, hn::Set(d, kLog2E)), d, tile.factor + q);
  }
}

// Scores of any block.
template <int kTile>
HWY_INLINE void ScorePart(const Item& item, const Block& block, const TileView& view, int64_t first,
                          TileSoftmax& tile) {
  for (int q = 0; q < kTile; ++q) {
    const V scale = hn::Set(FloatTag(), block.query_scale[first + q]);
    const auto score = [&](int i) HWY_ATTR { return hn::Mul(UnscaledScore(block, q, i), scale); };
    float* scores = block.scores + q * kBlockKeys;
    tile.max[q] = item.plain() ? BlockScores(view.lo[q], view.hi[q], score, scores)
                               : AdjustedBlockScores(item, *block.keys, first + q, view.lo[q], view.hi[q],
                                                     score, scores);
    tile.highest[q] = tile.max[q];
    tile.factor[q] = kLog2E;
  }
}

// Scores to weights.
template <int kTile>
HWY_INLINE void Weigh(const Block& block, TileSoftmax& tile) {
  const FloatTag d;
  V total[kTile];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    const float* scores = block.scores + q * kBlockKeys;
    const V factor = hn::Set(d, tile.factor[q]), highest = hn::Set(d, tile.highest[q]);
    VI w[kParts];
    HWY_UNROLL(16)
    for (int i = 0; i < kParts; ++i) {
      const V weight = PowerOfTwo(hn::Mul(hn::Sub(hn::Load(d, scores + kLanes * i), highest), factor));
      total[q] = i == 0 ? weight : hn::Add(total[q], weight);
      w[i] = RoundWeight(weight, hn::Load(d, block.v_scale + kLanes * i), kLanes * i);
    }
    StoreWeights(w, block.weights + q * kGroupBytes / 4 * kBlockKeys);
  }
  FoldLanes<SumFold, kTile>(total, tile.sum);
}

template <int kTile>
HWY_NOINLINE void RunTile(const Item& item, const Block& block, int64_t first) {
  TileView view;
  if (!block.whole) {
    view = ViewTile(item, *block.keys, first, kTile);
    if (!view.any) return;
  }
  const int64_t dim = item.shape->head_dim;
  Factors queries = block.queries;
  queries.at += first * queries.stride;
  queries.bias += first;
  MultiplyKeys<kTile>(queries, {block.k, 4 * kKvTile, Ahead(item, *block.keys, first)}, dim / 4,
                      block.keys->hi, block.sums);
  TileSoftmax tile;
  if (block.whole) {
    ScoreWhole<kTile>(block, first, tile);
  } else {
    ScorePart<kTile>(item, block, view, first, tile);
  }
  Weigh<kTile>(block, tile);
  HWY_ALIGN float keep[kTileFloats], add[kTileFloats];
  MergeTile(item, item.spans[block.keys->span].counted, first, kTile, tile.max, tile.sum, keep, add);
  const int64_t stored = KvStoredRowBytes(KvType::kQ8, dim);
  constexpr int kColumns = kWideColumns * kLanes;
  int64_t e = 0;
  for (; e + kColumns <= stored; e += kColumns)
    ValueColumns<kTile, kWideColumns>(item, block, first, e, keep, add);
  for (; e < stored; e += kLanes) ValueColumns<kTile, 1>(item, block, first, e, keep, add);
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
  const FloatTag d;
  const VI lo = hn::Set(DI(), block.keys->lo), hi = hn::Set(DI(), block.keys->hi);
  V v[kParts], largest = hn::Zero(d);
  for (int i = 0; i < kParts; ++i) {
    const VI key = hn::Iota(DI(), i * kLanes);
    const auto seen = hn::RebindMask(d, hn::AndNot(hn::Lt(key, lo), hn::Lt(key, hi)));
    const V k = hn::IfThenElseZero(seen, hn::LoadU(d, ks + kLanes * i));
    const V scaled = hn::Mul(k, hn::Set(d, scale)), limit = hn::Set(d, kScoreLimit);
    hn::Store(hn::Min(scaled, limit), d, block.k_scale + kLanes * i);  // products stay finite
    v[i] = hn::IfThenElseZero(seen, hn::LoadU(d, vs + kLanes * i));
    largest = hn::Max(largest, v[i]);
    _mm_prefetch(reinterpret_cast<const char*>(ks + kKvTile + kLanes * i), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(vs + kKvTile + kLanes * i), _MM_HINT_T1);
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  block.value_unit = max / kWeightSteps;
  const V inverse = hn::Set(d, max > 1e-30f ? kWeightSteps / max : 0.0f);
  for (int i = 0; i < kParts; ++i) {
    hn::Store(hn::Min(hn::Mul(v[i], inverse), hn::Set(d, kWeightSteps)), d, block.v_scale + kLanes * i);
  }
}

void RunInteger(const Item& item) {
  ClearState(item);
  const int64_t dim = item.shape->head_dim;
  const int64_t query_bytes = KvStoredRowBytes(KvType::kQ8, dim) / 4 * kGroupBytes;
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
  auto* factors = reinterpret_cast<uint8_t*>(take(item.queries * query_bytes / 4));
  block.queries = {factors, query_bytes, query_bias};
  block.query_scale = query_scale;
  std::fill(block.sums, block.sums + kMaxTile * kBlockKeys, 0);  // columns past a short block stay finite
  const Item::Seen seen = item.SeenByAll();
  int64_t quantised = -1;  // which of the two rotations `factors` holds
  for (const KeyBlock& keys : item.blocks) {
    const KvSpan& span = item.spans[keys.span];
    block.keys = &keys;
    block.pinned = span.pinned;
    block.whole = item.plain() && keys.lo == 0 && keys.hi == kBlockKeys && item.AllSee(keys, seen);
    if (quantised != block.pinned) {
      for (int64_t j = 0; j < item.queries; ++j) {
        const RoundedQuery query = QuantiseQuery(item.Query(block.pinned, j), dim, factors + j * query_bytes);
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

bool HasInteger() { return true; }

#else  // BALLAST_VECTOR_DOT

bool HasInteger() { return false; }
void RunInteger(const Item&) { BALLAST_CHECK(false); }

#endif  // BALLAST_VECTOR_DOT

// NOLINTEND(misc-definitions-in-headers)
