#include "formats/hf_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "formats/hf_config_impl.h"
#include "formats/text.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using K = HfKey::Kind;
using W = HfKey::When;
using F = HfFamily;

constexpr int64_t kMaxLayers = 4096;

}  // namespace

std::string ShownJson(const Json& value) {
  if (value.is_string()) return "the text " + QuoteName(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.dump();
}

Status ConfigTranslator::Take(const HfKey& key) {
  std::string_view names = key.names;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('|'));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const Json* value = Find(json_, name);
    if (value == nullptr) continue;
    if (value->is_null()) {
      if (key.when == W::kRequired) break;
      return Status();  // "none", which is not the default
    }
    switch (key.kind) {
      case K::kInt: {
        BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> v, Int(json_, name));
        Add(key.gguf, *v);
        return Status();
      }
      case K::kFloat: {
        BALLAST_ASSIGN_OR_RETURN(const std::optional<double> v, Number(json_, name));
        Add(key.gguf, *v);
        return Status();
      }
      case K::kBool: {
        BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> v, Bool(json_, name));
        Add(key.gguf, *v);
        return Status();
      }
      case K::kText: {
        BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> v, Text(json_, name));
        Add(key.gguf, *v);
        return Status();
      }
    }
  }
  if (key.when == W::kRequired) {
    const bool number = key.kind == K::kInt || key.kind == K::kFloat;
    return Refuse(key.names.substr(0, key.names.find('|')), number ? "a number" : "a value", "no such key");
  }
  if (key.when == W::kOptional) return Status();
  if (key.kind == K::kBool) {
    Add(key.gguf, key.fallback != 0);
  } else if (key.kind == K::kInt) {
    Add(key.gguf, static_cast<int64_t>(key.fallback));
  } else {
    Add(key.gguf, key.fallback);
  }
  return Status();
}

Status ConfigTranslator::TakeLayers() {
  const double layers = Added("block_count").value_or(0);
  if (layers < 1 || layers > kMaxLayers) {
    return Refuse("num_hidden_layers", "1 to " + std::to_string(kMaxLayers),
                  std::to_string(static_cast<int64_t>(layers)));
  }
  out_.layers = static_cast<int64_t>(layers);
  return Status();
}

Status ConfigTranslator::TakeFamily() {
  if (family_.Is(F::kGemmaScale)) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<double> scalar, Number(json_, "query_pre_attn_scalar"));
    const double value = scalar.value_or(256);
    if (!(value > 0)) return Refuse("query_pre_attn_scalar", "a number above 0", std::to_string(value));
    Add("attention.scale", 1.0 / std::sqrt(value));
  }
  if (family_.architecture == "stablelm") {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> norms, Bool(json_, "qk_layernorm"));
    if (norms.value_or(false)) {
      return Refuse("qk_layernorm", "false (norms of single heads are read from GGUF files only)", "true");
    }
  }
  if (family_.Is(F::kFalcon)) return TakeFalcon();
  if (family_.Is(F::kMpt)) return TakeMpt();
  return Status();
}

// How many key heads there are, and how the fused rows lie, depends on two switches that came one after the
// other.
Status ConfigTranslator::TakeFalcon() {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> grouped, Bool(json_, "new_decoder_architecture"));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> multi_query, Bool(json_, "multi_query"));
  BALLAST_ASSIGN_OR_RETURN(std::optional<int64_t> kv_heads, Int(json_, "num_kv_heads"));
  if (!kv_heads.has_value()) {
    BALLAST_ASSIGN_OR_RETURN(kv_heads, Int(json_, "n_head_kv"));
  }
  const auto heads = static_cast<int64_t>(Added("attention.head_count").value_or(0));
  int64_t count = heads;
  if (grouped.value_or(false)) {
    count = kv_heads.value_or(heads);
  } else if (multi_query.value_or(true)) {
    count = 1;
  }
  Add("attention.head_count_kv", count);
  per_head_ = grouped.value_or(false) || !multi_query.value_or(true);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> ffn, Int(json_, "ffn_hidden_size"));
  Add("feed_forward_length", ffn.value_or(4 * static_cast<int64_t>(Added("embedding_length").value_or(0))));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> alibi, Bool(json_, "alibi"));
  alibi_ = alibi.value_or(false);
  if (alibi_) Add("attention.max_alibi_bias", 8.0);
  return Status();
}

Status ConfigTranslator::TakeMpt() {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> ratio, Number(json_, "expansion_ratio"));
  const double ffn = ratio.value_or(4) * Added("embedding_length").value_or(0);
  if (!(ffn >= 1 && ffn < 1e15)) return Refuse("expansion_ratio", "a number above 0", std::to_string(*ratio));
  Add("feed_forward_length", static_cast<int64_t>(ffn));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> alibi, Bool(json_, "attn_config.alibi"));
  if (!alibi.value_or(true)) {
    return Refuse("attn_config.alibi", "true (learned positions cannot slide)", "false");
  }
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> bias, Number(json_, "attn_config.alibi_bias_max"));
  Add("attention.max_alibi_bias", bias.value_or(8));
  return Status();
}

