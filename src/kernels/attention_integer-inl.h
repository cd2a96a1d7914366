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
// Softmax weights in steps: two unsigned bytes, or one signed 16-bit number.
constexpr float kWeightSteps = kVnni ? 65535.0f : 32767.0f;

// The factors of a tile of queries: group i of query q at at[q * stride + kGroupBytes * i]. With VNNI, values
// have a second pass, which reads them `second` bytes on, and the sums of query q with keys begin at bias[q].
struct Factors {
  const uint8_t* at;
  int64_t stride;
  int64_t second;
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
  // Of two passes, the second's sums count 1, the first's 2^8.
  constexpr int kPasses = kVnni && kSide == KvSide::kValues ? 2 : 1;
  VI sums[kTile][kWide];
  HWY_UNROLL(8)
  for (int q = 0; q < kTile; ++q) {
    HWY_UNROLL(8)
    for (int c = 0; c < kWide; ++c) {
      sums[q][c] = kVnni && kSide == KvSide::kKeys ? hn::Set(DI(), f.bias[q]) : hn::Zero(DI());
    }
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    const uint8_t* factors = f.at + pass * f.second;
    HWY_UNROLL(8)
    for (int q = 0; q < kTile; ++q) {
      HWY_UNROLL(8)
      for (int c = 0; c < kWide && kPasses > 1; ++c) sums[q][c] = hn::ShiftLeft<8>(sums[q][c]);
    }
    const uint8_t* row = panel.at;
    for (int64_t s = 0; s < steps; ++s, row += panel.step) {
      VI x[kWide];
      HWY_UNROLL(8)
      for (int c = 0; c < kWide; ++c) {
        const uint8_t* words = row + c * kLanes * 4;
        x[c] = hn::Load(DI(), reinterpret_cast<const int32_t*>(words));
        if (pass == 0 && c * kLanes % 16 == 0) {
          _mm_prefetch(reinterpret_cast<const char*>(words + panel.ahead), _MM_HINT_T1);
        }
      }
      if constexpr (kVnni) {
        HWY_UNROLL(8)
        for (int q = 0; q < kTile; ++q) {
          const VI w = BroadcastFour(factors + q * f.stride + kGroupBytes * s);
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
          const uint8_t* group = factors + q * f.stride + kGroupBytes * s;
          const VI16 w0 = hn::BitCast(DI16(), BroadcastFour(group)),
                     w1 = hn::BitCast(DI16(), BroadcastFour(group + 4));
          HWY_UNROLL(8)
          for (int c = 0; c < kWide; ++c) {
            sums[q][c] = hn::Add(hn::Add(sums[q][c], PairDot16(w0, even[c])), PairDot16(w1, odd[c]));
          }
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

#if BALLAST_VNNI == BALLAST_NO_VNNI
// kParts vectors of integers in [0, 32767], as 16-bit numbers in the order of kGroupBytes.
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
// 64 integers in [0, 65535] to their two bytes, in order: the packing instructions work inside blocks of 128
// bits, so that block b of their result holds bytes 4b..4b+3 of each of the four vectors.
HWY_INLINE void StoreWeights(const VI* x, uint8_t* high) {
  const __m512i a = _mm512_packus_epi32(x[0].raw, x[1].raw), b = _mm512_packus_epi32(x[2].raw, x[3].raw);
  const __m512i byte = _mm512_set1_epi16(0xff);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i h = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
  const __m512i l = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
  _mm512_store_si512(high, _mm512_permutexvar_epi32(order, h));
  _mm512_store_si512(high + kMaxTile * kBlockKeys, _mm512_permutexvar_epi32(order, l));
}
#else
// The same, 32 integers at a time.
HWY_INLINE void StoreWeights(const VI* x, uint8_t* high) {
  const __m256i byte = _mm256_set1_epi16(0xff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int i = 0; i < 2; ++i, x += 4, high += 32) {
    const __m256i a = _mm256_packus_epi32(x[0].raw, x[1].raw), b = _mm256_packus_epi32(x[2].raw, x[3].raw);
    const __m256i h = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    const __m256i l = _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
    _mm256_store_si256(reinterpret_cast<__m256i*>(high), _mm256_permutevar8x32_epi32(h, order));
    _mm256_store_si256(reinterpret_cast<__m256i*>(high + kMaxTile * kBlockKeys),
                       _mm256_permutevar8x32_epi32(l, order));
  }
}
#endif

#if HWY_TARGET <= HWY_AVX3
// e^x for x <= 0, within 3e-6 of itself, which is finer than the 16 bits of a weight. 2^y = 2^floor(y) 2^r;
// the polynomial for 2^r on [0, 1) is our fit.
HWY_INLINE V ExpOfWeight(V x) {
  const __m512 y = _mm512_mul_ps(x.raw, _mm512_set1_ps(1.44269504f));
  const __m512 r = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_fmadd_ps(r, _mm512_set1_ps(0.0135341668f), _mm512_set1_ps(0.0520114601f));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.241442755f));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.693003833f));
  p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(1.00000262f));
  return V{_mm512_scalef_ps(p, y)};
}
#else
HWY_INLINE V ExpOfWeight(V x) { return ExpNegative(x); }
#endif

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
  Factors queries;           // (query, dim)
  const float* query_scale;  // (query)
  const uint8_t* k;          // the tiles
  const uint8_t* v;
  float* k_scale;    // (kBlockKeys): the score scale times the key's
  float* v_scale;    // (kBlockKeys): the value's scale over value_unit
  float value_unit;  // the largest value scale of the block / kWeightSteps
  float* scores;     // (kMaxTile, kBlockKeys)
  int32_t* sums;     // (kMaxTile, kBlockKeys)
  uint8_t* weights;  // (kMaxTile, kBlockKeys) groups; with VNNI the high bytes of all, then the low ones
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
  const Factors f{block.weights + kGroupBytes * from, kGroupBytes / 4 * kBlockKeys, kMaxTile * kBlockKeys,
                  nullptr};
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

