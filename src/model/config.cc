#include "model/config.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "model/config_reader.h"
#include "model/families.h"

namespace ballast {
namespace {

// "rope.scaling.*": fixed-frequency scalings obey the law of the cache as they are.
Status ReadRopeScaling(const ConfigReader& reader, int64_t trained_context, RopeScaling& scaling) {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> type, reader.String("rope.scaling.type"));
  std::string kind = type.value_or("none");
  if (!type && reader.Has("rope.scale_linear")) kind = "linear";  // the older spelling of linear scaling
  if (kind == "none") return Status();
  const std::string_view factor_key =
      reader.Has("rope.scale_linear") ? "rope.scale_linear" : "rope.scaling.factor";
  BALLAST_RETURN_IF_ERROR(reader.Positive(factor_key, 1.0, scaling.factor));
  BALLAST_RETURN_IF_ERROR(reader.Positive("rope.scaling.original_context_length",
                                          static_cast<double>(trained_context), scaling.original_context));
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
    return Status();
  }
  if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::kLlama3;
    BALLAST_RETURN_IF_ERROR(reader.Positive("rope.scaling.low_freq_factor", 1.0, scaling.low_freq_factor));
    return reader.Positive("rope.scaling.high_freq_factor", 4.0, scaling.high_freq_factor);
  }
  if (kind == "yarn") {
    scaling.kind = RopeScaling::Kind::kYarn;
    BALLAST_RETURN_IF_ERROR(reader.Positive("rope.scaling.yarn_beta_fast", 32.0, scaling.beta_fast));
    BALLAST_RETURN_IF_ERROR(reader.Positive("rope.scaling.yarn_beta_slow", 1.0, scaling.beta_slow));
    if (reader.Has("rope.scaling.attn_factor")) {
      double extra = 1;
      BALLAST_RETURN_IF_ERROR(reader.Positive("rope.scaling.attn_factor", 1.0, extra));
      scaling.attention_factor = extra * (0.1 * std::log(scaling.factor) + 1.0);
    }
    return Status();
  }
  return reader.Refuse("rope.scaling.type", "none, linear, llama3 or yarn", kind);
}

Status ReadSizes(const ConfigReader& reader, ModelConfig& c) {
  BALLAST_RETURN_IF_ERROR(reader.Int("block_count", 1, 4096, -1, c.layers));
  BALLAST_RETURN_IF_ERROR(reader.Int("embedding_length", 1, 1 << 20, -1, c.embed));
  BALLAST_RETURN_IF_ERROR(reader.Int("feed_forward_length", 1, 1 << 22, -1, c.ffn));
  BALLAST_RETURN_IF_ERROR(reader.Int("context_length", 1, int64_t{1} << 32, -1, c.trained_context));
  BALLAST_RETURN_IF_ERROR(reader.Int("attention.head_count", 1, 4096, -1, c.heads));
  BALLAST_RETURN_IF_ERROR(reader.Int("attention.head_count_kv", 1, 4096, c.heads, c.kv_heads));
  if (c.heads % c.kv_heads != 0) {
    return reader.Refuse("attention.head_count_kv", "a divisor of head_count " + std::to_string(c.heads),
                         std::to_string(c.kv_heads));
  }
  BALLAST_RETURN_IF_ERROR(
      reader.Int("attention.key_length", 1, 512, std::max<int64_t>(1, c.embed / c.heads), c.head_dim));
  int64_t value_length = 0;
  BALLAST_RETURN_IF_ERROR(reader.Int("attention.value_length", 1, 512, c.head_dim, value_length));
  if (value_length != c.head_dim) {
    return reader.Refuse("attention.value_length", "the key length " + std::to_string(c.head_dim),
                         std::to_string(value_length));
  }
  if (c.head_dim % 8 != 0 || c.head_dim > 512) {
    return reader.Refuse("attention.key_length", "a multiple of 8 up to 512", std::to_string(c.head_dim));
  }
  int64_t experts = 0;
  BALLAST_RETURN_IF_ERROR(reader.Int("expert_count", 0, 1 << 20, 0, experts));
  if (experts > 0)
    return reader.Refuse("expert_count", "0 (mixtures of experts are not supported)",
                         std::to_string(experts));
  return Status();
}

}  // namespace

