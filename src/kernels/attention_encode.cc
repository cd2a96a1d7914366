// EncodeKvRows: floats to cached rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "kernels/attention.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_encode.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// IEEE binary32 to binary16 bits, round to nearest even, in integer arithmetic so that every instruction set
// agrees. Beyond the largest binary16 (65504) saturates: an infinite key would turn every score into NaN.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, DF>> ToF16Bits(DF df, V x) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> du16;
  const V abs = hn::Min(hn::Abs(x), hn::Set(df, 65504.0f));
  const auto bits = hn::BitCast(du, abs);
  const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du, x)), hn::Set(du, 0x8000u));
  // Normal: rebias the exponent by 127 - 15, round the 13 dropped bits half to even.
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1u));
  const auto normal =
      hn::ShiftRight<13>(hn::Sub(hn::Add(bits, hn::Add(odd, hn::Set(du, 0xfffu))), hn::Set(du, 0x38000000u)));
  // Subnormal: one ulp of 0.5 is 2^-24, the step of binary16 subnormals, so adding 0.5 rounds to it.
  const auto half = hn::Set(df, 0.5f);
  const auto tiny = hn::Sub(hn::BitCast(du, hn::Add(abs, half)), hn::BitCast(du, half));
  const auto is_tiny = hn::Lt(abs, hn::Set(df, 6.103515625e-5f));  // 2^-14
  const auto f16 = hn::IfThenElse(hn::RebindMask(du, is_tiny), tiny, normal);
  return hn::DemoteTo(du16, hn::BitCast(di, hn::Or(f16, sign)));
}

void EncodeF16(const float* x, int64_t n, uint16_t* out) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> du16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(ToF16Bits(d, hn::LoadU(d, x + i)), du16, out + i);
  if (i < n) {
    HWY_ALIGN float in[HWY_MAX_BYTES / sizeof(float)] = {};
    HWY_ALIGN uint16_t bits[HWY_MAX_BYTES / sizeof(float)];
    std::copy(x + i, x + n, in);
    hn::Store(ToF16Bits(d, hn::Load(d, in)), du16, bits);
    std::copy(bits, bits + (n - i), out + i);
  }
}

// One row: head_dim is a multiple of 8, so eight lanes at most leave no rest.
float EncodeQ8(const float* x, int64_t n, int8_t* out) {
  const HWY_CAPPED(float, 8) d;
  const hn::Rebind<int8_t, decltype(d)> di8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto vmax = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) vmax = hn::Max(vmax, hn::Abs(hn::LoadU(d, x + i)));
  const float max = hn::GetLane(hn::MaxOfLanes(d, vmax));
  if (!(max > 1e-30f)) {  // 127 / max would overflow; such a row is zero for every purpose
    std::memset(out, 0, static_cast<size_t>(n));
    return 0;
  }
  const auto inverse = hn::Set(d, 127.0f / max);
  for (int64_t i = 0; i < n; i += lanes) {
    hn::StoreU(hn::DemoteTo(di8, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse))), di8, out + i);
  }
  return max / 127.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(EncodeF16);
HWY_EXPORT(EncodeQ8);

void EncodeKvRows(KvType type, const float* x, int64_t rows, int head_dim, uint8_t* data, float* scale) {
  const int64_t n = rows * head_dim;
  switch (type) {
    case KvType::kF32:
      std::memcpy(data, x, static_cast<size_t>(n) * sizeof(float));
      break;
    case KvType::kF16:
      HWY_DYNAMIC_DISPATCH(EncodeF16)(x, n, reinterpret_cast<uint16_t*>(data));
      break;
    case KvType::kQ8:
      for (int64_t r = 0; r < rows; ++r) {
        scale[r] = HWY_DYNAMIC_DISPATCH(EncodeQ8)(x + r * head_dim, head_dim,
                                                  reinterpret_cast<int8_t*>(data) + r * head_dim);
      }
      break;
  }
}

void EncodeKvRow(const KvBuffer& to, int head, int64_t row, const float* x) {
  if (to.type == KvType::kF32) return to.Put(head, row, x, 0);
  BALLAST_CHECK(to.head_dim <= kKvMaxHeadDim);
  alignas(64) uint8_t bytes[kKvMaxHeadDim * sizeof(uint16_t)];
  float scale = 0;
  EncodeKvRows(to.type, x, 1, to.head_dim, bytes, &scale);
  to.Put(head, row, bytes, scale);
}

}  // namespace ballast
#endif  // HWY_ONCE
