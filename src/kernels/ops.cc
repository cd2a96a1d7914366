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

// tanh from one exponential of a number below zero: no overflow, and exact signs.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V TanhOf(D d, V z) {
  const V e = hn::Exp(d, hn::Max(hn::Mul(hn::Abs(z), hn::Set(d, -2.0f)), hn::Set(d, -88.0f)));
  const V one = hn::Set(d, 1.0f);
  return hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), z);
}

// erf: its Taylor series below 1, Abramowitz and Stegun 7.1.26 (error below 1.5e-7) above.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ErfOf(D d, V z) {
  const V a = hn::Abs(z), one = hn::Set(d, 1.0f), z2 = hn::Mul(z, z);
  // Taylor series to z^19 for |z| < 1: the last term is below 1e-8 there.
  V p = hn::Set(d, -1.0f / (19.0f * 362880.0f));
  p = hn::MulAdd(p, z2, hn::Set(d, 1.0f / (17.0f * 40320.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, -1.0f / (15.0f * 5040.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, 1.0f / (13.0f * 720.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, -1.0f / (11.0f * 120.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, 1.0f / (9.0f * 24.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, -1.0f / (7.0f * 6.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, 1.0f / (5.0f * 2.0f)));
  p = hn::MulAdd(p, z2, hn::Set(d, -1.0f / 3.0f));
  p = hn::MulAdd(p, z2, one);
  const V small = hn::Mul(hn::Mul(z, p), hn::Set(d, 1.12837916709551f));  // 2 / sqrt(pi)
  const V t = hn::Div(one, hn::MulAdd(a, hn::Set(d, 0.3275911f), one));
  V q = hn::Set(d, 1.061405429f);
  q = hn::MulAdd(q, t, hn::Set(d, -1.453152027f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.421413741f));
  q = hn::MulAdd(q, t, hn::Set(d, -0.284496736f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.254829592f));
  const V e = hn::Exp(d, hn::Max(hn::Neg(z2), hn::Set(d, -88.0f)));
  const V large = hn::CopySign(hn::NegMulAdd(hn::Mul(q, t), e, one), z);
  return hn::IfThenElse(hn::Lt(a, one), small, large);
}

template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE V Activated(D d, V z) {
  if constexpr (kActivation == Activation::kSilu) {
    return Silu(d, z);
  } else if constexpr (kActivation == Activation::kGelu) {
    const V phi = hn::Add(ErfOf(d, hn::Mul(z, hn::Set(d, 0.70710678f))), hn::Set(d, 1.0f));
    return hn::Mul(hn::Mul(z, hn::Set(d, 0.5f)), phi);
  } else {
    const V cubic = hn::MulAdd(hn::Mul(hn::Mul(z, z), z), hn::Set(d, 0.044715f), z);
    const V t = TanhOf(d, hn::Mul(cubic, hn::Set(d, 0.7978845608f)));
    return hn::Mul(hn::Mul(z, hn::Set(d, 0.5f)), hn::Add(t, hn::Set(d, 1.0f)));
  }
}

// out[i] = f(vector at i of x and y) over n values, the last ones through a padded buffer.
template <class F>
HWY_INLINE void MapPairs(const float* x, const float* y, int64_t n, float* out, const F& f) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i);
  if (i < n) {
    HWY_ALIGN float buffer[2][HWY_MAX_BYTES / sizeof(float)] = {};
    std::copy(x + i, x + n, buffer[0]);
    std::copy(y + i, y + n, buffer[1]);
    hn::Store(f(hn::Load(d, buffer[0]), hn::Load(d, buffer[1])), d, buffer[0]);
    std::copy(buffer[0], buffer[0] + (n - i), out + i);
  }
}

template <Activation kActivation>
void ActivateMulAs(const float* gate, const float* up, int64_t n, float* out) {
  const hn::ScalableTag<float> d;
  MapPairs(gate, up, n, out,
           [d](auto g, auto u) HWY_ATTR { return hn::Mul(Activated<kActivation>(d, g), u); });
}

template <Activation kActivation>
void ActivateAs(float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  MapPairs(x, x, n, x, [d](auto z, auto) HWY_ATTR { return Activated<kActivation>(d, z); });
}

void ActivateMul(Activation activation, const float* gate, const float* up, int64_t n, float* out) {
  switch (activation) {
    case Activation::kSilu:
      return ActivateMulAs<Activation::kSilu>(gate, up, n, out);
    case Activation::kGelu:
      return ActivateMulAs<Activation::kGelu>(gate, up, n, out);
    case Activation::kGeluTanh:
      return ActivateMulAs<Activation::kGeluTanh>(gate, up, n, out);
  }
}

void Activate(Activation activation, float* x, int64_t n) {
  switch (activation) {
    case Activation::kSilu:
      return ActivateAs<Activation::kSilu>(x, n);
    case Activation::kGelu:
      return ActivateAs<Activation::kGelu>(x, n);
    case Activation::kGeluTanh:
      return ActivateAs<Activation::kGeluTanh>(x, n);
  }
}

void SoftCap(float cap, float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto vcap = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  MapPairs(x, x, n, x, [&](auto z, auto) HWY_ATTR { return hn::Mul(TanhOf(d, hn::Mul(z, inverse)), vcap); });
}

void ScaleInPlace(float* x, int64_t n, float scale) {
  const hn::ScalableTag<float> d;
  const auto vscale = hn::Set(d, scale);
  MapPairs(x, x, n, x, [&](auto z, auto) HWY_ATTR { return hn::Mul(z, vscale); });
}

void LayerNorm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  const float mean = static_cast<float>(sum / static_cast<double>(n));
  const auto vmean = hn::Set(d, mean);
  auto squares = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto c = hn::Sub(hn::LoadU(d, x + i), vmean);
    squares = hn::MulAdd(c, c, squares);
  }
  float variance = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float scale = 1.0f / std::sqrt(variance / static_cast<float>(n) + eps);
  for (i = 0; i < n; ++i) {
    out[i] =
        (x[i] - mean) * scale * (weight == nullptr ? 1.0f : weight[i]) + (bias == nullptr ? 0.0f : bias[i]);
  }
}

// One stage of the transform on n values: pairs `stride` apart become sum and difference.
template <class D>
HWY_INLINE void MixStage(D d, float* x, int64_t n, int64_t stride) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += 2 * stride) {
    for (int64_t j = i; j < i + stride; j += lanes) {
      const auto a = hn::LoadU(d, x + j), b = hn::LoadU(d, x + j + stride);
      hn::StoreU(hn::Add(a, b), d, x + j);
      hn::StoreU(hn::Sub(a, b), d, x + j + stride);
    }
  }
}