namespace {

// What most families share; theirs to change.
Status SharedPlan(const ConfigReader& reader, const Family& family, const ModelConfig& c, DecoderPlan& plan) {
  plan.norm = family.norm;
  const std::string_view eps =
      family.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  BALLAST_RETURN_IF_ERROR(reader.Positive(eps, -1, plan.norm_eps));
  BALLAST_RETURN_IF_ERROR(reader.OptionalPositive("attention.scale", plan.attention_scale));
  plan.layers.resize(static_cast<size_t>(c.layers));
  RopePlan rope;
  rope.base = c.rope_base;
  rope.scaling = c.rope_scaling;
  plan.ropes = {rope};
  return Status();
}

Status ReadRope(const ConfigReader& reader, ModelConfig& c) {
  BALLAST_RETURN_IF_ERROR(reader.Int("rope.dimension_count", 2, c.head_dim, c.head_dim, c.rope_dims));
  if (c.rope_dims % 2 != 0)
    return reader.Refuse("rope.dimension_count", "an even number", std::to_string(c.rope_dims));
  BALLAST_RETURN_IF_ERROR(reader.Positive("rope.freq_base", 10000.0, c.rope_base));
  BALLAST_RETURN_IF_ERROR(ReadRopeScaling(reader, c.trained_context, c.rope_scaling));
  // Weights from other formats may keep the pairs of a rotation apart where GGUF files keep them together.
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> half_split,
                           reader.file().Bool("ballast.rope.half_split"));
  if (half_split.value_or(false)) c.rope_form = RopeForm::kHalfSplit;
  return Status();
}

// A folder of Hugging Face names the activation; GGUF's families each have their own. The gated GELU is
// Gemma's, whose configs say "gelu" and mean its approximation.
Status ReadActivation(const ConfigReader& reader, DecoderPlan& plan) {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> name, reader.file().String("ballast.hidden_act"));
  if (!name) return Status();
  if (*name == "silu" || *name == "swish") {
    plan.activation = Activation::kSilu;
  } else if (*name == "gelu_new" || *name == "gelu_fast" || *name == "gelu_pytorch_tanh") {
    plan.activation = Activation::kGeluTanh;
  } else if (*name == "gelu") {
    const bool gemma = plan.gated && plan.activation == Activation::kGeluTanh;
    if (!gemma) plan.activation = Activation::kGelu;
  } else {
    return Status::Expected(Code::kModel, reader.file().path() + ": hidden_act",
                            "silu, gelu, gelu_new, gelu_fast or gelu_pytorch_tanh", *name);
  }
  return Status();
}

void CountLayers(const DecoderPlan& plan, ModelConfig& c) {
  for (const LayerPlan& layer : plan.layers) {
    if (layer.local_window > 0) {
      ++c.local_layers;
      c.local_window = layer.local_window;
    }
    if (layer.rope < 0 && plan.slopes.empty()) ++c.nope_layers;
  }
}

}  // namespace

Result<ModelPlan> ReadModelPlan(const TensorFile& file) {
  ModelPlan out;
  ModelConfig& c = out.config;
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> architecture,
                           file.String("general.architecture"));
  if (!architecture) {
    return Status::Expected(Code::kModel, file.path() + ": general.architecture", "a name", "no such key");
  }
  c.architecture = *architecture;
  const Family* family = FindFamily(c.architecture);
  if (family == nullptr || family->plan == nullptr) {
    return Status::Expected(Code::kModel, file.path() + ": general.architecture",
                            "one of " + RunnableFamilies(), c.architecture,
                            family == nullptr ? "" : "`ballast inspect` says more");
  }
  c.rope_form = family->rope_form;
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> name, file.String("general.name"));
  c.name = name.value_or(file.path().substr(file.path().find_last_of('/') + 1));

  const ConfigReader reader(file, c.architecture);
  BALLAST_RETURN_IF_ERROR(ReadSizes(reader, c));
  BALLAST_RETURN_IF_ERROR(ReadRope(reader, c));
  const TensorInfo* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return Status::Expected(Code::kModel, file.path() + ": token_embd.weight", "a matrix",
                            embedding == nullptr ? "no such tensor" : "another shape");
  }
  c.vocab = embedding->dims[1];
  BALLAST_RETURN_IF_ERROR(SharedPlan(reader, *family, c, out.plan));
  BALLAST_RETURN_IF_ERROR(family->plan(reader, c, out.plan));
  BALLAST_RETURN_IF_ERROR(ReadActivation(reader, out.plan));
  CountLayers(out.plan, c);
  return out;
}

Result<ModelConfig> ReadConfig(const TensorFile& file) {
  BALLAST_ASSIGN_OR_RETURN(ModelPlan plan, ReadModelPlan(file));
  return std::move(plan.config);
}

}  // namespace ballast
