#include "kernels/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logits.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Largest value, and whether every value is below +inf (NaN is not).
struct Extent {
  float largest;
  bool below_infinity;
};
Extent Measure(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kMax = std::numeric_limits<float>::max();
  const auto top = hn::Set(d, kMax);
  auto vmax = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto below = hn::Eq(vmax, vmax);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    below = hn::And(below, hn::Le(v, top));
    vmax = hn::Max(vmax, v);
  }
  bool ok = hn::AllTrue(d, below);
  float best = hn::GetLane(hn::MaxOfLanes(d, vmax));
  for (; i < n; ++i) {
    ok = ok && x[i] <= kMax;
    best = std::max(best, x[i]);
  }
  return {best, ok};
}

// With z = x - largest: the sums of exp(z), z exp(z), z and z^2 give everything. Short runs in float lanes,
// the runs in double, as in LogSumExp.
LogitStats DescribeLogits(const float* x, int64_t n) {
  LogitStats out;
  const Extent extent = Measure(x, n);
  if (!extent.below_infinity || std::isinf(extent.largest)) return out;
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vmax = hn::Set(d, extent.largest), one = hn::Set(d, 1.0f);
  const auto lowest = hn::Set(d, std::numeric_limits<float>::lowest()), floor = hn::Set(d, -200.0f);
  constexpr int64_t kRun = 2048;
  double weights = 0, weighted = 0, sum = 0, squares = 0, count = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    auto part_w = hn::Zero(d), part_wz = hn::Zero(d), part_z = hn::Zero(d), part_zz = hn::Zero(d),
         part_n = hn::Zero(d);
    const int64_t end = std::min(n, i + kRun);
    for (; i + lanes <= end; i += lanes) {
      const auto v = hn::LoadU(d, x + i);
      const auto present = hn::Ge(v, lowest);
      const auto z = hn::IfThenElseZero(present, hn::Sub(v, vmax));
      const auto w = hn::IfThenElseZero(present, hn::Exp(d, hn::Max(z, floor)));
      part_w = hn::Add(part_w, w);
      part_wz = hn::MulAdd(w, hn::Max(z, floor), part_wz);
      part_z = hn::Add(part_z, z);
      part_zz = hn::MulAdd(z, z, part_zz);
      part_n = hn::Add(part_n, hn::IfThenElseZero(present, one));
    }
    weights += hn::GetLane(hn::SumOfLanes(d, part_w));
    weighted += hn::GetLane(hn::SumOfLanes(d, part_wz));
    sum += hn::GetLane(hn::SumOfLanes(d, part_z));
    squares += hn::GetLane(hn::SumOfLanes(d, part_zz));
    count += hn::GetLane(hn::SumOfLanes(d, part_n));
  }
  for (; i < n; ++i) {
    if (!(x[i] >= std::numeric_limits<float>::lowest())) continue;
    const double z = static_cast<double>(x[i]) - static_cast<double>(extent.largest), w = std::exp(z);
    weights += w;
    weighted += w * std::max(z, -200.0);
    sum += z;
    squares += z * z;
    count += 1;
  }
  const double mean = sum / count;
  out.finite = true;
  out.largest = extent.largest;
  out.log_sum_exp = static_cast<float>(extent.largest + std::log(weights));
  out.entropy = static_cast<float>(std::max(0.0, std::log(weights) - weighted / weights));
  out.mean = static_cast<float>(extent.largest + mean);
  out.deviation = static_cast<float>(std::sqrt(std::max(0.0, squares / count - mean * mean)));
  return out;
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(DescribeLogits);

LogitStats DescribeLogits(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(DescribeLogits)(x, n); }

}  // namespace ballast
#endif  // HWY_ONCE
