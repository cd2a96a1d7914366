#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops.h"
#include "model/blocks.h"
#include "tensor/dequant.h"

namespace ballast {

std::vector<KvCache::LayerShape> Decoder::CacheShape() const {
  std::vector<KvCache::LayerShape> shape;
  for (const LayerPlan& layer : plan_.layers) {
    shape.push_back({config_.kv_heads, config_.head_dim, layer.local_window});
  }
  return shape;
}

void Decoder::Apply(const Norm& norm, const float* x, int64_t rows, float* out, ThreadPool& pool) const {
  const int64_t n = config_.embed;
  const float* weight = norm.weight.empty() ? nullptr : norm.weight.data();
  const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
  pool.For(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      if (plan_.norm == NormKind::kLayer) {
        LayerNorm(x + r * n, weight, bias, n, plan_.norm_eps, out + r * n);
      } else {
        RmsNorm(x + r * n, weight, n, plan_.norm_eps, out + r * n);
      }
    }
  });
}

void Decoder::Embed(std::span<const Segment> segments, Workspace& ws) const {
  int64_t row = 0;
  for (const Segment& s : segments) {
    for (int32_t token : s.tokens) {
      float* out = ws.hidden.data() + row * config_.embed;
      if (embedding_is_output_) {
        output_.Row(token, out);
      } else {
        Dequantize(embedding_.dtype, embedding_.row(token), config_.embed, out);
      }
      if (plan_.embed_scale != 1) ScaleInPlace(out, config_.embed, plan_.embed_scale);
      ++row;
    }
  }
}

void Decoder::Project(const DecoderLayer& layer, const float* x, int64_t rows, Workspace& ws,
                      ThreadPool& pool) const {
  const int64_t q_dims = static_cast<int64_t>(config_.heads) * config_.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
  ws.activations.Set(x, rows, config_.embed, compute_, pool, ws.fine);
  const MatMulTarget qkv[] = {
      {&layer.q, ws.q.data(), q_dims}, {&layer.k, ws.k.data(), k_dims}, {&layer.v, ws.v.data(), k_dims}};
  MatMulMany(qkv, ws.activations, pool);
  AddBias(layer.q_bias, rows, ws.q.data());
  AddBias(layer.k_bias, rows, ws.k.data());
  AddBias(layer.v_bias, rows, ws.v.data());
  if (plan_.clip_qkv > 0) {
    for (const auto& [data, dims] : {std::pair{&ws.q, q_dims}, {&ws.k, k_dims}, {&ws.v, k_dims}}) {
      for (int64_t i = 0; i < rows * dims; ++i)
        (*data)[i] = std::clamp((*data)[i], -plan_.clip_qkv, plan_.clip_qkv);
    }
  }
}

namespace {

// Norms of queries or keys: `heads` vectors of `dim` per row, each by itself or all together.
void NormHeads(const Norm& norm, NormKind kind, float eps, bool whole, int64_t heads, int64_t dim, float* x) {
  if (!norm.present()) return;
  const int64_t n = whole ? heads * dim : dim, vectors = whole ? 1 : heads;
  // Weights of one vector serve all, unless every head has its own.
  const int64_t stride = static_cast<int64_t>(norm.weight.size()) == n ? 0 : n;
  for (int64_t h = 0; h < vectors; ++h) {
    const float* weight = norm.weight.data() + h * stride;
    if (kind == NormKind::kLayer) {
      LayerNorm(x + h * n, weight, norm.bias.empty() ? nullptr : norm.bias.data() + h * stride, n, eps,
                x + h * n);
    } else {
      RmsNorm(x + h * n, weight, n, eps, x + h * n);
    }
  }
}

}  // namespace

