// Floats to quantised blocks: what --weights does to models that come as floats.
//
// Thread safety: pure functions. Invariant: dequantising gives each value back within half a step of its
// block (see the functions); a block of zeros stays zeros.
#ifndef BALLAST_TENSOR_QUANTIZE_H_
#define BALLAST_TENSOR_QUANTIZE_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace ballast {

// True for the types that Quantize writes: Q8_0 and Q4_1.
constexpr bool CanQuantizeTo(DType type) { return type == DType::kQ8_0 || type == DType::kQ4_1; }

// Writes n floats as blocks of `type` to out: RowBytes(type, n) bytes. False when a value is not finite, or
// too large for the blocks' f16 scale. REQUIRES: CanQuantizeTo(type); n is a multiple of 32.
//   Q8_0: scale = max |x| / 127
//   Q4_1: 16 steps from the smallest to the largest value, then scale and offset fitted to them by least
//         squares where that comes closer
[[nodiscard]] bool Quantize(DType type, const float* x, int64_t n, uint8_t* out);

}  // namespace ballast

#endif  // BALLAST_TENSOR_QUANTIZE_H_
