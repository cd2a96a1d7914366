// Quantised blocks taken apart: integer codes with a scale and an offset per sub-block.
//
// Purpose: the one place that knows the bit layout of every block format; Dequantize and the packing of
// weights for integer kernels both build on it. Source of the layouts: the GGUF specification (facts of the
// file format). Thread safety: pure functions. Invariant: element i of the block is scale[i / sub] * code[i]
// + offset[i / sub], with sub = CodesOf(type).sub.
#ifndef BALLAST_TENSOR_BLOCK_CODES_H_
#define BALLAST_TENSOR_BLOCK_CODES_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace ballast {

struct CodeInfo {
  int sub;          // elements that share a scale: 16 or 32
  int min_code;     // smallest code, <= 0
  int max_code;     // largest code
  bool has_offset;  // false: every offset is 0
};

// False for F32, F16 and BF16, which have no codes.
constexpr bool IsQuantized(DType type) { return Info(type).block_elements > 1; }

// REQUIRES: IsQuantized(type).
constexpr CodeInfo CodesOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {32, -8, 7, false};
    case DType::kQ4_1:
    case DType::kQ4_K:
      return {32, 0, 15, true};
    case DType::kQ5_0:
      return {32, -16, 15, false};
    case DType::kQ5_1:
    case DType::kQ5_K:
      return {32, 0, 31, true};
    case DType::kQ2_K:
      return {16, 0, 3, true};
    case DType::kQ3_K:
      return {16, -4, 3, false};
    case DType::kQ6_K:
      return {16, -32, 31, false};
    default:
      return {32, -128, 127, false};  // Q8_0
  }
}

struct BlockCodes {
  alignas(64) int8_t code[256];  // (block element)
  float scale[16];               // (block element / sub)
  float offset[16];              // (block element / sub)
};

// Takes the block at `src` (Info(type).block_bytes, any alignment) apart. REQUIRES: IsQuantized(type).
void UnpackBlock(DType type, const uint8_t* src, BlockCodes& out);

}  // namespace ballast

#endif  // BALLAST_TENSOR_BLOCK_CODES_H_