void Decoder::FinishQueriesAndKeys(int index, bool same_positions, Workspace& ws, ThreadPool& pool) const {
  const DecoderLayer& layer = layers_[static_cast<size_t>(index)];
  const int64_t q_dims = static_cast<int64_t>(config_.heads) * config_.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
  const bool whole = plan_.qk_norm == QkNorm::kWholeRows;
  if (layer.q_norm.present() || layer.k_norm.present()) {
    pool.For(ws.rows, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        NormHeads(layer.q_norm, plan_.norm, plan_.norm_eps, whole, config_.heads, config_.head_dim,
                  ws.q.data() + r * q_dims);
        NormHeads(layer.k_norm, plan_.norm, plan_.norm_eps, whole, config_.kv_heads, config_.head_dim,
                  ws.k.data() + r * k_dims);
      }
    });
  }
  const int rope = plan_.layers[static_cast<size_t>(index)].rope;
  if (rope >= 0) {
    RotateQueriesAndKeys(config_, ropes_[static_cast<size_t>(rope)], rope, same_positions, ws, pool);
  } else if (!same_positions) {  // both kinds of keys get the same query
    ballast::Reserve(ws.q_pinned, ws.rows * q_dims);
    std::copy_n(ws.q.data(), ws.rows * q_dims, ws.q_pinned.data());
  }
}

void Decoder::AttentionBlock(int index, std::span<const Segment> segments, bool same_positions, Workspace& ws,
                             ThreadPool& pool) const {
  const DecoderLayer& layer = layers_[static_cast<size_t>(index)];
  const float* x = ws.hidden.data();
  if (layer.attn_norm_2.present()) {  // the MLP has attn_norm for itself
    Apply(layer.attn_norm_2, x, ws.rows, ws.projected.data(), pool);
    Project(layer, ws.projected.data(), ws.rows, ws, pool);
  } else if (layer.attn_norm.present()) {
    Apply(layer.attn_norm, x, ws.rows, ws.normed.data(), pool);
    Project(layer, ws.normed.data(), ws.rows, ws, pool);
  } else {
    Project(layer, x, ws.rows, ws, pool);
  }
  FinishQueriesAndKeys(index, same_positions, ws, pool);
  AttentionShape shape;
  shape.heads = config_.heads;
  shape.kv_heads = config_.kv_heads;
  shape.head_dim = config_.head_dim;
  shape.scale = plan_.attention_scale > 0 ? plan_.attention_scale
                                          : 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  shape.compute = compute_;
  shape.softcap = plan_.score_softcap;
  shape.slopes = plan_.slopes.empty() ? nullptr : plan_.slopes.data();
  AttendThroughCaches(segments, index, shape, same_positions, ws, pool);
}

void Decoder::AddResidual(const Norm& post, int64_t rows, Workspace& ws, ThreadPool& pool) const {
  if (post.present()) Apply(post, ws.projected.data(), rows, ws.projected.data(), pool);
  const int64_t n = config_.embed;
  pool.For(rows, 64, [&](int64_t begin, int64_t end, int) {
    AddInPlace(ws.hidden.data() + begin * n, ws.projected.data() + begin * n, (end - begin) * n,
               plan_.residual_scale);
  });
}

void Decoder::Mlp(const DecoderLayer& layer, const float* x, int64_t rows, Workspace& ws,
                  ThreadPool& pool) const {
  const int64_t ffn = config_.ffn;
  ws.activations.Set(x, rows, config_.embed, compute_, pool, ws.fine);
  if (plan_.gated && layer.gate_bias.empty() && layer.up_bias.empty()) {
    MatMulGated(plan_.activation, layer.gate, layer.up, ws.activations, ws.gate.data(), ws.up.data(), pool);
  } else {
    float* inner = ws.gate.data();
    if (plan_.gated) {
      MatMul(layer.gate, ws.activations, inner, ffn, pool);
      AddBias(layer.gate_bias, rows, inner);
    }
    float* up = plan_.gated ? ws.up.data() : inner;
    MatMul(layer.up, ws.activations, up, ffn, pool);
    AddBias(layer.up_bias, rows, up);
    pool.For(rows, 8, [&](int64_t begin, int64_t end, int) {
      float* at = inner + begin * ffn;
      const int64_t count = (end - begin) * ffn;
      plan_.gated ? ActivateMul(plan_.activation, at, up + begin * ffn, count, at)
                  : Activate(plan_.activation, at, count);
    });
  }
  ws.activations.Set(ws.gate.data(), rows, ffn, compute_, pool, ws.fine);
  MatMul(layer.down, ws.activations, ws.projected.data(), config_.embed, pool);
  AddBias(layer.down_bias, rows, ws.projected.data());
}

