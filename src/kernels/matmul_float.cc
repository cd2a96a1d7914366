// Weights as stored times float activations, once per instruction set (Highway): the reference product, and
// the product with weights that are floats already.
//
// Every (weight row, activation row) pair has one vector accumulator over the columns, summed across lanes in
// a fixed pattern, then a scalar tail: the same operations in the same order whatever the tile.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/matmul_impl.h"
#include "tensor/dequant.h"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_float.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;

// out[k] = sum of the lanes of v_k, each added in the same pattern.
HWY_INLINE void SumFour(VF v0, VF v1, VF v2, VF v3, float* out) {
  const DF d;
#if HWY_TARGET == HWY_SCALAR
  out[0] = hn::GetLane(v0);
  out[1] = hn::GetLane(v1);
  out[2] = hn::GetLane(v2);
  out[3] = hn::GetLane(v3);
  (void)d;
#else
  // Within each 128-bit block: lanes (0 + 2) + (1 + 3), left in lane k for v_k.
  const VF t0 = hn::Add(hn::InterleaveLower(d, v0, v2), hn::InterleaveUpper(d, v0, v2));
  const VF t1 = hn::Add(hn::InterleaveLower(d, v1, v3), hn::InterleaveUpper(d, v1, v3));
  const VF sums = hn::Add(hn::InterleaveLower(d, t0, t1), hn::InterleaveUpper(d, t0, t1));
  HWY_ALIGN float blocks[hn::MaxLanes(d)];
  hn::Store(sums, d, blocks);
  for (size_t k = 0; k < 4; ++k) {
    float sum = blocks[k];
    for (size_t i = 4; i < hn::Lanes(d); i += 4) sum += blocks[i + k];
    out[k] = sum;
  }
#endif
}

// sum + w * x, fused or not as the vector kernels of this target are.
HWY_INLINE float MulAddOne(float w, float x, float sum) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(hn::MulAdd(hn::Set(d1, w), hn::Set(d1, x), hn::Set(d1, sum)));
}

// How Tile reads weights: floats, or (decode) 16-bit floats widened on the way, exactly as RowToFloat would.
struct FromF32 {
  static HWY_INLINE VF Vector(const uint8_t* w, int64_t c) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(w) + c);
  }
  static HWY_INLINE float One(const uint8_t* w, int64_t c) { return reinterpret_cast<const float*>(w)[c]; }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // hardware f16
#define BALLAST_WIDEN 1
HWY_INLINE uint16_t HalfWord(const uint8_t* w, int64_t c) {
  uint16_t bits;
  std::memcpy(&bits, w + 2 * c, sizeof(bits));
  return bits;
}
struct FromF16 {
  static HWY_INLINE VF Vector(const uint8_t* w, int64_t c) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(w + 2 * c)));
  }
  static HWY_INLINE float One(const uint8_t* w, int64_t c) { return F16ToF32(HalfWord(w, c)); }
};
struct FromBF16 {
  static HWY_INLINE VF Vector(const uint8_t* w, int64_t c) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::RebindToUnsigned<DF> d32;
    const auto wide = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(w + 2 * c)));
    return hn::BitCast(DF(), hn::ShiftLeft<16>(wide));
  }
  static HWY_INLINE float One(const uint8_t* w, int64_t c) { return BF16ToF32(HalfWord(w, c)); }
};
#else
#define BALLAST_WIDEN 0
#endif

// NX rows of x times four weight rows; out is (NX, 4).
template <int NX, class From>
HWY_INLINE void Tile(const uint8_t* const* w, const float* x, int64_t cols, float* out) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF acc[NX][4];
  BALLAST_UNROLL
  for (int r = 0; r < NX; ++r) {
    BALLAST_UNROLL
    for (int k = 0; k < 4; ++k) acc[r][k] = hn::Zero(d);
  }
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    VF wv[4];
    BALLAST_UNROLL
    for (int k = 0; k < 4; ++k) wv[k] = From::Vector(w[k], c);
    if constexpr (!std::is_same_v<From, FromF32>) {
      // Decode reads four short rows side by side, which the hardware does not foresee: fetch the next four
      // as one stream, at the pace they are read.
      const uint8_t* ahead = w[0] + (w[1] - w[0]) * 4 + 8 * c;
      for (int64_t i = 0; i < 8 * lanes; i += 64) hwy::Prefetch(ahead + i);
    }
    BALLAST_UNROLL
    for (int r = 0; r < NX; ++r) {
      const VF xv = hn::LoadU(d, x + r * cols + c);
      BALLAST_UNROLL
      for (int k = 0; k < 4; ++k) acc[r][k] = hn::MulAdd(wv[k], xv, acc[r][k]);
    }
  }
  BALLAST_UNROLL
  for (int r = 0; r < NX; ++r) SumFour(acc[r][0], acc[r][1], acc[r][2], acc[r][3], out + r * 4);
  for (; c < cols; ++c) {
    for (int r = 0; r < NX; ++r) {
      for (int k = 0; k < 4; ++k)
        out[r * 4 + k] = MulAddOne(From::One(w[k], c), x[r * cols + c], out[r * 4 + k]);
    }
  }
}

