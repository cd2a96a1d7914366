// Integer panels times int8 activations (matmul_int-inl.h), once per instruction set (Highway). Layouts and
// the arithmetic are in matmul_impl.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/status.h"
#include "kernels/isa.h"
#include "kernels/matmul_impl.h"
#include "tensor/dequant.h"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_int.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#undef BALLAST_BYTE_DOT_NAMESPACE
#undef BALLAST_BYTE_DOT_INCLUDE
#define BALLAST_BYTE_DOT_NAMESPACE ballast
#define BALLAST_BYTE_DOT_INCLUDE "kernels/matmul_int-inl.h"
#include "kernels/foreach_byte_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

// Rounds 16 values times `inverse` to nearest, ties to even; returns the sum of the codes.
template <class D>
HWY_INLINE int32_t QuantizeHalf(D df, const float* from, hn::Vec<D> inverse, int8_t* codes) {
  const hn::RebindToSigned<D> di;
  const size_t lanes = hn::Lanes(df);
  auto sum = hn::Zero(di);
  for (size_t i = 0; i < 16; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(df, from + i), inverse);
#if BALLAST_VECTOR_DOT
    const auto code = hn::NearestInt(scaled);
    const hn::Rebind<int8_t, D> d8;
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
#else
    HWY_ALIGN int32_t rounded[hn::MaxLanes(df)];
    HWY_ALIGN float values[hn::MaxLanes(df)];
    hn::Store(scaled, df, values);
    for (size_t k = 0; k < lanes; ++k) {
      rounded[k] = static_cast<int32_t>(std::nearbyint(values[k]));
      codes[i + k] = static_cast<int8_t>(rounded[k]);
    }
    const auto code = hn::Load(di, rounded);
#endif
    sum = hn::Add(sum, code);
  }
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

// The same on every instruction set. A block below 1e-35 is taken as zero: its scale
// would have no inverse.
void QuantizeTileT(const float* x, int n, int64_t blocks, const QuantizedRows& out) {
  const hn::CappedTag<float, 16> df;
  const size_t lanes = hn::Lanes(df);
  for (int r = 0; r < n; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const float* from = x + (r * blocks + b) * kBlockCols;
      auto largest = hn::Zero(df);
      for (size_t i = 0; i < kBlockCols; i += lanes) {
        largest = hn::Max(largest, hn::Abs(hn::LoadU(df, from + i)));
      }
      const float most = hn::GetLane(hn::MaxOfLanes(df, largest));
      const bool tiny = !(most >= 1e-35f);
      const auto inverse = hn::Set(df, tiny ? 0.0f : 127.0f / most);
      const int64_t at = b * n + r;
      int8_t* codes = out.codes + at * kBlockCols;
      const int32_t sums[2] = {QuantizeHalf(df, from, inverse, codes),
                               QuantizeHalf(df, from + 16, inverse, codes + 16)};
      out.scale[at] = tiny ? 0.0f : most / 127.0f;
      out.sum[at] = static_cast<float>(sums[0] + sums[1]);
      out.negated[at] = -(sums[0] + sums[1]);
      for (int s = 0; s < 2; ++s) {
        out.sums[(b * 2 + s) * n + r] = static_cast<float>(sums[s]);
        out.negateds[(b * 2 + s) * n + r] = -sums[s];
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(MatMulPanelsT);
HWY_EXPORT(RunByteDotsT);
HWY_EXPORT(QuantizeTileT);

void MatMulPanels(const Weights::Impl& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                  int64_t y_stride) {
  BALLAST_BYTE_DOT_DISPATCH(MatMulPanelsT, w, x, begin, end, y, y_stride);
}

ByteDots RunByteDots(int32_t seed, int64_t rounds) {
  return BALLAST_BYTE_DOT_DISPATCH(RunByteDotsT, seed, rounds);
}

void QuantizeTile(const float* x, int n, int64_t blocks, const QuantizedRows& out) {
  HWY_DYNAMIC_DISPATCH(QuantizeTileT)(x, n, blocks, out);
}

}  // namespace ballast
#endif
