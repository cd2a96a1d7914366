// Integer panels times int8 activations, for one instruction set and one kind of byte dot product
// (BALLAST_VNNI). Included by matmul_int.cc only, once per kind, inside the namespace of the instruction set:
// no guard.
//
// Every tile shape does the same operations per output in the same order, so a row's result does not depend
// on the rows beside it.

// NOLINTBEGIN(misc-definitions-in-headers)

// A PanelForm as a type.
template <int kCodeBits, int kSubCols, int kZeroCode, bool kHasOffset, bool kHasUnit>
struct Form {
  static constexpr int kBits = kCodeBits, kSub = kSubCols, kZero = kZeroCode;
  static constexpr bool kOffset = kHasOffset, kUnit = kHasUnit;
  static constexpr int kSubs = kBlockCols / kSub;
  static constexpr PanelForm kForm = {kBits, kSub, kZero, kOffset, kUnit};
  static constexpr int64_t kCodes = kForm.code_bytes(), kScales = kForm.scale_bytes();
  static constexpr int64_t kBlock = kForm.block_bytes();
  static constexpr int kZeroShift = kZero == 128 ? 7 : kZero == 32 ? 5 : kZero == 16 ? 4 : kZero == 8 ? 3 : 2;
  static_assert(kZero == 0 || kZero == 1 << kZeroShift);
};

// Where one panel's outputs go: `n` rows of activations, y_stride apart.
struct Out {
  float* y;
  int64_t stride;
};

#if BALLAST_VECTOR_DOT

using DF = hn::CappedTag<float, kPanelRows>;
using DI = hn::RebindToSigned<DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using DU16 = hn::Repartition<uint16_t, DF>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kParts = kPanelRows / kLanes;     // vectors per 16 outputs
constexpr int kMaxTile = kLanes == 16 ? 8 : 4;  // by the number of registers

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
HWY_INLINE VI16 PairDot(VU8 w, VI x) { return VI16{_mm512_maddubs_epi16(w.raw, x.raw)}; }
// Codes to 255 would saturate PairDot: take 128 off and move the sign to x (|w| <= 128, |x| <= 127).
HWY_INLINE VI16 SignedPairDot(VU8 w, VI x) {
  const __m512i s = _mm512_xor_si512(w.raw, _mm512_set1_epi8(-128));
  const __m512i moved = _mm512_mask_sub_epi8(x.raw, _mm512_movepi8_mask(s), _mm512_setzero_si512(), x.raw);
  return VI16{_mm512_maddubs_epi16(_mm512_abs_epi8(s), moved)};
}
#elif HWY_TARGET == HWY_AVX2
HWY_INLINE VI16 PairDot(VU8 w, VI x) { return VI16{_mm256_maddubs_epi16(w.raw, x.raw)}; }
HWY_INLINE VI16 SignedPairDot(VU8 w, VI x) {
  const __m256i s = _mm256_xor_si256(w.raw, _mm256_set1_epi8(-128));
  return VI16{_mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x.raw, s))};
}
#else
HWY_INLINE VI16 PairDot(VU8 w, VI x) { return VI16{_mm_maddubs_epi16(w.raw, x.raw)}; }
HWY_INLINE VI16 SignedPairDot(VU8 w, VI x) {
  const __m128i s = _mm_xor_si128(w.raw, _mm_set1_epi8(-128));
  return VI16{_mm_maddubs_epi16(_mm_abs_epi8(s), _mm_sign_epi8(x.raw, s))};
}
#endif

HWY_INLINE VI PairSum(VI16 v) { return PairDot16(v, hn::Set(DI16(), int16_t{1})); }

// Integer accumulators of one sub-block. Exact, so their order is free.
template <class F>
struct Dots {
  // Nibbles: 8 groups of 2 * 15 * 127 fit 16 bits, which halves the work without VNNI.
  static constexpr bool kShort = !kVnni && F::kBits == 4;
  static constexpr bool kSigned = !kVnni && F::kZero == 128;
  using V = std::conditional_t<kShort, VI16, VI>;