template <int NX, class From = FromF32>
HWY_NOINLINE void TileInto(const uint8_t* const* w, int count, const float* x, int64_t cols, float* y,
                           int64_t y_stride) {
  float out[NX * 4];
  Tile<NX, From>(w, x, cols, out);
  for (int r = 0; r < NX; ++r) std::copy_n(out + r * 4, count, y + r * y_stride);
}

// One stored row to floats.
void RowToFloat(const MatrixView& w, int64_t row, float* out) {
  const uint8_t* src = w.row(row);
  int64_t c = 0;
#if BALLAST_WIDEN
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  if (w.dtype == DType::kF16) {
    for (; c + lanes <= w.cols; c += lanes) hn::StoreU(FromF16::Vector(src, c), DF(), out + c);
  } else if (w.dtype == DType::kBF16) {
    for (; c + lanes <= w.cols; c += lanes) hn::StoreU(FromBF16::Vector(src, c), DF(), out + c);
  }
#endif
  Dequantize(w.dtype, src + c * 2, w.cols - c, out + c);  // c is 0 but for 16-bit types
}

constexpr int kTile = hn::MaxLanes(DF()) == 16 ? 4 : 2;  // rows of x, by the number of registers
constexpr int64_t kMaxRows = 32;                         // weight rows per pass over x

// `count` (at most kMaxRows) weight rows, read as From says, times every row of x. rows: RoundUp(count, 4),
// the last repeated.
template <class From>
void Pass(const uint8_t* const* rows, int64_t count, const Activations::Impl& x, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < x.rows;) {
    const bool tile = std::is_same_v<From, FromF32> && x.rows - r >= kTile;
    for (int64_t k = 0; k < count; k += 4) {
      const int stored = static_cast<int>(std::min<int64_t>(4, count - k));
      float* to = y + r * y_stride + k;
      if (tile) {
        TileInto<kTile>(rows + k, stored, x.x + r * x.cols, x.cols, to, y_stride);
      } else {
        TileInto<1, From>(rows + k, stored, x.x + r * x.cols, x.cols, to, y_stride);
      }
    }
    r += tile ? kTile : 1;
  }
}

void MatMulRowsT(const MatrixView& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                 int64_t y_stride) {
  const int64_t pass = std::clamp<int64_t>((int64_t{1} << 16) / w.cols / 4 * 4, 4, kMaxRows);
  const bool aligned = reinterpret_cast<uintptr_t>(w.data) % alignof(float) == 0;
  const bool widen = BALLAST_WIDEN && x.rows < kTile && (w.dtype == DType::kF16 || w.dtype == DType::kBF16);
  const bool in_place = widen || (w.dtype == DType::kF32 && aligned);
  thread_local std::vector<float> scratch;  // (pass, cols): stays in the second-level cache
  const size_t need = in_place ? 0 : static_cast<size_t>(pass * w.cols);
  if (scratch.size() < need) scratch.resize(need);
  for (int64_t first = begin; first < end; first += pass) {
    const int64_t count = std::min(pass, end - first);
    const uint8_t* rows[kMaxRows];
    for (int64_t k = 0; k < RoundUp(count, 4); ++k) {
      if (k >= count) {
        rows[k] = rows[count - 1];  // computed again, not stored
      } else if (in_place) {
        rows[k] = w.row(first + k);
      } else {
        RowToFloat(w, first + k, scratch.data() + k * w.cols);
        rows[k] = reinterpret_cast<const uint8_t*>(scratch.data() + k * w.cols);
      }
    }
#if BALLAST_WIDEN
    if (widen && w.dtype == DType::kF16) {
      Pass<FromF16>(rows, count, x, y + first, y_stride);
      continue;
    }
    if (widen) {
      Pass<FromBF16>(rows, count, x, y + first, y_stride);
      continue;
    }
#endif
    Pass<FromF32>(rows, count, x, y + first, y_stride);
  }
}

#undef BALLAST_WIDEN

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(MatMulRowsT);

void MatMulRows(const MatrixView& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(MatMulRowsT)(w, x, begin, end, y, y_stride);
}

}  // namespace ballast
#endif
