// Inside the matrix product: what the packer, the integer and the float kernels share. Not for other layers.
//
// Panel layout (kFast, quantised types): 16 weight rows interleaved, so that one 512-bit vector holds 4
// columns of each of the 16 rows and one dot instruction feeds 16 outputs. A panel is cols / 32 blocks, one
// after another, so that decode reads memory as one stream; each block is
//   codes   (group of 4 columns, row, column in group), unsigned: code + zero.
//           8 bits: 8 groups of 64 bytes. Fewer: 4 groups of 64 bytes with the low 4 bits; low nibbles are
//           columns 0..15 of the block, high nibbles columns 16..31. Then the fifth bits (5 bits: one group,
//           bit g belongs to group g) or the fifth and sixth (6 bits: two groups of four 2-bit fields each).
//   scales  (sub-block, row), f16
//   offsets (sub-block, row), likewise; absent without has_offset
// K types multiply an f16 by a small integer, which f16 cannot hold exactly. Their scales and offsets are
// rounded to f16 in units of a power of two per row, with which their panels end: (row), f32. That is 2^-11
// of a scale at most, far below what rounding activations to bytes costs, and saves a sixth of the bytes. A
// panel is padded to 64 bytes; rows beyond the matrix are zeros.
//
// Arithmetic (the definition all instruction sets share), for block b, sub-blocks s, activation scale a:
//   t = sum_s scale[s] * int_dot[s] + offset[s] * int_sum[s];   y += a[b] * t        (float, b ascending)
// and at the end y *= unit.
#ifndef BALLAST_KERNELS_MATMUL_IMPL_H_
#define BALLAST_KERNELS_MATMUL_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/matmul.h"
#include "tensor/block_codes.h"
#include "tensor/dequant.h"
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
  int bits = 0;  // 4, 5, 6 or 8
  int sub = 0;   // columns per scale: 16 or 32
  int zero = 0;  // stored = code + zero; 0 or a power of two
  bool offset = false;
  bool unit = false;  // scales and offsets are in units of their row

  bool operator==(const PanelForm&) const = default;
  constexpr int subs() const { return kBlockCols / sub; }
  constexpr int64_t code_bytes() const { return kPanelRows * kBlockCols * bits / 8; }
  constexpr int64_t scale_bytes() const { return subs() * kPanelRows * 2; }
  constexpr int64_t block_bytes() const { return code_bytes() + scale_bytes() * (offset ? 2 : 1); }
  constexpr int64_t panel_bytes(int64_t blocks) const {
    return RoundUp(blocks * block_bytes() + (unit ? kPanelRows * 4 : 0), 64);
  }
};

// REQUIRES: IsQuantized(type).
constexpr PanelForm FormOf(DType type) {
  const CodeInfo codes = CodesOf(type);
  const int largest = codes.max_code - codes.min_code;
  const int bits = largest < 16 ? 4 : largest < 32 ? 5 : largest < 64 ? 6 : 8;
  return {bits, codes.sub, -codes.min_code, codes.has_offset, Info(type).block_elements == 256};
}

// Where a block keeps the four codes of `group` (their low bits) and, with 5 or 6 bits, their high bits.
constexpr int64_t LowAt(const PanelForm& form, int group, int row) {
  return ((form.bits == 8 ? group : group % 4) * kPanelRows + row) * 4;
}
constexpr int64_t HighAt(const PanelForm& form, int group, int row) {
  return ((4 + group * (form.bits - 4) / 8) * kPanelRows + row) * 4;
}
constexpr int HighShift(const PanelForm& form, int group) { return group * (form.bits - 4) % 8; }

// Scale or offset `index` of those at `base`.
inline float ScaleAt(const uint8_t* base, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, base + index * 2, sizeof(bits));
  return F16ToF32(bits);
}

// What the block stores for one column: its code + zero.
constexpr int StoredCode(const PanelForm& form, const uint8_t* block, int row, int column) {
  const int group = column / 4, at = column % 4;
  const int low = block[LowAt(form, group, row) + at];
  if (form.bits == 8) return low;
  const int nibble = group < 4 ? low & 15 : low >> 4;
  if (form.bits == 4) return nibble;
  const int high =
      block[HighAt(form, group, row) + at] >> HighShift(form, group) & ((1 << (form.bits - 4)) - 1);
  return nibble | high << 4;
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
  QuantizedRows quantized;    // the rows, then, each a tile, what rounding left of those in `fine`
  std::vector<int64_t> fine;  // rows; empty unless quantised
  std::vector<float> left;    // (cols)
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

// `rounds` times as many independent multiply-adds of bytes as cover their latency, all in registers, by the
// instructions of MatMulPanels: count of them in all (0: bytes are not multiplied in vectors), and what they
// add up to.
struct ByteDots {
  int64_t count = 0;
  int32_t sum = 0;
};
ByteDots RunByteDots(int32_t seed, int64_t rounds);

// Per instruction set; matmul_float.cc. Weight rows [begin, end) of w times every row of x.
void MatMulRows(const MatrixView& w, const Activations::Impl& x, int64_t begin, int64_t end, float* y,
                int64_t y_stride);

}  // namespace ballast

#endif  // BALLAST_KERNELS_MATMUL_IMPL_H_
