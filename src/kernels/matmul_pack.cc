// Stored blocks to panels, once at load. The layout is in matmul_impl.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/mmap.h"
#include "kernels/matmul_impl.h"
#include "tensor/block_codes.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

void StoreScale(uint8_t* base, int64_t index, float value) {
  const uint16_t bits = F32ToF16(value);
  std::memcpy(base + index * 2, &bits, sizeof(bits));
}

// 32 codes of row `row` into the block at `to`.
void StoreCodes(const PanelForm& form, const int8_t* code, int row, uint8_t* to) {
  uint8_t stored[kBlockCols];
  for (int j = 0; j < kBlockCols; ++j) stored[j] = static_cast<uint8_t>(code[j] + form.zero);
  if (form.bits == 8) {
    for (int g = 0; g < 8; ++g) std::memcpy(to + LowAt(form, g, row), stored + 4 * g, 4);
    return;
  }
  uint8_t low[16], high[8] = {};
  for (int j = 0; j < 16; ++j) low[j] = static_cast<uint8_t>((stored[j] & 15) | stored[j + 16] << 4);
  for (int g = 0; g < 4; ++g) std::memcpy(to + LowAt(form, g, row), low + 4 * g, 4);
  if (form.bits == 4) return;
  for (int j = 0; j < kBlockCols; ++j) {
    const int g = j / 4;
    high[g * (form.bits - 4) / 8 * 4 + j % 4] |= static_cast<uint8_t>(stored[j] >> 4 << HighShift(form, g));
  }
  for (int h = 0; h < form.bits - 4; ++h)
    std::memcpy(to + (4 + h) * kPanelRows * 4 + row * 4, high + 4 * h, 4);
}

// The unit of a row's scales: its largest is then between a half and one.
float UnitOf(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  int exponent;
  std::frexp(largest, &exponent);
  return std::ldexp(1.0f, exponent);
}

// Row r of the matrix into its panel. `row_blocks` is scratch.
void PackRow(const MatrixView& m, int64_t r, const PanelForm& form, int64_t blocks,
             std::vector<BlockCodes>& row_blocks, uint8_t* panel) {
  const DTypeInfo info = Info(m.dtype);
  const int row = static_cast<int>(r % kPanelRows), subs = form.subs();
  const int chunks = info.block_elements / kBlockCols;
  row_blocks.resize(static_cast<size_t>(blocks / chunks));
  const uint8_t* src = m.row(r);
  float largest = 0;
  for (BlockCodes& codes : row_blocks) {
    UnpackBlock(m.dtype, src, codes);
    src += info.block_bytes;
    if (!form.unit) continue;
    for (int s = 0; s < chunks * subs; ++s) {
      largest = std::max({largest, std::abs(codes.scale[s]), std::abs(codes.offset[s])});
    }
  }
  float inverse = 1;
  if (form.unit) {
    const float unit = UnitOf(largest);
    std::memcpy(panel + blocks * form.block_bytes() + row * 4, &unit, sizeof(unit));
    inverse = 1 / unit;
  }
  uint8_t* block = panel;
  for (const BlockCodes& codes : row_blocks) {
    for (int c = 0; c < chunks; ++c, block += form.block_bytes()) {
      StoreCodes(form, codes.code + c * kBlockCols, row, block);
      uint8_t* scales = block + form.code_bytes();
      for (int s = 0; s < subs; ++s) {
        StoreScale(scales, s * kPanelRows + row, codes.scale[c * subs + s] * inverse);
        if (!form.offset) continue;
        StoreScale(scales + form.scale_bytes(), s * kPanelRows + row, codes.offset[c * subs + s] * inverse);
      }
    }
  }
}

// A chunk of packed matrices.
struct Chunk {
  Arena arena;
  size_t used = 0;
};

}  // namespace

std::shared_ptr<uint8_t> AllocateWeights(int64_t bytes) {
  constexpr size_t kChunkBytes = size_t{64} << 20;  // untouched pages cost nothing
  static std::mutex mutex;
  static std::weak_ptr<Chunk> current;
  const size_t need = static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), 64));
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Chunk> chunk = current.lock();
  if (chunk == nullptr || chunk->arena.size() - chunk->used < need) {
    Result<Arena> arena = Arena::Allocate(std::max(need, kChunkBytes));
    if (!arena.ok()) throw std::bad_alloc();  // as any container would
    chunk = std::make_shared<Chunk>(Chunk{std::move(*arena), 0});
    if (need < kChunkBytes) current = chunk;
  }
  uint8_t* data = chunk->arena.data() + std::exchange(chunk->used, chunk->used + need);
  return std::shared_ptr<uint8_t>(std::move(chunk), data);
}

void PackPanels(const MatrixView& m, Weights::Impl& w, ThreadPool& pool) {
  w.panels = true;
  w.form = FormOf(m.dtype);
  w.blocks = m.cols / kBlockCols;
  w.panel_bytes = w.form.panel_bytes(w.blocks);
  const int64_t panels = CeilDiv(m.rows, kPanelRows);
  w.bytes = AllocateWeights(panels * w.panel_bytes);
  const int64_t grain = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(w.panel_bytes, 1));
  pool.For(panels, grain, [&](int64_t begin, int64_t end, int) {
    std::vector<BlockCodes> row_blocks;
    for (int64_t p = begin; p < end; ++p) {
      uint8_t* panel = w.bytes.get() + p * w.panel_bytes;
      const int64_t stop = std::min((p + 1) * kPanelRows, m.rows);
      if (stop < (p + 1) * kPanelRows) std::memset(panel, 0, static_cast<size_t>(w.panel_bytes));
      for (int64_t r = p * kPanelRows; r < stop; ++r) PackRow(m, r, w.form, w.blocks, row_blocks, panel);
    }
  });
  w.view.data = nullptr;
}

void UnpackPanelRow(const Weights::Impl& w, int64_t r, float* out) {
  const PanelForm& form = w.form;
  const int row = static_cast<int>(r % kPanelRows);
  const uint8_t* block = w.panel(r / kPanelRows);
  float unit = 1;
  if (form.unit) std::memcpy(&unit, block + w.blocks * form.block_bytes() + row * 4, sizeof(unit));
  for (int64_t b = 0; b < w.blocks; ++b, block += form.block_bytes()) {
    const uint8_t* scales = block + form.code_bytes();
    for (int j = 0; j < kBlockCols; ++j) {
      const int64_t at = j / form.sub * kPanelRows + row;
      const float offset = form.offset ? ScaleAt(scales + form.scale_bytes(), at) : 0.0f;
      const int code = StoredCode(form, block, row, j) - form.zero;
      out[b * kBlockCols + j] = (ScaleAt(scales, at) * static_cast<float>(code) + offset) * unit;
    }
  }
}

}  // namespace ballast