template <int kTile>
HWY_NOINLINE void RunTile(const Item& item, const Block& block, int64_t first) {
  const FloatTag d;
  const TileView view = ViewTile(item, *block.keys, first, kTile);
  if (!view.any) return;
  const int64_t dim = item.shape->head_dim;
  Factors queries = block.queries;
  queries.at += first * queries.stride;
  queries.bias += first;
  MultiplyKeys<kTile>(queries, {block.k, 4 * kKvTile, Ahead(item, *block.keys, first)}, dim / 4,
                      block.keys->hi, block.sums);
  float max[kTile], sum[kTile], keep[kTile], add[kTile];
  for (int q = 0; q < kTile; ++q) {
    const V scale = hn::Set(d, block.query_scale[first + q]);
    const int32_t* sums = block.sums + q * kBlockKeys;
    const auto score = [&](int i) HWY_ATTR {
      const V scaled = hn::Mul(hn::ConvertTo(d, hn::Load(DI(), sums + kLanes * i)), scale);
      return hn::Mul(scaled, hn::Load(d, block.k_scale + kLanes * i));
    };
    float* scores = block.scores + q * kBlockKeys;
    max[q] = item.plain()
                 ? BlockScores(view.lo[q], view.hi[q], score, scores)
                 : AdjustedBlockScores(item, *block.keys, first + q, view.lo[q], view.hi[q], score, scores);
  }
  for (int q = 0; q < kTile; ++q) {
    const float* scores = block.scores + q * kBlockKeys;
    const V vmax = hn::Set(d, max[q]);
    V total = hn::Zero(d);
    VI w[kParts];
    HWY_UNROLL(16)
    for (int i = 0; i < kParts; ++i) {
      const V below = hn::Min(hn::Sub(hn::Load(d, scores + kLanes * i), vmax), hn::Zero(d));
      const V weight = ExpOfWeight(below);
      total = hn::Add(total, weight);
      w[i] = hn::NearestInt(hn::Mul(weight, hn::Load(d, block.v_scale + kLanes * i)));
    }
    sum[q] = hn::GetLane(hn::SumOfLanes(d, total));
    StoreWeights(w, block.weights + q * kGroupBytes / 4 * kBlockKeys);
  }
  MergeTile(item, item.spans[block.keys->span].counted, first, kTile, max, sum, keep, add);
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
    hn::Store(hn::Mul(k, hn::Set(d, scale)), d, block.k_scale + kLanes * i);
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
  block.queries = {factors, query_bytes, 0, query_bias};
  block.query_scale = query_scale;
  std::fill(block.sums, block.sums + kMaxTile * kBlockKeys, 0);  // columns past a short block stay finite
  int64_t quantised = -1;                                        // which of the two rotations `factors` holds
  for (const KeyBlock& keys : item.blocks) {
    const KvSpan& span = item.spans[keys.span];
    block.keys = &keys;
    block.pinned = span.pinned;
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