  static HWY_INLINE V Start(const int32_t* negated_sum) {
    if constexpr (kVnni && F::kZero != 0) {
      return hn::ShiftLeft<F::kZeroShift>(hn::Set(DI(), *negated_sum));
    } else if constexpr (kShort) {
      return hn::Zero(DI16());
    } else {
      return hn::Zero(DI());
    }
  }
  static HWY_INLINE V Add(V acc, VU8 w, const int8_t* x4) { return AddVectors(acc, w, BroadcastFour(x4)); }
  static HWY_INLINE V AddVectors(V acc, VU8 w, VI x) {
    if constexpr (kVnni) {
      return DotVnni(acc, w, x);
    } else if constexpr (kShort) {
      return hn::Add(acc, PairDot(w, x));
    } else if constexpr (kSigned) {
      return hn::Add(acc, PairSum(SignedPairDot(w, x)));
    } else {
      return hn::Add(acc, PairSum(PairDot(w, x)));
    }
  }
  static HWY_INLINE VI Finish(V acc, const int32_t* negated_sum) {
    VI sum;
    if constexpr (kShort) {
      sum = PairSum(acc);
    } else {
      sum = acc;
    }
    if constexpr (!kVnni && F::kZero != 0 && !kSigned) {
      sum = hn::Add(sum, hn::ShiftLeft<F::kZeroShift>(hn::Set(DI(), *negated_sum)));
    }
    return sum;
  }
};

HWY_INLINE VF LoadScale(const uint8_t* base, int64_t index) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(base) + index));
}

// Bits [shift, ..) of every byte to bit 4; what else a byte then holds is for the caller to mask.
HWY_INLINE VU8 ToFifthBit(VU8 v, int shift) {
  const auto wide = hn::BitCast(DU16(), v);
  switch (shift) {
    case 0:
      return hn::BitCast(DU8(), hn::ShiftLeft<4>(wide));
    case 1:
      return hn::BitCast(DU8(), hn::ShiftLeft<3>(wide));
    case 2:
      return hn::BitCast(DU8(), hn::ShiftLeft<2>(wide));
    case 3:
      return hn::BitCast(DU8(), hn::ShiftLeft<1>(wide));
    case 4:
      return v;
    case 5:
      return hn::BitCast(DU8(), hn::ShiftRight<1>(wide));
    case 6:
      return hn::BitCast(DU8(), hn::ShiftRight<2>(wide));
    default:
      return hn::BitCast(DU8(), hn::ShiftRight<3>(wide));
  }
}

// `nibbles` of group g of the block at `panel`, with its fifth and sixth bits added where the form has them.
template <class F>
HWY_INLINE VU8 WithHighBits(VU8 nibbles, const uint8_t* panel, int g, int part) {
  if constexpr (F::kBits == 4) return nibbles;
  const VU8 high = hn::LoadU(DU8(), panel + HighAt(F::kForm, g, part * kLanes));
  const VU8 mask = hn::Set(DU8(), F::kBits == 5 ? uint8_t{0x10} : uint8_t{0x30});
  return hn::Or(nibbles, hn::And(ToFifthBit(high, HighShift(F::kForm, g)), mask));
}

