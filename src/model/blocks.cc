#include "model/blocks.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "kernels/ops.h"

namespace ballast {

namespace {

// cos and sin of a row's two positions. a: (4, half).
void RowAngles(const RopeTable& rope, int64_t position, int64_t in_cache, float* a) {
  const int64_t half = rope.dims / 2;
  rope.Angles(position, a, a + half);
  if (in_cache == position) {
    std::memcpy(a + 2 * half, a, static_cast<size_t>(2 * half) * sizeof(float));
  } else {
    rope.Angles(in_cache, a + 2 * half, a + 3 * half);
  }
}

}  // namespace

bool PreparePositions(std::span<const Segment> segments, std::span<const RopeTable> ropes, Workspace& ws,
                      ThreadPool& pool) {
  const int64_t angles = ropes.empty() ? 0 : 2 * ropes[0].dims;
  Reserve(ws.angles, static_cast<int64_t>(ropes.size()) * ws.rows * angles);
  Reserve(ws.position, ws.rows);
  Reserve(ws.start, ws.rows);
  Reserve(ws.in_cache, ws.rows);
  bool same = true;
  int64_t row = 0;
  for (const Segment& s : segments) {
    const Layout& law = s.cache->plan().layout;
    for (size_t i = 0; i < s.tokens.size(); ++i, ++row) {
      const int64_t t = s.cache->position() + static_cast<int64_t>(i);
      ws.position[row] = t;
      ws.in_cache[row] = law.InCache(t, law.Start(t, s.cache->floor()));
      same = same && ws.in_cache[row] == t;
    }
  }
  pool.For(ws.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (size_t table = 0; table < ropes.size(); ++table) {
      float* at = ws.angles.data() + static_cast<int64_t>(table) * ws.rows * angles;
      for (int64_t r = begin; r < end; ++r) {
        RowAngles(ropes[table], ws.position[r], ws.in_cache[r], at + r * angles);
      }
    }
  });
  return same;
}

namespace {

void MoveRow(float* data, int64_t from, int64_t to, int64_t n) {
  if (from != to) std::memcpy(data + to * n, data + from * n, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

int64_t KeepOutputs(std::span<const Segment> segments, int64_t embed, int64_t q_dims, Workspace& ws) {
  Reserve(ws.output, ws.rows);
  int64_t row = 0, kept = 0;
  for (const Segment& s : segments) {
    const int64_t n = static_cast<int64_t>(s.tokens.size());
    const int64_t first = s.outputs < 0 ? 0 : std::max<int64_t>(0, n - s.outputs);
    for (int64_t i = 0; i < n; ++i, ++row) {
      ws.output[row] = i < first ? -1 : kept;
      if (i < first) continue;
      MoveRow(ws.hidden.data(), row, kept, embed);
      MoveRow(ws.normed.data(), row, kept, embed);
      MoveRow(ws.attended.data(), row, kept, q_dims);
      ++kept;
    }
  }
  return kept;
}

const float* GatherHidden(std::span<const int64_t> rows, int64_t embed, Workspace& ws) {
  const int64_t n = static_cast<int64_t>(rows.size());
  bool together = true;
  for (int64_t i = 0; i < n; ++i) {
    BALLAST_CHECK(ws.output[rows[i]] >= 0);
    together = together && ws.output[rows[i]] == ws.output[rows[0]] + i;
  }
  if (together) return ws.hidden.data() + (n == 0 ? 0 : ws.output[rows[0]] * embed);
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(ws.normed.data() + i * embed, ws.hidden.data() + ws.output[rows[i]] * embed,
                static_cast<size_t>(embed) * sizeof(float));
  }
  return ws.normed.data();
}

void RotateQueriesAndKeys(const ModelConfig& config, const RopeTable& rope, int index, bool same_positions,
                          Workspace& ws, ThreadPool& pool) {
  const int64_t half = rope.dims / 2;
  const float* angles = ws.angles.data() + index * ws.rows * 4 * half;
  const int64_t q_dims = static_cast<int64_t>(config.heads) * config.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config.kv_heads) * config.head_dim;
  if (!same_positions) Reserve(ws.q_pinned, ws.rows * q_dims);
  pool.For(ws.rows, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* a = angles + r * 4 * half;
      float* q = ws.q.data() + r * q_dims;
      float* k = ws.k.data() + r * k_dims;
      if (!same_positions) {
        ApplyRope(rope, a + 2 * half, a + 3 * half, q, config.heads, config.head_dim,
                  ws.q_pinned.data() + r * q_dims);
      }
      ApplyRope(rope, a, a + half, q, config.heads, config.head_dim, q);
      ApplyRope(rope, a, a + half, k, config.kv_heads, config.head_dim, k);
    }
  });
}

