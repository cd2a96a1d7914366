#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "kernels/matmul_impl.h"

namespace ballast {
namespace {

// Items per piece: about four pieces per thread, so that a slow core costs little, yet no piece so small that
// handing it out costs more than doing it. Pieces never change results.
int64_t Grain(int64_t items, int64_t work_per_item, const ThreadPool& pool) {
  constexpr int64_t kLeastWork = 1 << 16;  // multiply-adds: some microseconds
  const int64_t even = CeilDiv(items, int64_t{4} * pool.threads());
  return std::max<int64_t>({1, even, CeilDiv(kLeastWork, std::max<int64_t>(work_per_item, 1))});
}

}  // namespace

Weights::Weights() : impl_(std::make_unique<Impl>()) {}
Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

Weights Weights::Pack(const MatrixView& m, Compute mode, ThreadPool& pool) {
  BALLAST_CHECK(m.cols % Info(m.dtype).block_elements == 0);
  Weights w;
  w.impl_->mode = mode;
  w.impl_->view = m;
  if (mode == Compute::kF32) return w;
  if (IsQuantized(m.dtype)) {
    PackPanels(m, *w.impl_, pool);
    return w;
  }
  const int64_t bytes = m.rows * m.row_bytes();
  w.impl_->bytes = AllocateWeights(bytes);
  if (bytes > 0) std::memcpy(w.impl_->bytes.get(), m.data, static_cast<size_t>(bytes));
  w.impl_->view.data = w.impl_->bytes.get();
  return w;
}

int64_t Weights::rows() const { return impl_->view.rows; }
int64_t Weights::cols() const { return impl_->view.cols; }
int64_t Weights::bytes() const {
  if (!impl_->panels) return rows() * impl_->view.row_bytes();
  return CeilDiv(rows(), kPanelRows) * impl_->panel_bytes;
}

Activations::Activations() : impl_(std::make_unique<Impl>()) {}
Activations::~Activations() = default;
Activations::Activations(Activations&&) noexcept = default;
Activations& Activations::operator=(Activations&&) noexcept = default;

namespace {

// Lays the arrays of QuantizedRows out in one buffer of `n` blocks of rows.
void Reserve(Activations::Impl& a, int64_t n) {
  if (n > a.capacity) {
    const int64_t room = RoundUp(n, 16);  // keeps each array on a cache line
    a.bytes = AlignedBytes(room * (kBlockCols + 4 * (1 + 1 + 1 + 2 + 2)));
    a.capacity = room;
    uint8_t* p = a.bytes.get();
    auto take = [&p, room](int64_t bytes) { return std::exchange(p, p + room * bytes); };
    a.quantized.codes = reinterpret_cast<int8_t*>(take(kBlockCols));
    a.quantized.scale = reinterpret_cast<float*>(take(4));
    a.quantized.sum = reinterpret_cast<float*>(take(4));
    a.quantized.negated = reinterpret_cast<int32_t*>(take(4));
    a.quantized.sums = reinterpret_cast<float*>(take(8));
    a.quantized.negateds = reinterpret_cast<int32_t*>(take(8));
  }
}

}  // namespace

void Activations::Set(const float* x, int64_t rows, int64_t cols, Compute mode, ThreadPool& pool) {
  Impl& a = *impl_;
  a.mode = mode;
  a.x = x;
  a.rows = rows;
  a.cols = cols;
  // No quantised type has rows that are not whole blocks: then only float weights can follow.
  a.blocks = mode == Compute::kFast && cols % kBlockCols == 0 ? cols / kBlockCols : 0;
  if (a.blocks == 0 || rows == 0) return;
  Reserve(a, rows * a.blocks);
  // Pieces are tiles of 8; the last holds the smaller ones.
  pool.For(CeilDiv(rows, 8), Grain(CeilDiv(rows, 8), 8 * cols, pool), [&a](int64_t begin, int64_t end, int) {
    const int64_t stop = std::min(end * 8, a.rows);
    for (int64_t row = begin * 8; row < stop;) {
      const int n = TileRows(a.rows - row);
      QuantizeTile(a.x + row * a.cols, n, a.blocks, a.quantized.Tile(row, a.blocks));
      row += n;
    }
  });
}

void MatMul(const Weights& weights, const Activations& activations, float* y, int64_t y_stride,
            ThreadPool& pool) {
  const Weights::Impl& w = weights.impl();
  const Activations::Impl& x = activations.impl();
  BALLAST_CHECK(w.mode == x.mode && w.view.cols == x.cols);
  if (x.rows == 0 || w.view.rows == 0) return;
  if (w.panels) {
    const int64_t panels = CeilDiv(w.view.rows, kPanelRows);
    pool.For(panels, Grain(panels, kPanelRows * x.cols * x.rows, pool),
             [&](int64_t begin, int64_t end, int) { MatMulPanels(w, x, begin, end, y, y_stride); });
  } else {
    const int64_t quads = CeilDiv(w.view.rows, 4);
    pool.For(quads, Grain(quads, 4 * x.cols * x.rows, pool), [&](int64_t begin, int64_t end, int) {
      MatMulRows(w.view, x, begin * 4, std::min(end * 4, w.view.rows), y, y_stride);
    });
  }
}

}  // namespace ballast
