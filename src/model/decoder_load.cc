// A decoder's weights from a model file, under the names that GGUF files use.
#include <numeric>
#include <utility>

#include "model/decoder.h"

namespace ballast {
namespace {

// Reads one decoder's tensors, layer by layer.
class DecoderLoader {
 public:
  DecoderLoader(WeightLoader& loader, const TensorFile& file, const ModelConfig& config,
                const DecoderPlan& plan)
      : loader_(loader),
        file_(file),
        config_(config),
        plan_(plan),
        q_dims_(static_cast<int64_t>(config.heads) * config.head_dim),
        k_dims_(static_cast<int64_t>(config.kv_heads) * config.head_dim) {}

  Status ReadConventions() {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> plus_one, file_.Bool("ballast.norm.plus_one"));
    BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> per_head, file_.Bool("ballast.qkv.per_head"));
    plus_one_ = plus_one.value_or(false);
    per_head_ = per_head.value_or(false);
    return Status();
  }

  // A norm over n values that must be there, or may.
  Status ReadNorm(const std::string& name, int64_t n, bool required, Norm& norm) {
    if (required) {
      BALLAST_ASSIGN_OR_RETURN(norm.weight, loader_.Vector(name + ".weight", n));
    } else {
      BALLAST_ASSIGN_OR_RETURN(norm.weight, loader_.OptionalVector(name + ".weight", n));
    }
    BALLAST_ASSIGN_OR_RETURN(norm.bias, loader_.OptionalVector(name + ".bias", n));
    MakeWhole(norm);
    return Status();
  }

  Status ReadLayer(int index, DecoderLayer& layer) {
    blk_ = "blk." + std::to_string(index) + ".";
    BALLAST_RETURN_IF_ERROR(ReadNorms(layer));
    BALLAST_RETURN_IF_ERROR(ReadAttention(layer));
    BALLAST_RETURN_IF_ERROR(ReadMlp(layer));
    const std::string unused = loader_.Unused(blk_);
    // Constants that some converters wrote down; they follow from the configuration.
    if (unused.empty() || unused == blk_ + "attn_rot_embd" || unused == blk_ + "attn.rotary_emb.inv_freq") {
      return Status();
    }
    return Status::Expected(Code::kModel, file_.path() + ": tensor " + unused,
                            "only tensors that the family " + config_.architecture + " is known to have",
                            "one that would be left out");
  }

 private:
  // Weights as they multiply, however they are stored.
  void MakeWhole(Norm& norm) const {
    if (!plus_one_) return;
    for (float& w : norm.weight) w += 1;
  }

  Status ReadNorms(DecoderLayer& layer) {
    const int64_t n = config_.embed;
    BALLAST_RETURN_IF_ERROR(ReadNorm(blk_ + "attn_norm", n, plan_.pre_norms, layer.attn_norm));
    BALLAST_RETURN_IF_ERROR(ReadNorm(blk_ + "attn_norm_2", n, false, layer.attn_norm_2));
    // In a parallel block the MLP may share the attention's norm.
    BALLAST_RETURN_IF_ERROR(
        ReadNorm(blk_ + "ffn_norm", n, plan_.pre_norms && !plan_.parallel, layer.ffn_norm));
    BALLAST_RETURN_IF_ERROR(
        ReadNorm(blk_ + "post_attention_norm", n, plan_.post_norms, layer.post_attn_norm));
    BALLAST_RETURN_IF_ERROR(ReadNorm(blk_ + "post_ffw_norm", n, plan_.post_norms, layer.post_ffn_norm));
    if (plan_.qk_norm == QkNorm::kNone) return Status();
    BALLAST_RETURN_IF_ERROR(ReadQkNorm(blk_ + "attn_q_norm", q_dims_, layer.q_norm));
    return ReadQkNorm(blk_ + "attn_k_norm", k_dims_, layer.k_norm);
  }

  Status ReadQkNorm(const std::string& name, int64_t dims, Norm& norm) {
    const int64_t counts[] = {plan_.qk_norm == QkNorm::kPerHead ? config_.head_dim : dims, dims};
    BALLAST_ASSIGN_OR_RETURN(norm.weight, loader_.OptionalValues(name + ".weight", counts));
    BALLAST_ASSIGN_OR_RETURN(norm.bias, loader_.OptionalValues(name + ".bias", counts));
    MakeWhole(norm);
    return Status();
  }

