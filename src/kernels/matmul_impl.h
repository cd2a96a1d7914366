// Inside the matrix product: what the packer, the integer and the float kernels share. Not for other layers.
//
// Panel layout (kFast, quantised types): 16 weight rows interleaved, so that one 512-bit vector holds 4
// columns of each of the 16 rows and one dot instruction feeds 16 outputs. A panel is cols / 32 blocks, one
// after another, so that decode reads memory as one stream; each block is
//   codes   (group of 4 columns, row, column in group), unsigned: code + zero.
//           8 bits: 8 groups of 64 bytes. 4 bits: 4 groups of 64 bytes; low nibbles are columns 0..15 of the
//           block, high nibbles columns 16..31.
//   scales  (sub-block, row), f16 where the format stores f16, else f32
//   offsets (sub-block, row), likewise; absent without has_offset
// A panel is padded to 64 bytes; rows beyond the matrix are zeros.
//
// Arithmetic (the definition all instruction sets share), for block b, sub-blocks s, activation scale a:
//   t = sum_s scale[s] * int_dot[s] + offset[s] * int_sum[s];   y += a[b] * t        (float, b ascending)
#ifndef BALLAST_KERNELS_MATMUL_IMPL_H_
#define BALLAST_KERNELS_MATMUL_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "kernels/matmul.h"
#include "tensor/block_codes.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

// Before a loop over tile registers. Instrumented, unrolled tiles take minutes to compile, so not there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BALLAST_UNROLL
#else
#define BALLAST_UNROLL _Pragma("GCC unroll 16")
#endif

namespace ballast {

inline constexpr int kPanelRows = 16;
inline constexpr int kBlockCols = 32;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Uninitialised bytes aligned to a cache line.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(int64_t bytes)
      : data_(static_cast<uint8_t*>(::operator new (static_cast<size_t>(bytes), std::align_val_t{64}))) {}
  uint8_t* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<uint8_t, Free> data_;
};

struct PanelForm {
  int bits = 0;  // 4 or 8
  int sub = 0;   // columns per scale: 16 or 32
  int zero = 0;  // stored = code + zero; 0 or a power of two
  bool offset = false;
  bool half = false;  // scales and offsets are f16

  constexpr int subs() const { return kBlockCols / sub; }
  constexpr int64_t code_bytes() const { return kPanelRows * kBlockCols * bits / 8; }
  constexpr int64_t scale_bytes() const { return subs() * kPanelRows * (half ? 2 : 4); }
  constexpr int64_t block_bytes() const { return code_bytes() + scale_bytes() * (offset ? 2 : 1); }
  constexpr int64_t panel_bytes(int64_t blocks) const { return RoundUp(blocks * block_bytes(), 64); }
};

// K types multiply an f16 by a small integer, which f16 cannot hold exactly. REQUIRES: IsQuantized(type).
constexpr PanelForm FormOf(DType type) {
  const CodeInfo codes = CodesOf(type);
  const bool nibble = codes.max_code - codes.min_code < 16;
  return {nibble ? 4 : 8, codes.sub, -codes.min_code, codes.has_offset, Info(type).block_elements == 32};
}

struct Weights::Impl {
  Compute mode = Compute::kF32;
  MatrixView view;      // of the stored rows; data is null once packed into panels
  bool panels = false;  // integer panels; otherwise rows as stored (kF32, and float types in kFast)
  PanelForm form;
  int64_t blocks = 0;  // cols / 32
  int64_t panel_bytes = 0;
  std::shared_ptr<uint8_t> bytes;  // (panel, panel_bytes), or a copy of float rows

  const uint8_t* panel(int64_t p) const { return bytes.get() + p * panel_bytes; }
};

// Rows of a tile of activations are interleaved block by block: 8 rows while they last, then 4, 2, 1.
constexpr int TileRows(int64_t rows_left) {
  return rows_left >= 8 ? 8 : rows_left >= 4 ? 4 : rows_left >= 2 ? 2 : 1;
}

// Activations of one tile, or of all (tiles follow each other). n = rows of the tile.
struct QuantizedRows {
  int8_t* codes = nullptr;      // (block, n, 32): round(x * 127 / max|x|) of the row's block
  float* scale = nullptr;       // (block, n): max|x| / 127
  float* sum = nullptr;         // (block, n): sum of the codes
  int32_t* negated = nullptr;   // (block, n): minus that sum
  float* sums = nullptr;        // (block, 2, n): sum of the codes of columns 0..15, 16..31
  int32_t* negateds = nullptr;  // (block, 2, n): minus those

  // The tile whose first row is `row`, of activations with `blocks` blocks per row.
  QuantizedRows Tile(int64_t row, int64_t blocks) const {
    const int64_t i = row * blocks;
    return {codes + i * kBlockCols, scale + i, sum + i, negated + i, sums + 2 * i, negateds + 2 * i};
  }
};

struct Activations::Impl {
  Compute mode = Compute::kF32;
  const float* x = nullptr;  // (rows, cols)
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t blocks = 0;    // cols / 32 when quantised, else 0
  int64_t capacity = 0;  // blocks of rows the buffers hold
  AlignedBytes bytes;
  QuantizedRows quantized;
};

// Uninitialised room for packed weights, aligned to a cache line. Matrices share large chunks, each freed
// with its last matrix, so that huge pages can back them all. Thread safe. matmul_pack.cc.
std::shared_ptr<uint8_t> AllocateWeights(int64_t bytes);

// Fills w.bytes from `m`. matmul_pack.cc.
void PackPanels(const MatrixView& m, Weights::Impl& w, ThreadPool& pool);
// Row r of packed panels as floats: scale * code + offset. matmul_pack.cc.
void UnpackPanelRow(const Weights::Impl& w, int64_t r, float* out);

// Per instruction set; matmul_int.cc. Quantises `n` rows of x (a tile) of `blocks` blocks.
void QuantizeTile(const float* x, int n, int64_t blocks, const QuantizedRows& out);
// Panels [begin, end) of w times every row of x.
void MatMulPanels(const Weights::Impl& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                  int64_t y_stride);

// Per instruction set; matmul_float.cc. Weight rows [begin, end) of w times every row of x.
void MatMulRows(const MatrixView& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                int64_t y_stride);

}  // namespace ballast

#endif  // BALLAST_KERNELS_MATMUL_IMPL_H_
