#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/status.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pairs (2i, 2i + 1). x and out: (2 * half); cos and sin: (half).
void RotateInterleaved(const float* cos, const float* sin, const float* x, int64_t half, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    hn::Vec<decltype(d)> a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    const auto ra = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const auto rb = hn::MulAdd(a, s, hn::Mul(b, c));
    hn::StoreInterleaved2(ra, rb, d, out + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    out[2 * i] = a * cos[i] - b * sin[i];
    out[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

// Pairs (i, i + half). x and out: (2 * half); cos and sin: (half).
void RotateHalfSplit(const float* cos, const float* sin, const float* x, int64_t half, float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, out + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, out + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    out[i] = a * cos[i] - b * sin[i];
    out[half + i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(RotateInterleaved);
HWY_EXPORT(RotateHalfSplit);

namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// YaRN (arXiv 2309.00071), "NTK-by-parts": the rotary pair whose wavelength makes `turns` full turns over the
// trained length.
double YarnPair(double turns, int dims, double base, double context) {
  return dims * std::log(context / (turns * kTwoPi)) / (2 * std::log(base));
}

void ScaleYarn(const RopeScaling& s, int dims, double base, std::vector<double>& freq) {
  const double low = std::max(0.0, std::floor(YarnPair(s.beta_fast, dims, base, s.original_context)));
  const double high = std::min(dims - 1.0, std::ceil(YarnPair(s.beta_slow, dims, base, s.original_context)));
  const double width = std::max(0.001, high - low);
  for (size_t i = 0; i < freq.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    freq[i] *= slow / s.factor + (1 - slow);  // fast pairs keep their frequency, slow ones are stretched
  }
}

// Llama 3.1: wavelengths longer than the trained length / low_freq_factor are stretched, those shorter than
// the trained length / high_freq_factor are kept, and the rest is blended.
void ScaleLlama3(const RopeScaling& s, std::vector<double>& freq) {
  for (double& f : freq) {
    const double turns = s.original_context * f / kTwoPi;  // over the trained length
    const double width = std::max(1e-9, s.high_freq_factor - s.low_freq_factor);
    const double keep = std::clamp((turns - s.low_freq_factor) / width, 0.0, 1.0);
    f *= (1 - keep) / s.factor + keep;
  }
}

}  // namespace

RopeTable RopeTable::Make(int dims, double base, RopeForm form, const RopeScaling& scaling,
                          const std::vector<float>& factors) {
  BALLAST_CHECK(dims >= 0 && dims % 2 == 0);
  BALLAST_CHECK(factors.empty() || factors.size() == static_cast<size_t>(dims / 2));
  RopeTable table;
  table.dims = dims;
  table.form = form;
  table.inv_freq.resize(dims / 2);
  for (int i = 0; i < dims / 2; ++i) {
    table.inv_freq[i] = std::pow(base, -2.0 * i / dims);
    if (!factors.empty()) table.inv_freq[i] /= factors[i];
  }
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      break;
    case RopeScaling::Kind::kLinear:
      for (double& f : table.inv_freq) f /= scaling.factor;
      break;
    case RopeScaling::Kind::kLlama3:
      ScaleLlama3(scaling, table.inv_freq);
      break;
    case RopeScaling::Kind::kYarn:
      ScaleYarn(scaling, dims, base, table.inv_freq);
      table.magnitude = static_cast<float>(
          scaling.attention_factor != 0 ? scaling.attention_factor
                                        : (scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1.0));
      break;
  }
  return table;
}

void RopeTable::Angles(int64_t position, float* cos_out, float* sin_out) const {
  // 1 / (2 pi) as the unevaluated sum of two doubles: position * inv_freq / (2 pi) is carried with about 106
  // bits (products split by fma), so that its fraction of a turn is good to double at any position to 2^53.
  constexpr double kInvTwoPiHi = 0.15915494309189535;
  constexpr double kInvTwoPiLo = -9.839338337591243e-18;
  const double p = static_cast<double>(position);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double f = inv_freq[i];
    const double turn_hi = f * kInvTwoPiHi;  // turns per position: turn_hi + turn_lo
    const double turn_lo = std::fma(f, kInvTwoPiHi, -turn_hi) + f * kInvTwoPiLo;
    const double hi = p * turn_hi;
    const double lo = std::fma(p, turn_hi, -hi) + p * turn_lo;
    double turns = (hi - std::nearbyint(hi)) + lo;
    turns -= std::nearbyint(turns);
    const double angle = kTwoPi * turns;
    cos_out[i] = static_cast<float>(std::cos(angle) * magnitude);
    sin_out[i] = static_cast<float>(std::sin(angle) * magnitude);
  }
}

void ApplyRope(const RopeTable& table, const float* cos, const float* sin, const float* in, int64_t heads,
               int head_dim, float* out) {
  const auto rotate = table.form == RopeForm::kInterleaved ? HWY_DYNAMIC_DISPATCH(RotateInterleaved)
                                                           : HWY_DYNAMIC_DISPATCH(RotateHalfSplit);
  const int64_t rest = head_dim - table.dims;
  for (int64_t h = 0; h < heads; ++h) {
    const float* x = in + h * head_dim;
    float* y = out + h * head_dim;
    rotate(cos, sin, x, table.dims / 2, y);
    if (rest > 0 && y != x) std::memcpy(y + table.dims, x + table.dims, rest * sizeof(float));
  }
}

}  // namespace ballast
#endif  // HWY_ONCE
