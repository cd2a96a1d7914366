// Stored blocks to panels, once at load. The layout is in matmul_impl.h.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/mmap.h"
#include "kernels/matmul_impl.h"
#include "tensor/block_codes.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

void StoreScale(const PanelForm& form, uint8_t* base, int64_t index, float value) {
  if (form.half) {
    const uint16_t bits = F32ToF16(value);  // exact: it was an f16
    std::memcpy(base + index * 2, &bits, sizeof(bits));
  } else {
    std::memcpy(base + index * 4, &value, sizeof(value));
  }
}

// 32 codes of row `row` into the block at `to`.
void StoreCodes(const PanelForm& form, const int8_t* code, int row, uint8_t* to) {
  uint8_t bytes[kBlockCols];
  if (form.bits == 4) {
    for (int j = 0; j < 16; ++j) {
      bytes[j] = static_cast<uint8_t>((code[j] + form.zero) | (code[j + 16] + form.zero) << 4);
    }
  } else {
    for (int j = 0; j < kBlockCols; ++j) bytes[j] = static_cast<uint8_t>(code[j] + form.zero);
  }
  for (int g = 0; g < form.bits; ++g) std::memcpy(to + (g * kPanelRows + row) * 4, bytes + 4 * g, 4);
}

float LoadScale(const PanelForm& form, const uint8_t* base, int64_t index) {
  if (form.half) {
    uint16_t bits;
    std::memcpy(&bits, base + index * 2, sizeof(bits));
    return F16ToF32(bits);
  }
  float value;
  std::memcpy(&value, base + index * 4, sizeof(value));
  return value;
}

// The inverse of StoreCodes.
void LoadCodes(const PanelForm& form, const uint8_t* from, int row, int8_t* code) {
  uint8_t bytes[kBlockCols];
  for (int g = 0; g < form.bits; ++g) std::memcpy(bytes + 4 * g, from + (g * kPanelRows + row) * 4, 4);
  for (int j = 0; j < kBlockCols; ++j) {
    const int stored = form.bits == 8 ? bytes[j] : j < 16 ? bytes[j] & 15 : bytes[j - 16] >> 4;
    code[j] = static_cast<int8_t>(stored - form.zero);
  }
}

void PackRow(const MatrixView& m, int64_t r, const PanelForm& form, int64_t blocks, uint8_t* panel) {
  const DTypeInfo info = Info(m.dtype);
  const int row = static_cast<int>(r % kPanelRows), subs = form.subs();
  const uint8_t* src = m.row(r);
  BlockCodes codes;
  for (int64_t b = 0; b < blocks; src += info.block_bytes) {
    UnpackBlock(m.dtype, src, codes);
    for (int c = 0; c < info.block_elements / kBlockCols; ++c, ++b) {
      uint8_t* block = panel + b * form.block_bytes();
      StoreCodes(form, codes.code + c * kBlockCols, row, block);
      uint8_t* scales = block + form.code_bytes();
      for (int s = 0; s < subs; ++s) {
        StoreScale(form, scales, s * kPanelRows + row, codes.scale[c * subs + s]);
        if (!form.offset) continue;
        StoreScale(form, scales + form.scale_bytes(), s * kPanelRows + row, codes.offset[c * subs + s]);
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
    for (int64_t p = begin; p < end; ++p) {
      uint8_t* panel = w.bytes.get() + p * w.panel_bytes;
      const int64_t stop = std::min((p + 1) * kPanelRows, m.rows);
      if (stop < (p + 1) * kPanelRows) std::memset(panel, 0, static_cast<size_t>(w.panel_bytes));
      for (int64_t r = p * kPanelRows; r < stop; ++r) PackRow(m, r, w.form, w.blocks, panel);
    }
  });
  w.view.data = nullptr;
}

void UnpackPanelRow(const Weights::Impl& w, int64_t r, float* out) {
  const PanelForm& form = w.form;
  const int row = static_cast<int>(r % kPanelRows);
  const uint8_t* block = w.panel(r / kPanelRows);
  for (int64_t b = 0; b < w.blocks; ++b, block += form.block_bytes()) {
    int8_t code[kBlockCols];
    LoadCodes(form, block, row, code);
    const uint8_t* scales = block + form.code_bytes();
    for (int j = 0; j < kBlockCols; ++j) {
      const int64_t at = j / form.sub * kPanelRows + row;
      const float offset = form.offset ? LoadScale(form, scales + form.scale_bytes(), at) : 0.0f;
      out[b * kBlockCols + j] = LoadScale(form, scales, at) * static_cast<float>(code[j]) + offset;
    }
  }
}

}  // namespace ballast