// One vector of outputs (`part` of the panel) for rows [first, first + NR) of a tile of n rows.
template <class F, int NR>
HWY_INLINE void TilePart(const uint8_t* panel, int64_t blocks, const QuantizedRows& tile, int n, int first,
                         int part, const Out& out) {
  using D = Dots<F>;
  constexpr int kSubs = F::kSubs;
  constexpr int kAhead = 4096;  // few rows stream the panels from memory, and many lose nothing
  const int8_t* x = tile.codes + first * kBlockCols;
  const float* a = tile.scale + first;
  const float* sum = (kSubs == 1 ? tile.sum : tile.sums) + first;
  const int32_t* negated = (kSubs == 1 ? tile.negated : tile.negateds) + first;
  VF acc[NR];
  BALLAST_UNROLL
  for (int r = 0; r < NR; ++r) acc[r] = hn::Zero(DF());

  for (int64_t b = 0; b < blocks; ++b, panel += F::kBlock) {
    typename D::V dot[kSubs][NR];
    BALLAST_UNROLL
    for (int s = 0; s < kSubs; ++s) {
      BALLAST_UNROLL
      for (int r = 0; r < NR; ++r) dot[s][r] = D::Start(negated + s * n + r);
    }
    BALLAST_UNROLL
    for (int64_t i = 0; i < F::kBlock; i += 64) hwy::Prefetch(panel + kAhead + i);
    BALLAST_UNROLL
    for (int g = 0; g < (F::kBits == 8 ? 8 : 4); ++g) {
      const VU8 raw = hn::LoadU(DU8(), panel + LowAt(F::kForm, g, part * kLanes));
      if constexpr (F::kBits != 8) {
        const VU8 mask = hn::Set(DU8(), uint8_t{15});
        const VU8 upper = hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(DU16(), raw)));
        const VU8 low = WithHighBits<F>(hn::And(raw, mask), panel, g, part);
        const VU8 high = WithHighBits<F>(hn::And(upper, mask), panel, g + 4, part);
        BALLAST_UNROLL
        for (int r = 0; r < NR; ++r) {
          const int8_t* x4 = x + r * kBlockCols + g * 4;
          dot[0][r] = D::Add(dot[0][r], low, x4);
          dot[kSubs - 1][r] = D::Add(dot[kSubs - 1][r], high, x4 + 16);
        }
      } else {
        const int s = kSubs == 1 ? 0 : g / 4;
        BALLAST_UNROLL
        for (int r = 0; r < NR; ++r) dot[s][r] = D::Add(dot[s][r], raw, x + r * kBlockCols + g * 4);
      }
    }
    VF t[NR];
    BALLAST_UNROLL
    for (int s = 0; s < kSubs; ++s) {
      const int64_t index = s * kPanelRows + part * kLanes;
      const VF scale = LoadScale(panel + F::kCodes, index);
      const VF offset = F::kOffset ? LoadScale(panel + F::kCodes + F::kScales, index) : hn::Zero(DF());
      BALLAST_UNROLL
      for (int r = 0; r < NR; ++r) {
        const VF value = hn::ConvertTo(DF(), D::Finish(dot[s][r], negated + s * n + r));
        VF part_sum;
        if constexpr (F::kOffset) {
          const VF from_offset = hn::Mul(offset, hn::Set(DF(), sum[s * n + r]));
          part_sum = s == 0 ? from_offset : hn::MulAdd(offset, hn::Set(DF(), sum[s * n + r]), t[r]);
          t[r] = hn::MulAdd(scale, value, part_sum);
        } else {
          t[r] = s == 0 ? hn::Mul(scale, value) : hn::MulAdd(scale, value, t[r]);
        }
      }
    }
    BALLAST_UNROLL
    for (int r = 0; r < NR; ++r) acc[r] = hn::MulAdd(hn::Set(DF(), a[r]), t[r], acc[r]);
    x += n * kBlockCols;
    a += n;
    sum += n * kSubs;
    negated += n * kSubs;
  }
  if constexpr (F::kUnit) {  // behind the last block
    const VF unit = hn::LoadU(DF(), reinterpret_cast<const float*>(panel) + part * kLanes);
    BALLAST_UNROLL
    for (int r = 0; r < NR; ++r) acc[r] = hn::Mul(acc[r], unit);
  }
  BALLAST_UNROLL
  for (int r = 0; r < NR; ++r) hn::StoreU(acc[r], DF(), out.y + (first + r) * out.stride + part * kLanes);
}

template <class F, int NR>
HWY_NOINLINE void TileRowsOf(const uint8_t* panel, int64_t blocks, const QuantizedRows& tile, int n,
                             int first, const Out& out) {
  for (int part = 0; part < kParts; ++part) TilePart<F, NR>(panel, blocks, tile, n, first, part, out);
}

// A tile of n (1, 2, 4 or 8) rows.
template <class F>
HWY_INLINE void PanelTimesTile(const uint8_t* panel, int64_t blocks, const QuantizedRows& tile, int n,
                               const Out& out) {
  if (n == 8 && kMaxTile == 8) {
    TileRowsOf<F, kMaxTile>(panel, blocks, tile, n, 0, out);
  } else if (n >= 4) {
    for (int first = 0; first < n; first += 4) TileRowsOf<F, 4>(panel, blocks, tile, n, first, out);
  } else {
    for (int first = 0; first < n; ++first) TileRowsOf<F, 1>(panel, blocks, tile, n, first, out);
  }
}

#else  // BALLAST_VECTOR_DOT

// The definition, one output at a time.
template <class F>
HWY_NOINLINE void PanelTimesTile(const uint8_t* panel, int64_t blocks, const QuantizedRows& tile, int n,
                                 const Out& out) {
  const float* sums = F::kSubs == 1 ? tile.sum : tile.sums;
  for (int i = 0; i < n * kPanelRows; ++i) {
    const int r = i / kPanelRows, row = i % kPanelRows;
    float acc = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* codes = panel + b * F::kBlock;
      const uint8_t* scales = codes + F::kCodes;
      const int8_t* x = tile.codes + (b * n + r) * kBlockCols;
      int32_t dot[2] = {0, 0};
      for (int j = 0; j < kBlockCols; ++j) {
        dot[j / F::kSub] += (StoredCode(F::kForm, codes, row, j) - F::kZero) * x[j];
      }
      float t = 0;
      for (int s = 0; s < F::kSubs; ++s) {
        const int64_t index = s * kPanelRows + row;
        if (F::kOffset) t += ScaleAt(scales + F::kScales, index) * sums[(b * F::kSubs + s) * n + r];
        t += ScaleAt(scales, index) * static_cast<float>(dot[s]);
      }
      acc += tile.scale[b * n + r] * t;
    }
    if (F::kUnit) acc *= reinterpret_cast<const float*>(panel + blocks * F::kBlock)[row];
    out.y[r * out.stride + row] = acc;
  }
}

