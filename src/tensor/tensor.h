// Non-owning views of stored weights.
#ifndef BALLAST_TENSOR_TENSOR_H_
#define BALLAST_TENSOR_TENSOR_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace ballast {

// A weight matrix as stored: `rows` outputs, each of `cols` contiguous inputs. (rows, cols), row-major
// blocks.
struct MatrixView {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* data = nullptr;

  int64_t row_bytes() const { return RowBytes(dtype, cols); }
  const uint8_t* row(int64_t r) const { return data + r * row_bytes(); }
};

}  // namespace ballast

#endif  // BALLAST_TENSOR_TENSOR_H_
