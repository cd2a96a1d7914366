#include "model/llama.h"

#include <cmath>
#include <string>
#include <utility>

#include "kernels/ops.h"
#include "model/blocks.h"
#include "model/weights.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

struct Layer {
  std::vector<float> attn_norm, ffn_norm;             // (embed)
  Weights q, k, v;                                    // (heads * head_dim | kv_heads * head_dim, embed)
  std::vector<float> q_bias, k_bias, v_bias, o_bias;  // empty in most files
  Weights o;                                          // (embed, heads * head_dim)
  Weights gate, up;                                   // (ffn, embed)
  Weights down;                                       // (embed, ffn)
};

class Llama final : public Model {
 public:
  Status Init(const TensorFile& file, ModelConfig config, const LoadOptions& options, ThreadPool& pool);
  std::vector<KvCache::LayerShape> CacheShape() const override {
    return std::vector<KvCache::LayerShape>(static_cast<size_t>(config_.layers),
                                            {config_.kv_heads, config_.head_dim, 0});
  }
  void Forward(std::span<const Segment> segments, Workspace& ws, ThreadPool& pool) const override;
  void Logits(Workspace& ws, std::span<const int64_t> rows, float* logits, ThreadPool& pool) const override;

 private:
  Status LoadLayer(WeightLoader& loader, int index, Layer& layer) const;
  void Embed(std::span<const Segment> segments, Workspace& ws) const;
  void AttentionBlock(const Layer& layer, int index, std::span<const Segment> segments, bool same_positions,
                      Workspace& ws, ThreadPool& pool) const;
  void ProjectAttended(const Layer& layer, int64_t rows, Workspace& ws, ThreadPool& pool) const;
  void MlpBlock(const Layer& layer, int64_t rows, Workspace& ws, ThreadPool& pool) const;
  void Norm(const std::vector<float>& weight, const float* x, int64_t rows, float* out,
            ThreadPool& pool) const;

  RopeTable rope_;
  MatrixView embedding_;            // (vocab, embed), in the file
  Weights output_;                  // (vocab, embed): its own, or the embedding again
  std::vector<float> output_norm_;  // (embed)
  std::vector<Layer> layers_;
};