  // Rows of a fused matrix that make up Q, K or V: one after another, or head by head as GPT-NeoX and Falcon
  // keep them (the query heads of a KV head, then its key, then its value).
  std::vector<int64_t> FusedRows(int which) const {
    const int64_t group = config_.heads / config_.kv_heads, dim = config_.head_dim;
    std::vector<int64_t> rows;
    if (!per_head_) {
      rows.resize(static_cast<size_t>(which == 0 ? q_dims_ : k_dims_));
      std::iota(rows.begin(), rows.end(), which == 0 ? 0 : q_dims_ + (which - 1) * k_dims_);
      return rows;
    }
    for (int64_t kv = 0; kv < config_.kv_heads; ++kv) {
      const int64_t base = kv * (group + 2) * dim;
      const int64_t from = which == 0 ? 0 : group + which - 1, count = which == 0 ? group : 1;
      for (int64_t r = from * dim; r < (from + count) * dim; ++r) rows.push_back(base + r);
    }
    return rows;
  }

  Status ReadFused(DecoderLayer& layer) {
    const int64_t total = q_dims_ + 2 * k_dims_;
    BALLAST_ASSIGN_OR_RETURN(const std::vector<float> bias,
                             loader_.OptionalVector(blk_ + "attn_qkv.bias", total));
    Weights* weights[] = {&layer.q, &layer.k, &layer.v};
    std::vector<float>* biases[] = {&layer.q_bias, &layer.k_bias, &layer.v_bias};
    for (int which = 0; which < 3; ++which) {
      const std::vector<int64_t> rows = FusedRows(which);
      BALLAST_ASSIGN_OR_RETURN(*weights[which],
                               loader_.Rows(blk_ + "attn_qkv.weight", total, config_.embed, rows));
      if (bias.empty()) continue;
      for (const int64_t row : rows) biases[which]->push_back(bias[row]);
    }
    return Status();
  }

  Status ReadAttention(DecoderLayer& layer) {
    if (loader_.Has(blk_ + "attn_qkv.weight")) {
      BALLAST_RETURN_IF_ERROR(ReadFused(layer));
    } else {
      BALLAST_ASSIGN_OR_RETURN(layer.q, loader_.Matrix(blk_ + "attn_q.weight", q_dims_, config_.embed));
      BALLAST_ASSIGN_OR_RETURN(layer.k, loader_.Matrix(blk_ + "attn_k.weight", k_dims_, config_.embed));
      BALLAST_ASSIGN_OR_RETURN(layer.v, loader_.Matrix(blk_ + "attn_v.weight", k_dims_, config_.embed));
      BALLAST_ASSIGN_OR_RETURN(layer.q_bias, loader_.OptionalVector(blk_ + "attn_q.bias", q_dims_));
      BALLAST_ASSIGN_OR_RETURN(layer.k_bias, loader_.OptionalVector(blk_ + "attn_k.bias", k_dims_));
      BALLAST_ASSIGN_OR_RETURN(layer.v_bias, loader_.OptionalVector(blk_ + "attn_v.bias", k_dims_));
    }
    BALLAST_ASSIGN_OR_RETURN(layer.o, loader_.Matrix(blk_ + "attn_output.weight", config_.embed, q_dims_));
    BALLAST_ASSIGN_OR_RETURN(layer.o_bias, loader_.OptionalVector(blk_ + "attn_output.bias", config_.embed));
    return Status();
  }

  Status ReadMlp(DecoderLayer& layer) {
    const int64_t ffn = config_.ffn, embed = config_.embed;
    if (plan_.gated && !loader_.Has(blk_ + "ffn_gate.weight")) {  // Phi-3: gate and up in one
      std::vector<int64_t> rows(static_cast<size_t>(ffn));
      std::iota(rows.begin(), rows.end(), 0);
      BALLAST_ASSIGN_OR_RETURN(layer.gate, loader_.Rows(blk_ + "ffn_up.weight", 2 * ffn, embed, rows));
      std::iota(rows.begin(), rows.end(), ffn);
      BALLAST_ASSIGN_OR_RETURN(layer.up, loader_.Rows(blk_ + "ffn_up.weight", 2 * ffn, embed, rows));
    } else {
      if (plan_.gated) {
        BALLAST_ASSIGN_OR_RETURN(layer.gate, loader_.Matrix(blk_ + "ffn_gate.weight", ffn, embed));
        BALLAST_ASSIGN_OR_RETURN(layer.gate_bias, loader_.OptionalVector(blk_ + "ffn_gate.bias", ffn));
      }
      BALLAST_ASSIGN_OR_RETURN(layer.up, loader_.Matrix(blk_ + "ffn_up.weight", ffn, embed));
      BALLAST_ASSIGN_OR_RETURN(layer.up_bias, loader_.OptionalVector(blk_ + "ffn_up.bias", ffn));
    }
    BALLAST_ASSIGN_OR_RETURN(layer.down, loader_.Matrix(blk_ + "ffn_down.weight", embed, ffn));
    BALLAST_ASSIGN_OR_RETURN(layer.down_bias, loader_.OptionalVector(blk_ + "ffn_down.bias", embed));
    return Status();
  }

