#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "kernels/matmul_impl.h"
#include "kernels/ops.h"
#include "tensor/dequant.h"

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

Weights Weights::Pack(const MatrixView& m, Compute mode, ThreadPool& pool, std::shared_ptr<uint8_t> owner) {
  BALLAST_CHECK(m.cols % Info(m.dtype).block_elements == 0);
  Weights w;
  w.impl_->mode = mode;
  w.impl_->view = m;
  if (mode == Compute::kF32) {
    w.impl_->bytes = std::move(owner);
    return w;
  }
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

DType Weights::dtype() const { return impl_->view.dtype; }
int64_t Weights::rows() const { return impl_->view.rows; }
int64_t Weights::cols() const { return impl_->view.cols; }
int64_t Weights::bytes() const {
  if (!impl_->panels) return rows() * impl_->view.row_bytes();
  return CeilDiv(rows(), kPanelRows) * impl_->panel_bytes;
}

void Weights::Row(int64_t r, float* out) const {
  BALLAST_CHECK(r >= 0 && r < rows());
  if (impl_->panels) return UnpackPanelRow(*impl_, r, out);
  Dequantize(impl_->view.dtype, impl_->view.row(r), cols(), out);
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

// Rounds row `i` of a.fine twice, the second time what the first left of it.
void QuantizeLeft(Activations::Impl& a, int64_t i) {
  const QuantizedRows tile = a.quantized.Tile(a.rows + i, a.blocks);
  a.left.assign(a.x + a.fine[i] * a.cols, a.x + (a.fine[i] + 1) * a.cols);
  QuantizeTile(a.left.data(), 1, a.blocks, tile);
  for (int64_t c = 0; c < a.cols; ++c) {
    a.left[c] -= static_cast<float>(tile.codes[c]) * tile.scale[c / kBlockCols];
  }
  QuantizeTile(a.left.data(), 1, a.blocks, tile);
}

}  // namespace

void Activations::Set(const float* x, int64_t rows, int64_t cols, Compute mode, ThreadPool& pool,
                      std::span<const int64_t> fine) {
  Impl& a = *impl_;
  a.mode = mode;
  a.x = x;
  a.rows = rows;
  a.cols = cols;
  // No quantised type has rows that are not whole blocks: then only float weights can follow.
  a.blocks = mode == Compute::kFast && cols % kBlockCols == 0 ? cols / kBlockCols : 0;
  a.fine.clear();
  if (a.blocks == 0 || rows == 0) return;
  a.fine.assign(fine.begin(), fine.end());
  const int64_t lefts = static_cast<int64_t>(fine.size());
  Reserve(a, (rows + lefts) * a.blocks);
  // Pieces are tiles of 8; the last holds the smaller ones.
  pool.For(CeilDiv(rows, 8), Grain(CeilDiv(rows, 8), 8 * cols, pool), [&a](int64_t begin, int64_t end, int) {
    const int64_t stop = std::min(end * 8, a.rows);
    for (int64_t row = begin * 8; row < stop;) {
      const int n = TileRows(a.rows - row);
      QuantizeTile(a.x + row * a.cols, n, a.blocks, a.quantized.Tile(row, a.blocks));
      row += n;
    }
  });
  for (int64_t i = 0; i < lefts; ++i) {
    BALLAST_CHECK(fine[i] >= 0 && fine[i] < rows);
    QuantizeLeft(a, i);
  }
}

namespace {

// The unit of work: 16 weight rows times every row of activations.
int64_t Units(const Weights& w) { return CeilDiv(w.rows(), kPanelRows); }

// Units [begin, end) of one product.
void RunUnits(const MatMulTarget& t, const Activations::Impl& x, int64_t begin, int64_t end) {
  const Weights::Impl& w = t.w->impl();
  if (w.panels) {
    MatMulPanels(w, x, begin, end, t.y, t.stride);
  } else {
    MatMulRows(w.view, x, begin * kPanelRows, std::min(end * kPanelRows, w.view.rows), t.y, t.stride);
  }
}

int64_t UnitGrain(int64_t units, const Activations::Impl& x, const ThreadPool& pool) {
  return Grain(units, kPanelRows * x.cols * x.rows, pool);
}

}  // namespace

void MatMulMany(std::span<const MatMulTarget> targets, const Activations& activations, ThreadPool& pool) {
  const Activations::Impl& x = activations.impl();
  int64_t units = 0;
  for (const MatMulTarget& t : targets) {
    BALLAST_CHECK(t.w->impl().mode == x.mode && t.w->cols() == x.cols);
    units += Units(*t.w);
  }
  if (x.rows == 0 || units == 0) return;
  pool.For(units, UnitGrain(units, x, pool), [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // unit of the target at hand
    for (const MatMulTarget& t : targets) {
      const int64_t n = Units(*t.w);
      const int64_t from = std::max(begin, first) - first, to = std::min(end, first + n) - first;
      if (from < to) RunUnits(t, x, from, to);
      first += n;
    }
  });
}

void MatMul(const Weights& w, const Activations& x, float* y, int64_t y_stride, ThreadPool& pool) {
  const MatMulTarget target{&w, y, y_stride};
  MatMulMany({&target, 1}, x, pool);
}

void MatMulGated(Activation activation, const Weights& gate, const Weights& up,
                 const Activations& activations, float* y, float* up_scratch, ThreadPool& pool) {
  const Activations::Impl& x = activations.impl();
  const int64_t n = gate.rows(), units = Units(gate);
  BALLAST_CHECK(gate.impl().mode == x.mode && gate.cols() == x.cols);
  BALLAST_CHECK(up.impl().mode == x.mode && up.cols() == x.cols && up.rows() == n);
  if (x.rows == 0 || units == 0) return;
  pool.For(units, UnitGrain(2 * units, x, pool), [&](int64_t begin, int64_t end, int) {
    RunUnits({&gate, y, n}, x, begin, end);
    RunUnits({&up, up_scratch, n}, x, begin, end);
    const int64_t from = begin * kPanelRows, count = std::min(end * kPanelRows, n) - from;
    for (int64_t r = 0; r < x.rows; ++r) {
      ActivateMul(activation, y + r * n + from, up_scratch + r * n + from, count, y + r * n + from);
    }
  });
}

}  // namespace ballast
