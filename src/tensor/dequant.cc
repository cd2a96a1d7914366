#include "tensor/dequant.h"

#include <bit>
#include <cstring>

#include "base/status.h"
#include "tensor/block_codes.h"

namespace ballast {
namespace {

// Chunks of 16: every sub-block is one or two, and a constant count vectorises well.
void DequantizeBlocks(DType type, const uint8_t* src, int64_t n, float* out) {
  const DTypeInfo info = Info(type);
  const int per_scale = CodesOf(type).sub / 16;
  BlockCodes codes;
  for (; n > 0; n -= info.block_elements, src += info.block_bytes) {
    UnpackBlock(type, src, codes);
    for (int chunk = 0; chunk < info.block_elements / 16; ++chunk, out += 16) {
      const float scale = codes.scale[chunk / per_scale], offset = codes.offset[chunk / per_scale];
      const int8_t* code = codes.code + chunk * 16;
      for (int i = 0; i < 16; ++i) out[i] = scale * static_cast<float>(code[i]) + offset;
    }
  }
}

template <float (*kConvert)(uint16_t)>
void Widen(const uint8_t* src, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + 2 * i, sizeof(bits));
    out[i] = kConvert(bits);
  }
}

}  // namespace

void Dequantize(DType type, const void* src, int64_t n, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(src);
  BALLAST_CHECK(n >= 0 && n % Info(type).block_elements == 0);
  if (n == 0) return;
  switch (type) {
    case DType::kF32:
      std::memcpy(out, bytes, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return Widen<F16ToF32>(bytes, n, out);
    case DType::kBF16:
      return Widen<BF16ToF32>(bytes, n, out);
    default:
      return DequantizeBlocks(type, bytes, n, out);
  }
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));  // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);   // rounds to 65536 or more
  if (magnitude <
      0x38800000u) {  // below 2^-14: adding 0.5 leaves the subnormal's bits, rounded to even, at the end
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);  // ties to even
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // keep NaN a NaN
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace ballast