#endif  // BALLAST_VECTOR_DOT

#if BALLAST_VECTOR_DOT
ByteDots RunByteDotsT(int32_t seed, int64_t rounds) {
  constexpr int kSums = 12;
  using D = Dots<Form<8, 32, 0, false, false>>;
  VI sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(DI(), seed + i);
  VU8 w = hn::Set(DU8(), static_cast<uint8_t>(1 + (seed & 7)));
  VI x = hn::Set(DI(), 0x02010302 + seed);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = D::AddVectors(sum[i], w, x);
    asm volatile("" : "+x"(w.raw), "+x"(x.raw));  // else the compiler may fold the rounds
  }
  ByteDots result{rounds * kSums * static_cast<int64_t>(sizeof(VI)), 0};
  for (int i = 0; i < kSums; ++i) result.sum += hn::GetLane(sum[i]);
  return result;
}
#else
ByteDots RunByteDotsT(int32_t, int64_t) { return {}; }
#endif

// Adds panel p times what rounding left of the fine rows.
template <class F>
void AddLeft(const Weights::Impl& w, const Activations::Impl& x, int64_t p, int64_t outputs, float* y,
             int64_t y_stride) {
  for (size_t i = 0; i < x.fine.size(); ++i) {
    float left[kPanelRows];
    const QuantizedRows tile = x.quantized.Tile(x.rows + static_cast<int64_t>(i), w.blocks);
    PanelTimesTile<F>(w.panel(p), w.blocks, tile, 1, {left, kPanelRows});
    for (int64_t o = 0; o < outputs; ++o) y[x.fine[i] * y_stride + o] += left[o];
  }
}

template <class F>
void Panels(const Weights::Impl& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
            int64_t y_stride) {
  // As many activations at a time as stay in the second-level cache while panels pass by.
  const int64_t chunk = std::max<int64_t>(8, (int64_t{1} << 18) / x.cols / 8 * 8);
  for (int64_t first = 0; first < x.rows; first += chunk) {
    const int64_t stop = std::min(first + chunk, x.rows);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t outputs = std::min<int64_t>(kPanelRows, w.view.rows - p * kPanelRows);
      for (int64_t row = first; row < stop;) {
        const int n = TileRows(x.rows - row);
        const QuantizedRows tile = x.quantized.Tile(row, w.blocks);
        float* to = y + row * y_stride + p * kPanelRows;
        if (outputs == kPanelRows) {
          PanelTimesTile<F>(w.panel(p), w.blocks, tile, n, {to, y_stride});
        } else {
          float whole[8 * kPanelRows];
          PanelTimesTile<F>(w.panel(p), w.blocks, tile, n, {whole, kPanelRows});
          for (int r = 0; r < n; ++r) std::copy_n(whole + r * kPanelRows, outputs, to + r * y_stride);
        }
        row += n;
      }
      if (stop == x.rows) AddLeft<F>(w, x, p, outputs, y + p * kPanelRows, y_stride);
    }
  }
}

void MatMulPanelsT(const Weights::Impl& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                   int64_t y_stride) {
  auto run = [&](auto form) {
    using F = decltype(form);
    if (w.form != F::kForm) return false;
    Panels<F>(w, x, begin, end, y, y_stride);
    return true;
  };
  const bool found = run(Form<4, 32, 8, false, false>()) ||    // Q4_0
                     run(Form<4, 32, 0, true, false>()) ||     // Q4_1
                     run(Form<4, 32, 0, true, true>()) ||      // Q4_K
                     run(Form<5, 32, 16, false, false>()) ||   // Q5_0
                     run(Form<5, 32, 0, true, false>()) ||     // Q5_1
                     run(Form<5, 32, 0, true, true>()) ||      // Q5_K
                     run(Form<8, 32, 128, false, false>()) ||  // Q8_0
                     run(Form<6, 16, 32, false, true>()) ||    // Q6_K
                     run(Form<4, 16, 4, false, true>()) ||     // Q3_K
                     run(Form<4, 16, 0, true, true>());        // Q2_K
  BALLAST_CHECK(found);
}

// NOLINTEND(misc-definitions-in-headers)
