// Stored blocks to float: the plain definition of every weight type. Everything faster is tested against it.
#ifndef BALLAST_TENSOR_DEQUANT_H_
#define BALLAST_TENSOR_DEQUANT_H_

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace ballast {

// Writes the `n` elements stored at `src` to out. `src` needs no alignment.
// REQUIRES: n is a multiple of Info(type).block_elements.
void Dequantize(DType type, const void* src, int64_t n, float* out);

// IEEE binary16 and bfloat16 to float and back (round to nearest even).
uint16_t F32ToF16(float value);
uint16_t F32ToBF16(float value);

// Both cases are computed and one masked in, without a branch, so that loops over this vectorise.
inline float F16ToF32(uint16_t bits) {
  const int32_t rest = bits & 0x7fff;                             // exponent (5 bits), mantissa (10 bits)
  const int32_t rebias = rest >= 0x7c00 ? 224 << 23 : 112 << 23;  // infinity and NaN keep all ones
  const int32_t normal = (rest << 13) + rebias;
  const int32_t small = std::bit_cast<int32_t>(static_cast<float>(rest) * 0x1p-24f);  // subnormals: exact
  const int32_t sign = (bits & 0x8000) << 16;
  const int32_t is_small = (rest - 0x400) >> 31;  // all ones, or none
  return std::bit_cast<float>(sign | (is_small & small) | (~is_small & normal));
}

inline float BF16ToF32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace ballast

#endif  // BALLAST_TENSOR_DEQUANT_H_