Status Llama::LoadLayer(WeightLoader& loader, int index, Layer& layer) const {
  const ModelConfig& c = config_;
  const int64_t q_dims = static_cast<int64_t>(c.heads) * c.head_dim;
  const int64_t k_dims = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  const std::string blk = "blk." + std::to_string(index) + ".";
  BALLAST_ASSIGN_OR_RETURN(layer.attn_norm, loader.Vector(blk + "attn_norm.weight", c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.q, loader.Matrix(blk + "attn_q.weight", q_dims, c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.k, loader.Matrix(blk + "attn_k.weight", k_dims, c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.v, loader.Matrix(blk + "attn_v.weight", k_dims, c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.q_bias, loader.OptionalVector(blk + "attn_q.bias", q_dims));
  BALLAST_ASSIGN_OR_RETURN(layer.k_bias, loader.OptionalVector(blk + "attn_k.bias", k_dims));
  BALLAST_ASSIGN_OR_RETURN(layer.v_bias, loader.OptionalVector(blk + "attn_v.bias", k_dims));
  BALLAST_ASSIGN_OR_RETURN(layer.o, loader.Matrix(blk + "attn_output.weight", c.embed, q_dims));
  BALLAST_ASSIGN_OR_RETURN(layer.o_bias, loader.OptionalVector(blk + "attn_output.bias", c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.ffn_norm, loader.Vector(blk + "ffn_norm.weight", c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.gate, loader.Matrix(blk + "ffn_gate.weight", c.ffn, c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.up, loader.Matrix(blk + "ffn_up.weight", c.ffn, c.embed));
  BALLAST_ASSIGN_OR_RETURN(layer.down, loader.Matrix(blk + "ffn_down.weight", c.embed, c.ffn));
  return Status();
}

Status Llama::Init(const TensorFile& file, ModelConfig config, const LoadOptions& options, ThreadPool& pool) {
  config_ = std::move(config);
  compute_ = options.compute;
  WeightLoader loader(file, compute_, pool);
  const auto report = [&options](double share) {
    if (options.progress) options.progress(share);
  };
  // Llama 3.1's scaling comes as a tensor of per-frequency divisors.
  BALLAST_ASSIGN_OR_RETURN(const std::vector<float> factors,
                           loader.OptionalVector("rope_freqs.weight", config_.rope_dims / 2));
  for (float f : factors) {
    if (!(f > 0)) {
      return Status::Expected(Code::kModel, file.path() + ": tensor rope_freqs.weight", "values above 0",
                              std::to_string(f));
    }
  }
  rope_ =
      RopeTable::Make(config_.rope_dims, config_.rope_base, config_.rope_form, config_.rope_scaling, factors);
  BALLAST_ASSIGN_OR_RETURN(embedding_, loader.View("token_embd.weight", config_.vocab, config_.embed));
  layers_.resize(static_cast<size_t>(config_.layers));
  for (int i = 0; i < config_.layers; ++i) {
    BALLAST_RETURN_IF_ERROR(LoadLayer(loader, i, layers_[static_cast<size_t>(i)]));
    report(0.9 * (i + 1) / config_.layers);
  }
  BALLAST_ASSIGN_OR_RETURN(output_norm_, loader.Vector("output_norm.weight", config_.embed));
  const std::string output = loader.Has("output.weight") ? "output.weight" : "token_embd.weight";  // tied
  BALLAST_ASSIGN_OR_RETURN(output_, loader.Matrix(output, config_.vocab, config_.embed));
  weight_bytes_ = loader.packed_bytes();
  weight_count_ = loader.packed_elements();
  // Rows of the embedding are read from the file as tokens come up: all at once here, or resident memory
  // would creep up with the vocabulary of an endless text.
  file.Touch(*file.FindTensor("token_embd.weight"));
  report(1.0);
  return Status();
}

void Llama::Norm(const std::vector<float>& weight, const float* x, int64_t rows, float* out,
                 ThreadPool& pool) const {
  const int64_t n = config_.embed;
  pool.For(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) RmsNorm(x + r * n, weight.data(), n, config_.rms_eps, out + r * n);
  });
}

void Llama::Embed(std::span<const Segment> segments, Workspace& ws) const {
  int64_t row = 0;
  for (const Segment& s : segments) {
    for (int32_t token : s.tokens) {
      Dequantize(embedding_.dtype, embedding_.row(token), config_.embed,
                 ws.hidden.data() + row * config_.embed);
      ++row;
    }
  }
}

void Llama::AttentionBlock(const Layer& layer, int index, std::span<const Segment> segments,
                           bool same_positions, Workspace& ws, ThreadPool& pool) const {
  const int64_t q_dims = static_cast<int64_t>(config_.heads) * config_.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
  Norm(layer.attn_norm, ws.hidden.data(), ws.rows, ws.normed.data(), pool);
  ws.activations.Set(ws.normed.data(), ws.rows, config_.embed, compute_, pool);
  const MatMulTarget qkv[] = {
      {&layer.q, ws.q.data(), q_dims}, {&layer.k, ws.k.data(), k_dims}, {&layer.v, ws.v.data(), k_dims}};
  MatMulMany(qkv, ws.activations, pool);
  AddBias(layer.q_bias, ws.rows, ws.q.data());
  AddBias(layer.k_bias, ws.rows, ws.k.data());
  AddBias(layer.v_bias, ws.rows, ws.v.data());
  RotateQueriesAndKeys(config_, rope_, same_positions, ws, pool);

  AttentionShape shape;
  shape.heads = config_.heads;
  shape.kv_heads = config_.kv_heads;
  shape.head_dim = config_.head_dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  shape.compute = compute_;
  AttendThroughCaches(segments, index, shape, same_positions, ws, pool);
}

void Llama::ProjectAttended(const Layer& layer, int64_t rows, Workspace& ws, ThreadPool& pool) const {
  ws.activations.Set(ws.attended.data(), rows, static_cast<int64_t>(config_.heads) * config_.head_dim,
                     compute_, pool);
  MatMul(layer.o, ws.activations, ws.projected.data(), config_.embed, pool);
  AddBias(layer.o_bias, rows, ws.projected.data());
  AddInPlace(ws.hidden.data(), ws.projected.data(), rows * config_.embed);
}

void Llama::MlpBlock(const Layer& layer, int64_t rows, Workspace& ws, ThreadPool& pool) const {
  Norm(layer.ffn_norm, ws.hidden.data(), rows, ws.normed.data(), pool);
  ws.activations.Set(ws.normed.data(), rows, config_.embed, compute_, pool);
  MatMulSwiGlu(layer.gate, layer.up, ws.activations, ws.gate.data(), ws.up.data(), pool);
  ws.activations.Set(ws.gate.data(), rows, config_.ffn, compute_, pool);
  MatMul(layer.down, ws.activations, ws.projected.data(), config_.embed, pool);
  AddInPlace(ws.hidden.data(), ws.projected.data(), rows * config_.embed);
}

void Llama::Forward(std::span<const Segment> segments, Workspace& ws, ThreadPool& pool) const {
  const int64_t q_dims = static_cast<int64_t>(config_.heads) * config_.head_dim;
  const int64_t k_dims = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
  ws.rows = 0;
  for (const Segment& s : segments) ws.rows += static_cast<int64_t>(s.tokens.size());
  for (std::vector<float>* buffer : {&ws.hidden, &ws.normed, &ws.projected})
    Reserve(*buffer, ws.rows * config_.embed);
  for (std::vector<float>* buffer : {&ws.q, &ws.attended}) Reserve(*buffer, ws.rows * q_dims);
  for (std::vector<float>* buffer : {&ws.k, &ws.v}) Reserve(*buffer, ws.rows * k_dims);
  for (std::vector<float>* buffer : {&ws.gate, &ws.up}) Reserve(*buffer, ws.rows * config_.ffn);
  Reserve(ws.sink_mass, config_.layers * ws.rows * config_.heads);

  Embed(segments, ws);
  const bool same_positions = PreparePositions(segments, rope_, ws, pool);
  int64_t outputs = ws.rows;  // rows that go on behind the last layer's attention
  for (int i = 0; i < config_.layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    AttentionBlock(layer, i, segments, same_positions, ws, pool);
    if (i + 1 == config_.layers) outputs = KeepOutputs(segments, config_.embed, q_dims, ws);
    ProjectAttended(layer, outputs, ws, pool);
    MlpBlock(layer, outputs, ws, pool);
  }
  Norm(output_norm_, ws.hidden.data(), outputs, ws.hidden.data(), pool);
  for (const Segment& s : segments) s.cache->Advance(static_cast<int64_t>(s.tokens.size()));
}

void Llama::Logits(Workspace& ws, std::span<const int64_t> rows, float* logits, ThreadPool& pool) const {
  ws.activations.Set(GatherHidden(rows, config_.embed, ws), static_cast<int64_t>(rows.size()), config_.embed,
                     compute_, pool);
  MatMul(output_, ws.activations, logits, config_.vocab, pool);
}

}  // namespace

Result<std::unique_ptr<const Model>> LoadLlama(const TensorFile& file, ModelConfig config,
                                               const LoadOptions& options, ThreadPool& pool) {
  auto model = std::make_unique<Llama>();
  BALLAST_RETURN_IF_ERROR(model->Init(file, std::move(config), options, pool));
  return std::unique_ptr<const Model>(std::move(model));
}

}  // namespace ballast