void Mix(float* x, int64_t vectors, int64_t dim) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t block = dim & -dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (float* end = x + vectors * dim; x < end; x += block) {
    int64_t stride = block / 2;
    for (; stride >= lanes; stride /= 2) MixStage(d, x, block, stride);
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> four;
    for (; stride >= 4; stride /= 2) MixStage(four, x, block, stride);
    if (stride == 2) {  // the last two stages inside vectors of four
      HWY_ALIGN static constexpr float kSigns[2][4] = {{1, 1, -1, -1}, {1, -1, 1, -1}};
      const auto two = hn::Load(four, kSigns[0]), one = hn::Load(four, kSigns[1]);
      for (int64_t i = 0; i < block; i += 4) {
        auto v = hn::LoadU(four, x + i);
        v = hn::MulAdd(v, two, hn::Shuffle1032(v));
        v = hn::MulAdd(v, one, hn::Shuffle2301(v));
        hn::StoreU(v, four, x + i);
      }
      stride = 0;
    }
#endif
    for (; stride >= 1; stride /= 2) MixStage(hn::CappedTag<float, 1>(), x, block, stride);
    ScaleInPlace(x, block, scale);
  }
}

void AddInPlace(float* x, const float* y, int64_t n, float scale) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vscale = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, y + i), vscale, hn::LoadU(d, x + i)), d, x + i);
  }
  for (; i < n; ++i) x[i] += scale * y[i];
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
HWY_EXPORT(LayerNorm);
HWY_EXPORT(ActivateMul);
HWY_EXPORT(Activate);
HWY_EXPORT(SoftCap);
HWY_EXPORT(ScaleInPlace);
HWY_EXPORT(Mix);
HWY_EXPORT(AddInPlace);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(ArgMax);
HWY_EXPORT(Dot);

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, n, eps, out);
}
void LayerNorm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, n, eps, out);
}
void ActivateMul(Activation activation, const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ActivateMul)(activation, gate, up, n, out);
}
void Activate(Activation activation, float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Activate)(activation, x, n);
}
void SoftCap(float cap, float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(SoftCap)(cap, x, n); }
void Mix(float* x, int64_t vectors, int64_t dim) { HWY_DYNAMIC_DISPATCH(Mix)(x, vectors, dim); }
void ScaleInPlace(float* x, int64_t n, float scale) { HWY_DYNAMIC_DISPATCH(ScaleInPlace)(x, n, scale); }
void AddInPlace(float* x, const float* y, int64_t n, float scale) {
  HWY_DYNAMIC_DISPATCH(AddInPlace)(x, y, n, scale);
}
float LogSumExp(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LogSumExp)(x, n); }
int64_t ArgMax(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(ArgMax)(x, n); }
float Dot(const float* x, const float* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(Dot)(x, y, n); }

}  // namespace ballast
#endif  // HWY_ONCE
