// Matrix products of activations with stored weights: y = x W^T.
//
// Purpose: one entry for decode (one row), batches (few rows) and prefill (many rows).
// Two modes. kF32: the reference; weight rows are dequantised on the fly and multiplied in float; weights
// stay where they are (mmap). kFast: weights are repacked once at load into panels for integer dot products,
// and activations are quantised to int8 per block of 32 columns, with float accumulation across blocks.
// Thread safety: Weights are const after Pack; Activations belong to one caller.
// Invariants: 1. A row's result depends on that row, its fineness and the weights only: not on how many rows
// come with it nor on the thread count, bit for bit, in both modes. 2. Inputs hold no NaN; outputs are finite
// whenever the exact product is.
#ifndef BALLAST_KERNELS_MATMUL_H_
#define BALLAST_KERNELS_MATMUL_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/threads.h"
#include "kernels/ops.h"
#include "tensor/tensor.h"

namespace ballast {

enum class Compute : uint8_t { kF32, kFast };

// A weight matrix ready for MatMul.
class Weights {
 public:
  Weights();
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  // kF32 keeps `m`, whose bytes must outlive this, or belong to `owner`, which is then kept too. kFast copies
  // them into panels; the bytes of `m` are not needed afterwards. REQUIRES: m.cols is a multiple of m's block
  // size.
  static Weights Pack(const MatrixView& m, Compute mode, ThreadPool& pool,
                      std::shared_ptr<uint8_t> owner = nullptr);

  DType dtype() const;
  int64_t rows() const;
  int64_t cols() const;
  int64_t bytes() const;  // bytes read per pass over the matrix
  // Row r as floats. out: (cols). An embedding that is also the output matrix is read here, so that its bytes
  // in the file need not stay in memory.
  void Row(int64_t r, float* out) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Rows of activations, prepared once and used by several MatMuls (Q, K and V share theirs).
class Activations {
 public:
  Activations();
  ~Activations();
  Activations(Activations&&) noexcept;
  Activations& operator=(Activations&&) noexcept;
  // x: (rows, cols) floats, contiguous; must stay valid while this is used. kFast quantises here, to 8 bits
  // of the largest value of a block, and rows named in `fine` to 16. Buffers grow to the largest batch seen
  // and are reused. REQUIRES: `fine` are distinct and below `rows`.
  void Set(const float* x, int64_t rows, int64_t cols, Compute mode, ThreadPool& pool,
           std::span<const int64_t> fine = {});

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// y[r * y_stride + o] = sum_c x[r][c] * w[o][c].   y: (x rows, w.rows()), rows y_stride floats apart.
// REQUIRES: x was Set with the mode w was packed with, and x cols == w.cols().
void MatMul(const Weights& w, const Activations& x, float* y, int64_t y_stride, ThreadPool& pool);

// Several products of the same activations (Q, K and V), handed to the threads as one.
struct MatMulTarget {
  const Weights* w = nullptr;
  float* y = nullptr;  // (x rows, w->rows()), rows `stride` floats apart
  int64_t stride = 0;
};
void MatMulMany(std::span<const MatMulTarget> targets, const Activations& x, ThreadPool& pool);

// y = activation(x gate^T) * (x up^T), the first half of a gated MLP, as one. y: (x rows, gate.rows()),
// contiguous; `up_scratch`: the same shape. REQUIRES: gate and up have the same shape.
void MatMulGated(Activation activation, const Weights& gate, const Weights& up, const Activations& x,
                 float* y, float* up_scratch, ThreadPool& pool);

}  // namespace ballast

#endif  // BALLAST_KERNELS_MATMUL_H_
