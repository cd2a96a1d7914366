#include "kernels/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen partial sums whatever the vector width would cost the narrow targets nothing, but four vectors hide
// the latency of the addition on the wide ones; the order is fixed per instruction set.
float Dot(const float* x, const float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, x + i + 2 * lanes), hn::LoadU(d, y + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, x + i + 3 * lanes), hn::LoadU(d, y + i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// out[i] = (x[i] * scale) * weight[i]
void ScaleMul(const float* x, const float* weight, int64_t n, float scale, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vscale = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), vscale), hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  float mean = Dot(x, x, n) / static_cast<float>(n);
  float scale = 1.0f / std::sqrt(mean + eps);
  if (!(mean <= std::numeric_limits<float>::max())) {  // the squares overflow: sum them in double
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
    scale = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + eps));
  }
  ScaleMul(x, weight, n, scale, out);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V z) {
  // exp(88) is the last whole power below float's overflow; silu(-88) is 0 to float already.
  z = hn::Max(z, hn::Set(d, -88.0f));
  const V e = hn::Exp(d, hn::Neg(z));
  return hn::Div(z, hn::Add(hn::Set(d, 1.0f), e));
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(Silu(d, hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, out + i);
  }
  if (i < n) {
    HWY_ALIGN float buffer[2][HWY_MAX_BYTES / sizeof(float)] = {};
    std::copy(gate + i, gate + n, buffer[0]);
    std::copy(up + i, up + n, buffer[1]);
    hn::Store(hn::Mul(Silu(d, hn::Load(d, buffer[0])), hn::Load(d, buffer[1])), d, buffer[0]);
    std::copy(buffer[0], buffer[0] + (n - i), out + i);
  }
}

void AddInPlace(float* x, const float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  }
  for (; i < n; ++i) x[i] += y[i];
}

float MaxValue(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto vmax = hn::Set(d, x[0]);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) vmax = hn::Max(vmax, hn::LoadU(d, x + i));
  float best = hn::GetLane(hn::MaxOfLanes(d, vmax));
  for (; i < n; ++i) best = std::max(best, x[i]);
  return best;
}

float LogSumExp(const float* x, int64_t n) {
  const float max = MaxValue(x, n);
  if (std::isinf(max)) return max;  // all -inf, or a +inf that dominates
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vmax = hn::Set(d, max);
  const auto floor = hn::Set(d, -200.0f);  // keeps -inf inside Exp's integer range; exp(-200) is 0
  // A vocabulary has 2^18 entries: float lanes summed over short runs, the runs in double.
  constexpr int64_t kRun = 4096;
  double sum = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    auto part = hn::Zero(d);
    const int64_t end = std::min(n, i + kRun);
    for (; i + lanes <= end; i += lanes) {
      part = hn::Add(part, hn::Exp(d, hn::Max(hn::Sub(hn::LoadU(d, x + i), vmax), floor)));
    }
    sum += hn::GetLane(hn::SumOfLanes(d, part));
  }
  for (; i < n; ++i) sum += std::exp(x[i] - max);
  return static_cast<float>(max + std::log(sum));
}

int64_t ArgMax(const float* x, int64_t n) {
  const float best = MaxValue(x, n);
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vbest = hn::Set(d, best);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), vbest));
    if (at >= 0) return i + at;
  }
  for (; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(RmsNorm);
HWY_EXPORT(SiluMul);
HWY_EXPORT(AddInPlace);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(ArgMax);
HWY_EXPORT(Dot);

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, n, eps, out);
}
void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMul)(gate, up, n, out);
}
void AddInPlace(float* x, const float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(AddInPlace)(x, y, n); }
float LogSumExp(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LogSumExp)(x, n); }
int64_t ArgMax(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(ArgMax)(x, n); }
float Dot(const float* x, const float* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(Dot)(x, y, n); }

}  // namespace ballast
#endif  // HWY_ONCE