// By layer: does it see a window only. Empty when the config does not tell layers apart.
Result<std::vector<bool>> ConfigTranslator::LocalLayers() const {
  std::vector<bool> local;
  const Json* types = Find(json_, "layer_types");
  if (types != nullptr && types->is_array()) {
    if (static_cast<int64_t>(types->size()) != out_.layers) {
      return Refuse("layer_types", "one for each of the " + std::to_string(out_.layers) + " layers",
                    std::to_string(types->size()));
    }
    for (const Json& type : *types) {
      if (type != "sliding_attention" && type != "full_attention") {
        return Refuse("layer_types", "full_attention or sliding_attention", ShownJson(type));
      }
      local.push_back(type == "sliding_attention");
    }
    return local;
  }
  int64_t every = 0;
  if (family_.Is(F::kAlternating)) every = 2;
  if (family_.Is(F::kLocalPattern)) {
    BALLAST_ASSIGN_OR_RETURN(std::optional<int64_t> given, Int(json_, "sliding_window_pattern"));
    if (!given.has_value()) {
      BALLAST_ASSIGN_OR_RETURN(given, Int(json_, "_sliding_window_pattern"));
    }
    every = given.value_or(static_cast<int64_t>(family_.local_pattern));
    if (every < 1) return Refuse("sliding_window_pattern", "1 or more", std::to_string(every));
  }
  if (every > 0) {
    for (int64_t i = 0; i < out_.layers; ++i) local.push_back((i + 1) % every != 0);
  }
  if (family_.Is(F::kLocalNeedsFlag)) {  // Qwen: the first max_window_layers see everything
    BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> first, Int(json_, "max_window_layers"));
    for (int64_t i = 0; first.has_value() && i < out_.layers; ++i) local.push_back(i >= *first);
  }
  return local;
}

Status ConfigTranslator::TakeWindow() {
  if (family_.Is(F::kLocalNeedsFlag)) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> used, Bool(json_, "use_sliding_window"));
    if (!used.value_or(false)) return Status();
  }
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> window, Int(json_, "sliding_window"));
  if (window.has_value() && !Added("attention.sliding_window").has_value()) {
    Add("attention.sliding_window", *window);
  }
  if (!Added("attention.sliding_window").has_value()) return Status();
  BALLAST_ASSIGN_OR_RETURN(local_, LocalLayers());
  if (!local_.empty()) Add("attention.sliding_window_pattern", local_);
  return Status();
}

Status ConfigTranslator::TakeNope() {
  if (family_.Is(F::kNopeGlobal) && !local_.empty()) Add("ballast.rope.layers", local_);
  if (!family_.Is(F::kSomeNope)) return Status();
  std::vector<bool> rotates;
  const Json* list = Find(json_, "no_rope_layers");  // 1 where it rotates, whatever its name
  if (list != nullptr && list->is_array()) {
    for (const Json& value : *list) {
      if (value != 0 && value != 1) return Refuse("no_rope_layers", "a list of 0 and 1", ShownJson(value));
      rotates.push_back(value == 1);
    }
    if (static_cast<int64_t>(rotates.size()) != out_.layers) {
      return Refuse("no_rope_layers", "one for each of the " + std::to_string(out_.layers) + " layers",
                    std::to_string(rotates.size()));
    }
  } else {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> given, Int(json_, "no_rope_layer_interval"));
    const int64_t every = given.value_or(4);
    Add("no_rope_layer_interval", every);
    if (every < 1) return Refuse("no_rope_layer_interval", "1 or more", std::to_string(every));
    for (int64_t i = 0; i < out_.layers; ++i) rotates.push_back((i + 1) % every != 0);
  }
  Add("ballast.rope.layers", std::move(rotates));
  return Status();
}

Result<HfConfig> ReadHfConfig(const std::string& name, std::string_view text) {
  BALLAST_ASSIGN_OR_RETURN(const Json json, ParseJson(name, text));
  const auto type = json.find("model_type");
  if (type == json.end() || !type->is_string()) {
    return Status::Expected(Code::kModel, name + ": model_type", "one of " + KnownHfFamilies(),
                            type == json.end() ? "no such key" : ShownJson(*type));
  }
  HfConfig out;
  out.family = FindHfFamily(type->get_ref<const std::string&>());
  if (out.family == nullptr) {
    return Status::Expected(Code::kModel, name + ": model_type", "one of " + KnownHfFamilies(),
                            QuoteName(type->get_ref<const std::string&>()));
  }
  out.metadata.push_back({"general.architecture", std::string(out.family->architecture)});
  if (out.family->Is(F::kOnlyNamed)) return out;
  // A model that also sees images keeps its language model's keys in an object of their own.
  const auto inner = json.find("text_config");
  const Json& config = inner != json.end() && inner->is_object() ? *inner : json;
  BALLAST_RETURN_IF_ERROR(ConfigTranslator(name, config, *out.family, &out).Run());
  return out;
}

}  // namespace ballast
