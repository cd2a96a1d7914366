#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "tensor/dequant.h"

namespace ballast {
namespace {

float Element(KvType type, const KvRows& rows, int64_t row, int head_dim, int i) {
  const int64_t at = row * head_dim + i;
  switch (type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(rows.data)[at];
    case KvType::kF16:
      return F16ToF32(reinterpret_cast<const uint16_t*>(rows.data)[at]);
    case KvType::kQ8:
      return rows.scale[row] * static_cast<float>(reinterpret_cast<const int8_t*>(rows.data)[at]);
  }
  return 0;
}

}  // namespace

void Attention(const AttentionShape& shape, const AttentionQueries& q, std::span<const KvSpan> spans,
               float* out, float* sink_mass, std::vector<float>& scratch, ThreadPool& pool) {
  const int dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  (void)scratch;
  pool.For(q.rows * shape.heads, 4, [&](int64_t begin, int64_t end, int) {
    std::vector<float> acc(dim);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / shape.heads, kv_head = i % shape.heads / group;
      float max = -1e30f, sum = 0, pinned_sum = 0;
      std::fill(acc.begin(), acc.end(), 0.0f);
      for (const KvSpan& span : spans) {
        const float* query = (span.pinned ? q.pinned : q.window) + i * dim;
        for (int64_t k = 0; k < span.count; ++k) {
          const int64_t p = span.first_position + k;
          if (p > q.position[row] || (!span.pinned && p < q.start[row])) continue;
          float score = 0;
          for (int j = 0; j < dim; ++j) {
            score += query[j] * Element(shape.kv, span.k, kv_head * span.k.head_stride + k, dim, j);
          }
          score = std::clamp(score * shape.scale, -1e30f, 1e30f);
          if (score > max) {
            const float shrink = std::exp(max - score);
            sum *= shrink;
            pinned_sum *= shrink;
            for (float& a : acc) a *= shrink;
            max = score;
          }
          const float w = std::exp(score - max);
          sum += w;
          if (span.pinned) pinned_sum += w;
          for (int j = 0; j < dim; ++j) {
            acc[j] += w * Element(shape.kv, span.v, kv_head * span.v.head_stride + k, dim, j);
          }
        }
      }
      const float inverse = sum > 0 ? 1 / sum : 0;
      for (int j = 0; j < dim; ++j) out[i * dim + j] = acc[j] * inverse;
      sink_mass[i] = std::clamp(pinned_sum * inverse, 0.0f, 1.0f);
    }
  });
}

}  // namespace ballast