namespace {

// Encodes row `r` of the step into row `to` of the key and value buffers.
void StoreRow(const KvBuffer& k, const KvBuffer& v, int64_t to, const float* key, const float* value) {
  for (int h = 0; h < k.kv_heads; ++h) {
    EncodeKvRow(k, h, to, key + static_cast<int64_t>(h) * k.head_dim);
    EncodeKvRow(v, h, to, value + static_cast<int64_t>(h) * v.head_dim);
  }
}

// Lays the segments' rows and chunk buffers out.
void PlaceStep(std::span<const Segment> segments, int layer, const AttentionShape& shape, Workspace& ws) {
  ws.step_rows.resize(segments.size());
  int64_t bytes = 0;
  // A single token is written in place.
  const auto chunk_rows = [](const Segment& s) {
    return s.tokens.size() == 1 ? 0 : static_cast<int64_t>(s.tokens.size());
  };
  const auto buffer_bytes = [&](const Segment& s) {
    return KvBufferBytes(s.cache->type(), shape.kv_heads, shape.head_dim, chunk_rows(s));
  };
  for (const Segment& s : segments) bytes += 2 * buffer_bytes(s);
  Reserve(ws.chunk, bytes + 64);
  uint8_t* at = ws.chunk.data() + (64 - reinterpret_cast<uintptr_t>(ws.chunk.data()) % 64) % 64;
  int64_t row = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const KvCache& cache = *s.cache;
    const int64_t n = static_cast<int64_t>(s.tokens.size());
    StepRows& rows = ws.step_rows[i];
    rows.first_row = row;
    rows.begin = cache.position();
    rows.chunk_first = std::max(rows.begin, cache.layout(layer).pinned);
    const int64_t chunk = chunk_rows(s);
    rows.chunk_k = MakeKvBuffer(cache.type(), KvSide::kKeys, shape.kv_heads, shape.head_dim, chunk, at);
    rows.chunk_v = MakeKvBuffer(cache.type(), KvSide::kValues, shape.kv_heads, shape.head_dim, chunk,
                                at + buffer_bytes(s));
    at += 2 * buffer_bytes(s);
    for (int64_t j = 0; j < n; ++j) ws.start[row + j] = cache.Start(layer, rows.begin + j);
    row += n;
  }
}

// A q8 row has one scale for all its values, so keys whose few large dimensions would take it all for
// themselves are mixed before they are stored, and queries likewise: their dot products stay the same.
void MixRow(const AttentionShape& shape, int64_t r, bool same_positions, Workspace& ws) {
  const int64_t q_dims = static_cast<int64_t>(shape.heads) * shape.head_dim;
  Mix(ws.q.data() + r * q_dims, shape.heads, shape.head_dim);
  if (!same_positions) Mix(ws.q_pinned.data() + r * q_dims, shape.heads, shape.head_dim);
  Mix(ws.k.data() + r * shape.kv_heads * shape.head_dim, shape.kv_heads, shape.head_dim);
}

// Encodes workspace row `r`, which belongs to `segment`, to where the law says.
void StoreStepRow(const Segment& segment, const StepRows& rows, int layer, int64_t r, int64_t k_dims,
                  const Workspace& ws) {
  const KvCache& cache = *segment.cache;
  const int64_t t = rows.begin + r - rows.first_row;
  const float* key = ws.k.data() + r * k_dims;
  const float* value = ws.v.data() + r * k_dims;
  if (cache.WritesInPlace(layer, t, static_cast<int64_t>(segment.tokens.size()))) {
    const KvCache::Place place = cache.PlaceOf(layer, t);
    StoreRow(place.part->k, place.part->v, place.row, key, value);
  } else {
    StoreRow(rows.chunk_k, rows.chunk_v, t - rows.chunk_first, key, value);
  }
}

}  // namespace

void AttendThroughCaches(std::span<const Segment> segments, int layer, AttentionShape shape,
                         bool same_positions, Workspace& ws, ThreadPool& pool) {
  const int64_t k_dims = static_cast<int64_t>(shape.kv_heads) * shape.head_dim;
  const int64_t q_dims = static_cast<int64_t>(shape.heads) * shape.head_dim;
  PlaceStep(segments, layer, shape, ws);
  pool.For(ws.rows, 16, [&](int64_t from, int64_t to, int) {
    size_t s = 0;
    for (int64_t r = from; r < to; ++r) {
      while (s + 1 < segments.size() && ws.step_rows[s + 1].first_row <= r) ++s;
      if (segments[s].cache->type() == KvType::kQ8) MixRow(shape, r, same_positions, ws);
      StoreStepRow(segments[s], ws.step_rows[s], layer, r, k_dims, ws);
    }
  });

  ws.attention_jobs.resize(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    StepRows& rows = ws.step_rows[i];
    const int64_t n = static_cast<int64_t>(segments[i].tokens.size()), row = rows.first_row;
    shape.kv = segments[i].cache->type();
    shape.pinned_kv = PinnedKvType(shape.kv);
    rows.spans = segments[i].cache->Visible(layer, n, rows.chunk_k, rows.chunk_v);
    const float* q = ws.q.data() + row * q_dims;
    ws.attention_jobs[i] = {
        shape,
        {n, q, same_positions ? q : ws.q_pinned.data() + row * q_dims, ws.position.data() + row,
         ws.start.data() + row, ws.in_cache.data() + row},
        rows.spans.view(),
        ws.attended.data() + row * q_dims,
        ws.sink_mass.data() + (static_cast<int64_t>(layer) * ws.rows + row) * shape.heads};
  }
  Attention(ws.attention_jobs, ws.attention, pool);
  for (size_t i = 0; i < segments.size(); ++i) {
    const StepRows& rows = ws.step_rows[i];
    segments[i].cache->Commit(layer, static_cast<int64_t>(segments[i].tokens.size()), rows.chunk_k,
                              rows.chunk_v);
  }
}

void AddBias(std::span<const float> bias, int64_t rows, float* x) {
  if (bias.empty()) return;
  const int64_t n = static_cast<int64_t>(bias.size());
  for (int64_t r = 0; r < rows; ++r) AddInPlace(x + r * n, bias.data(), n);
}

}  // namespace ballast
