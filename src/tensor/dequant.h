// Stored blocks to float: the plain definition of every weight type. Everything faster is tested against it.
#ifndef BALLAST_TENSOR_DEQUANT_H_
#define BALLAST_TENSOR_DEQUANT_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace ballast {

// Writes the `n` elements stored at `src` to out. `src` needs no alignment.
// REQUIRES: n is a multiple of Info(type).block_elements.
void Dequantize(DType type, const void* src, int64_t n, float* out);

// IEEE binary16 and bfloat16 to float and back (round to nearest even).
float F16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);
float BF16ToF32(uint16_t bits);
uint16_t F32ToBF16(float value);

}  // namespace ballast

#endif  // BALLAST_TENSOR_DEQUANT_H_
