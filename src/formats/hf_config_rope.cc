// How a model's positions rotate, as either version of transformers writes it.
#include <cmath>
#include <utility>

#include "formats/hf_config_impl.h"

namespace ballast {

using Json = nlohmann::json;

// transformers 4 has rope_theta and rope_scaling, 5 has rope_parameters, Gemma's once per kind of layer.
Status ConfigTranslator::TakeRope() {
  static const Json kNone = Json::object();
  const auto object = [](const Json& from, const char* key) -> const Json* {
    const Json* v = Find(from, key);
    return v != nullptr && v->is_object() ? v : nullptr;
  };
  const Json* rope = object(json_, "rope_parameters");
  if (rope == nullptr) rope = object(json_, "rope_scaling");
  if (rope == nullptr) rope = &kNone;
  const Json* local = object(*rope, "sliding_attention");
  if (const Json* full = object(*rope, "full_attention")) rope = full;
  const bool gemma3 = family_.architecture == "gemma3";
  BALLAST_ASSIGN_OR_RETURN(std::optional<double> base, Number(*rope, "rope_theta"));
  for (const char* key : {"rope_theta", "rotary_emb_base"}) {
    if (base.has_value()) break;
    BALLAST_ASSIGN_OR_RETURN(base, Number(json_, key));
  }
  Add("rope.freq_base", base.value_or(gemma3 ? 1e6 : 10000));
  BALLAST_ASSIGN_OR_RETURN(std::optional<double> local_base, Number(json_, "rope_local_base_freq"));
  if (!local_base.has_value() && local != nullptr) {
    BALLAST_ASSIGN_OR_RETURN(local_base, Number(*local, "rope_theta"));
  }
  if (gemma3 || local_base.has_value()) Add("rope.freq_base_swa", local_base.value_or(10000));
  std::optional<double> share;
  for (const Json* from : {rope, &json_}) {
    for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
      if (share.has_value()) continue;
      BALLAST_ASSIGN_OR_RETURN(share, Number(*from, key));
    }
  }
  if (family_.architecture == "gptneox" || family_.architecture == "stablelm") share = share.value_or(0.25);
  if (share.has_value()) {
    if (!(*share > 0 && *share <= 1))
      return Refuse("partial_rotary_factor", "above 0, up to 1", std::to_string(*share));
    Add("rope.dimension_count", static_cast<int64_t>(HeadDim() * *share));
  }
  return TakeScaling(*rope);
}

Status ConfigTranslator::TakeScaling(const Json& rope) {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> young, Text(rope, "rope_type"));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> old, Text(rope, "type"));
  std::string type = young.value_or(old.value_or("default"));
  if (type == "default") return Status();
  if (type == "su") type = "longrope";
  if (type == "longrope") return TakeLongRope(rope);
  Add("rope.scaling.type", type);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> factor, Number(rope, "factor"));
  if (factor.has_value()) Add("rope.scaling.factor", *factor);
  BALLAST_ASSIGN_OR_RETURN(std::optional<int64_t> original, Int(rope, "original_max_position_embeddings"));
  if (!original.has_value()) {
    BALLAST_ASSIGN_OR_RETURN(original, Int(json_, "original_max_position_embeddings"));
  }
  if (original.has_value()) Add("rope.scaling.original_context_length", *original);
  for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<double> value, Number(rope, key));
    if (value.has_value()) Add(std::string("rope.scaling.") + key, *value);
  }
  return type == "yarn" ? TakeYarn(rope, factor.value_or(1)) : Status();
}

// As GGUF files of Phi-3 have it: two tensors of divisors, the original length and a magnitude.
Status ConfigTranslator::TakeLongRope(const Json& rope) {
  BALLAST_ASSIGN_OR_RETURN(std::optional<int64_t> original, Int(rope, "original_max_position_embeddings"));
  if (!original.has_value()) {
    BALLAST_ASSIGN_OR_RETURN(original, Int(json_, "original_max_position_embeddings"));
  }
  const double length = Added("context_length").value_or(0);
  const double trained = static_cast<double>(original.value_or(static_cast<int64_t>(length)));
  if (!(trained > 1)) return Refuse("original_max_position_embeddings", "2 or more", std::to_string(trained));
  Add("rope.scaling.original_context_length", static_cast<int64_t>(trained));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> given, Number(rope, "attention_factor"));
  const double scale = length / trained;
  Add("rope.scaling.attn_factor",
      given.value_or(scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(trained)) : 1.0));
  BALLAST_RETURN_IF_ERROR(TakeFactors(rope, "short_factor", "rope_factors_short.weight"));
  return TakeFactors(rope, "long_factor", "rope_factors_long.weight");
}

// GGUF's attn_factor multiplies 0.1 ln(factor) + 1; transformers' attention_factor replaces it.
Status ConfigTranslator::TakeYarn(const Json& rope, double factor) {
  if (!(factor > 0)) return Refuse("factor", "a number above 0", std::to_string(factor));
  const double usual = factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
  BALLAST_ASSIGN_OR_RETURN(std::optional<double> attention, Number(rope, "attention_factor"));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> mscale, Number(rope, "mscale"));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> mscale_all, Number(rope, "mscale_all_dim"));
  const auto magnitude = [&](double scale) { return factor > 1 ? 0.1 * scale * std::log(factor) + 1 : 1; };
  if (!attention.has_value() && mscale.value_or(0) != 0 && mscale_all.value_or(0) != 0) {
    attention = magnitude(*mscale) / magnitude(*mscale_all);
  }
  if (attention.has_value()) Add("rope.scaling.attn_factor", *attention / usual);
  for (const char* key : {"beta_fast", "beta_slow"}) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<double> value, Number(rope, key));
    if (value.has_value()) Add(std::string("rope.scaling.yarn_") + key, *value);
  }
  return Status();
}

Status ConfigTranslator::TakeFactors(const Json& rope, std::string_view key, std::string_view tensor) {
  const Json* list = Find(rope, key);
  if (list == nullptr || !list->is_array() || list->empty()) {
    return Refuse(key, "a list of numbers", list == nullptr ? "no such key" : ShownJson(*list));
  }
  std::vector<float> values;
  for (const Json& value : *list) {
    if (!value.is_number()) return Refuse(key, "a list of numbers", ShownJson(value));
    values.push_back(value.get<float>());
  }
  out_.made.emplace_back(tensor, std::move(values));
  return Status();
}

}  // namespace ballast