void Decoder::Residuals(const DecoderLayer& layer, int64_t rows, Workspace& ws, ThreadPool& pool) const {
  ws.activations.Set(ws.attended.data(), rows, static_cast<int64_t>(config_.heads) * config_.head_dim,
                     compute_, pool, ws.fine);
  MatMul(layer.o, ws.activations, ws.projected.data(), config_.embed, pool);
  AddBias(layer.o_bias, rows, ws.projected.data());
  // The MLP of a parallel block reads what the attention read, before its result is added.
  if (plan_.parallel && layer.ffn_norm.present()) {
    Apply(layer.ffn_norm, ws.hidden.data(), rows, ws.normed.data(), pool);
  } else if (plan_.parallel && layer.attn_norm_2.present()) {
    Apply(layer.attn_norm, ws.hidden.data(), rows, ws.normed.data(), pool);
  }
  AddResidual(layer.post_attn_norm, rows, ws, pool);
  const float* x = ws.normed.data();
  if (!plan_.parallel && layer.ffn_norm.present()) {
    Apply(layer.ffn_norm, ws.hidden.data(), rows, ws.normed.data(), pool);
  } else if (!plan_.parallel) {
    x = ws.hidden.data();
  }
  Mlp(layer, x, rows, ws, pool);
  AddResidual(layer.post_ffn_norm, rows, ws, pool);
}

void Decoder::Reserve(Workspace& ws) const {
  const int64_t q_dims = static_cast<int64_t>(config_.heads) * config_.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
  for (std::vector<float>* buffer : {&ws.hidden, &ws.normed, &ws.projected})
    ballast::Reserve(*buffer, ws.rows * config_.embed);
  for (std::vector<float>* buffer : {&ws.q, &ws.attended}) ballast::Reserve(*buffer, ws.rows * q_dims);
  for (std::vector<float>* buffer : {&ws.k, &ws.v}) ballast::Reserve(*buffer, ws.rows * k_dims);
  for (std::vector<float>* buffer : {&ws.gate, &ws.up}) ballast::Reserve(*buffer, ws.rows * config_.ffn);
  ballast::Reserve(ws.sink_mass, config_.layers * ws.rows * config_.heads);
}

void Decoder::Forward(std::span<const Segment> segments, Workspace& ws, ThreadPool& pool) const {
  ws.rows = 0;
  // All that follows rests attention on the first token, for ever: an error in its keys is never averaged
  // away.
  ws.fine.clear();
  for (const Segment& s : segments) {
    if (s.cache->live() == 0 && !s.tokens.empty()) ws.fine.push_back(ws.rows);
    ws.rows += static_cast<int64_t>(s.tokens.size());
  }
  Reserve(ws);
  Embed(segments, ws);
  const bool same_positions = PreparePositions(segments, ropes_, ws, pool);
  int64_t outputs = ws.rows;  // rows that go on behind the last layer's attention
  for (int i = 0; i < config_.layers; ++i) {
    AttentionBlock(i, segments, same_positions, ws, pool);
    if (i + 1 == config_.layers) {
      outputs =
          KeepOutputs(segments, config_.embed, static_cast<int64_t>(config_.heads) * config_.head_dim, ws);
      ws.fine.clear();  // rows are others now, and none of what follows makes keys
    }
    Residuals(layers_[static_cast<size_t>(i)], outputs, ws, pool);
  }
  Apply(output_norm_, ws.hidden.data(), outputs, ws.hidden.data(), pool);
  for (const Segment& s : segments) s.cache->Advance(static_cast<int64_t>(s.tokens.size()));
}

void Decoder::Logits(Workspace& ws, std::span<const int64_t> rows, float* logits, ThreadPool& pool) const {
  const int64_t count = static_cast<int64_t>(rows.size()), vocab = config_.vocab;
  ws.activations.Set(GatherHidden(rows, config_.embed, ws), count, config_.embed, compute_, pool);
  MatMul(output_, ws.activations, logits, vocab, pool);
  AddBias(output_bias_, count, logits);
  if (plan_.logit_scale != 1) ScaleInPlace(logits, count * vocab, plan_.logit_scale);
  if (plan_.logit_softcap > 0) SoftCap(plan_.logit_softcap, logits, count * vocab);
}

}  // namespace ballast
