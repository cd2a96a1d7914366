#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

constexpr int kBlock = 32;
constexpr float kMaxHalf = 65504;

void PutHalf(float value, uint8_t* out) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(out, &bits, sizeof(bits));
}
float Half(float value) { return F16ToF32(F32ToF16(value)); }

// f16 scale, 32 signed bytes.
bool BlockQ8(const float* x, uint8_t* out) {
  float most = 0;
  for (int i = 0; i < kBlock; ++i) most = std::max(most, std::fabs(x[i]));
  const float scale = Half(most / 127);
  if (!(scale < kMaxHalf)) return false;
  PutHalf(scale, out);
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < kBlock; ++i) {
    const float code = std::clamp(std::round(x[i] * inverse), -127.0f, 127.0f);
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(code));
  }
  return true;
}

// Codes of x on the grid offset + code * scale, and the squared distance to it.
float CodesQ4(const float* x, float scale, float offset, uint8_t* codes) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  float error = 0;
  for (int i = 0; i < kBlock; ++i) {
    const float code = std::clamp(std::round((x[i] - offset) * inverse), 0.0f, 15.0f);
    codes[i] = static_cast<uint8_t>(code);
    const float off = offset + scale * code - x[i];
    error += off * off;
  }
  return error;
}

// The line through (code, x) of least squares; false when the codes are all one.
bool FitLine(const float* x, const uint8_t* codes, float* scale, float* offset) {
  double c = 0, cc = 0, v = 0, cv = 0;
  for (int i = 0; i < kBlock; ++i) {
    const double code = codes[i];
    c += code;
    cc += code * code;
    v += x[i];
    cv += code * x[i];
  }
  const double spread = kBlock * cc - c * c;
  if (spread <= 0) return false;
  *scale = static_cast<float>((kBlock * cv - c * v) / spread);
  *offset = static_cast<float>((v - *scale * c) / kBlock);
  return *scale > 0;
}

// f16 scale, f16 offset, then nibbles: elements 0..15 low, 16..31 high.
bool BlockQ4(const float* x, uint8_t* out) {
  const auto [low, high] = std::minmax_element(x, x + kBlock);
  float scale = Half((*high - *low) / 15), offset = Half(*low);
  if (!(scale < kMaxHalf) || !(std::fabs(offset) < kMaxHalf)) return false;
  uint8_t codes[kBlock];
  float error = CodesQ4(x, scale, offset, codes);
  float fitted_scale = 0, fitted_offset = 0;
  if (FitLine(x, codes, &fitted_scale, &fitted_offset)) {
    fitted_scale = Half(fitted_scale);
    fitted_offset = Half(fitted_offset);
    uint8_t fitted[kBlock];
    if (CodesQ4(x, fitted_scale, fitted_offset, fitted) < error) {
      scale = fitted_scale;
      offset = fitted_offset;
      std::copy_n(fitted, kBlock, codes);
    }
  }
  PutHalf(scale, out);
  PutHalf(offset, out + 2);
  for (int i = 0; i < 16; ++i) out[4 + i] = static_cast<uint8_t>(codes[i] | codes[i + 16] << 4);
  return true;
}

}  // namespace

bool Quantize(DType type, const float* x, int64_t n, uint8_t* out) {
  BALLAST_CHECK(CanQuantizeTo(type) && n % kBlock == 0);
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  for (int64_t b = 0; b < n / kBlock; ++b) {
    const bool good = type == DType::kQ8_0 ? BlockQ8(x + b * kBlock, out) : BlockQ4(x + b * kBlock, out);
    if (!good) return false;
    out += Info(type).block_bytes;
  }
  return true;
}

}  // namespace ballast
