#include "model/config.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "model/families.h"

namespace ballast {
namespace {

// Reads "<architecture>.<suffix>" keys and turns absences and absurd values into one clear line.
class ConfigReader {
 public:
  ConfigReader(const TensorFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  // An integer in [low, high]; `fallback` when absent, unless it is below `low`: then the key is required.
  Status Int(std::string_view suffix, int64_t low, int64_t high, int64_t fallback, int64_t& out) const {
    const std::string key = prefix_ + std::string(suffix);
    BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> value, file_.Int(key));
    if (!value && fallback < low) return Missing(key, "an integer");
    out = value.value_or(fallback);
    if (value && (out < low || out > high)) {
      return Status::Expected(Code::kModel, file_.path() + ": " + key,
                              std::to_string(low) + " to " + std::to_string(high), std::to_string(out));
    }
    return Status();
  }
  Status Int(std::string_view suffix, int64_t low, int64_t high, int64_t fallback, int& out) const {
    int64_t wide = 0;
    BALLAST_RETURN_IF_ERROR(Int(suffix, low, high, fallback, wide));
    out = static_cast<int>(wide);
    return Status();
  }
  // A finite number above zero.
  Status Positive(std::string_view suffix, double fallback, double& out) const {
    const std::string key = prefix_ + std::string(suffix);
    BALLAST_ASSIGN_OR_RETURN(const std::optional<double> value, file_.Float(key));
    if (!value && fallback <= 0) return Missing(key, "a number");
    out = value.value_or(fallback);
    if (!std::isfinite(out) || out <= 0) {
      return Status::Expected(Code::kModel, file_.path() + ": " + key, "a finite number above 0",
                              std::to_string(out));
    }
    return Status();
  }
  Result<std::optional<std::string>> String(std::string_view suffix) const {
    return file_.String(prefix_ + std::string(suffix));
  }
  bool Has(std::string_view suffix) const { return file_.Find(prefix_ + std::string(suffix)) != nullptr; }

  Status Refuse(std::string_view suffix, std::string_view expected, std::string_view found) const {
    return Status::Expected(Code::kModel, file_.path() + ": " + prefix_ + std::string(suffix), expected,
                            found);
  }

 private:
  Status Missing(const std::string& key, std::string_view what) const {
    return Status::Expected(Code::kModel, file_.path() + ": " + key, what, "no such key");
  }
  const TensorFile& file_;
  std::string prefix_;
};

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

Result<ModelConfig> ReadConfig(const TensorFile& file) {
  ModelConfig c;
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> architecture,
                           file.String("general.architecture"));
  if (!architecture) {
    return Status::Expected(Code::kModel, file.path() + ": general.architecture", "a name", "no such key");
  }
  c.architecture = *architecture;
  const Family* family = FindFamily(c.architecture);
  if (family == nullptr || !family->runs) {
    return Status::Expected(Code::kModel, file.path() + ": general.architecture",
                            "one of " + RunnableFamilies(), c.architecture,
                            family == nullptr ? "" : std::string(family->note));
  }
  c.rope_form = family->rope_form;
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> name, file.String("general.name"));
  c.name = name.value_or(file.path().substr(file.path().find_last_of('/') + 1));

  const ConfigReader reader(file, c.architecture);
  BALLAST_RETURN_IF_ERROR(ReadSizes(reader, c));
  double eps = 0;
  BALLAST_RETURN_IF_ERROR(reader.Positive("attention.layer_norm_rms_epsilon", -1, eps));
  c.rms_eps = static_cast<float>(eps);
  BALLAST_RETURN_IF_ERROR(reader.Int("rope.dimension_count", 2, c.head_dim, c.head_dim, c.rope_dims));
  if (c.rope_dims % 2 != 0)
    return reader.Refuse("rope.dimension_count", "an even number", std::to_string(c.rope_dims));
  BALLAST_RETURN_IF_ERROR(reader.Positive("rope.freq_base", 10000.0, c.rope_base));
  BALLAST_RETURN_IF_ERROR(ReadRopeScaling(reader, c.trained_context, c.rope_scaling));

  const TensorInfo* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return Status::Expected(Code::kModel, file.path() + ": token_embd.weight", "a matrix",
                            embedding == nullptr ? "no such tensor" : "another shape");
  }
  c.vocab = embedding->dims[1];
  return c;
}

}  // namespace ballast