  WeightLoader& loader_;
  const TensorFile& file_;
  const ModelConfig& config_;
  const DecoderPlan& plan_;
  const int64_t q_dims_, k_dims_;
  bool plus_one_ = false;  // norm weights are stored less 1
  bool per_head_ = false;  // fused Q, K, V head by head
  std::string blk_;
};

// Llama 3.1's scaling comes as a tensor of per-frequency divisors, Phi-3's as one for each of two lengths.
Result<std::vector<float>> RopeFactors(WeightLoader& loader, const TensorFile& file, int half) {
  for (const char* name : {"rope_freqs.weight", "rope_factors_short.weight"}) {
    BALLAST_ASSIGN_OR_RETURN(std::vector<float> factors, loader.OptionalVector(name, half));
    for (float f : factors) {
      if (f > 0) continue;
      return Status::Expected(Code::kModel, file.path() + ": tensor " + name, "values above 0",
                              std::to_string(f));
    }
    if (!factors.empty()) return factors;
  }
  return std::vector<float>();
}

}  // namespace

Status Decoder::Load(const TensorFile& file, const LoadOptions& options, ThreadPool& pool) {
  compute_ = options.compute;
  WeightLoader loader(file, compute_, pool);
  loader.QuantizeTo(options.weights);
  DecoderLoader layers(loader, file, config_, plan_);
  const auto report = [&options](double share) {
    if (options.progress) options.progress(share);
  };
  BALLAST_RETURN_IF_ERROR(layers.ReadConventions());
  BALLAST_ASSIGN_OR_RETURN(const std::vector<float> factors,
                           RopeFactors(loader, file, config_.rope_dims / 2));
  for (const RopePlan& rope : plan_.ropes) {
    ropes_.push_back(RopeTable::Make(config_.rope_dims, rope.base, config_.rope_form, rope.scaling, factors));
    ropes_.back().magnitude *= rope.magnitude;
  }
  BALLAST_ASSIGN_OR_RETURN(embedding_, loader.View("token_embd.weight", config_.vocab, config_.embed));
  layers_.resize(static_cast<size_t>(config_.layers));
  for (int i = 0; i < config_.layers; ++i) {
    BALLAST_RETURN_IF_ERROR(layers.ReadLayer(i, layers_[static_cast<size_t>(i)]));
    report(0.9 * (i + 1) / config_.layers);
  }
  BALLAST_RETURN_IF_ERROR(layers.ReadNorm("output_norm", config_.embed, true, output_norm_));
  const std::string output = loader.Has("output.weight") ? "output.weight" : "token_embd.weight";  // tied
  BALLAST_ASSIGN_OR_RETURN(output_, loader.Matrix(output, config_.vocab, config_.embed));
  BALLAST_ASSIGN_OR_RETURN(output_bias_, loader.OptionalVector("output.bias", config_.vocab));
  weight_bytes_ = loader.packed_bytes();
  weight_count_ = loader.packed_elements();
  embedding_is_output_ =
      compute_ == Compute::kFast && output == "token_embd.weight" && output_.dtype() == embedding_.dtype;
  // Else rows of the embedding are read from the file as tokens come up: all at once here, or resident memory
  // would creep up with the vocabulary of an endless text.
  if (!embedding_is_output_) file.Touch(*file.FindTensor("token_embd.weight"));
  report(1.0);
  return Status();
}

Result<std::unique_ptr<const Model>> Decoder::Create(const TensorFile& file, ModelConfig config,
                                                     DecoderPlan plan, const LoadOptions& options,
                                                     ThreadPool& pool) {
  auto model = std::make_unique<Decoder>();
  model->config_ = std::move(config);
  model->plan_ = std::move(plan);
  BALLAST_RETURN_IF_ERROR(model->Load(file, options, pool));
  return std::unique_ptr<const Model>(std::move(model));
}

}  // namespace ballast
