#include "model/families.h"

#include <cstdio>
#include <variant>

#include "model/config.h"

namespace ballast {
namespace {

using P = Family::Positions;
constexpr std::string_view kLater = "streamable in principle; this version does not run the family yet";

constexpr Family kFamilies[] = {
    {"llama", "Llama 1 to 3, Mistral, SmolLM 1 and 2, TinyLlama, Yi", P::kRope, PlanLlama,
     RopeForm::kInterleaved, NormKind::kRms},
    {"smollm3", "SmolLM3", P::kRope, PlanSmolLm3, RopeForm::kInterleaved, NormKind::kRms,
     "none in every fourth layer"},
    {"granite", "Granite 3", P::kRope, PlanGranite, RopeForm::kInterleaved, NormKind::kRms},
    {"qwen2", "Qwen2, Qwen2.5", P::kRope, PlanQwen2, RopeForm::kHalfSplit, NormKind::kRms},
    {"qwen3", "Qwen3", P::kRope, PlanQwen3, RopeForm::kHalfSplit, NormKind::kRms},
    {"gemma", "Gemma", P::kRope, PlanGemma, RopeForm::kHalfSplit, NormKind::kRms},
    {"gemma2", "Gemma 2", P::kRope, PlanGemma2, RopeForm::kHalfSplit, NormKind::kRms},
    {"gemma3", "Gemma 3 (text)", P::kRope, PlanGemma3, RopeForm::kHalfSplit, NormKind::kRms},
    {"phi2", "Phi-1.5, Phi-2", P::kRope, PlanPhi2, RopeForm::kHalfSplit, NormKind::kLayer, "partial"},
    {"phi3", "Phi-3, Phi-3.5, Phi-4", P::kRope, PlanPhi3, RopeForm::kHalfSplit, NormKind::kRms,
     "partial in Phi-4-mini"},
    {"gptneox", "GPT-NeoX, Pythia, Dolly", P::kRope, PlanGptNeoX, RopeForm::kHalfSplit, NormKind::kLayer,
     "partial"},
    {"starcoder2", "StarCoder2", P::kRope, PlanStarCoder2, RopeForm::kHalfSplit, NormKind::kLayer},
    {"falcon", "Falcon 7B, 40B", P::kRope, PlanFalcon, RopeForm::kHalfSplit, NormKind::kLayer},
    {"mpt", "MPT", P::kAlibi, PlanMpt, RopeForm::kHalfSplit, NormKind::kLayer},
    {"stablelm", "StableLM 2, StableLM 3B", P::kRope, PlanStableLm, RopeForm::kHalfSplit, NormKind::kLayer,
     "partial"},
    {"olmo2", "OLMo-2", P::kRope, PlanOlmo2, RopeForm::kHalfSplit, NormKind::kRms},
    {"command-r", "Command-R, Aya", P::kRope, PlanCohere, RopeForm::kInterleaved, NormKind::kLayer},
    {"cohere2", "Command-R7B", P::kRope, PlanCohere2, RopeForm::kInterleaved, NormKind::kLayer,
     "none in global layers"},
    {"gptj", "GPT-J", P::kRope, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"gpt-oss", "gpt-oss", P::kRope, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"bloom", "BLOOM", P::kAlibi, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"deepseek2", "DeepSeek V2, V3", P::kMla, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"gpt2", "GPT-2", P::kLearned, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"opt", "OPT", P::kLearned, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"starcoder", "StarCoder", P::kLearned, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"bert", "BERT", P::kEncoder, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"nomic-bert", "Nomic BERT", P::kEncoder, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"t5", "T5", P::kEncoder, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"mamba", "Mamba", P::kRecurrent, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"mamba2", "Mamba 2", P::kRecurrent, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"rwkv6", "RWKV 6", P::kRecurrent, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
    {"rwkv7", "RWKV 7", P::kRecurrent, nullptr, RopeForm::kHalfSplit, NormKind::kRms},
};

std::string DescribeRope(const ModelConfig& config) {
  char text[128];
  if (config.rope_dims == config.head_dim) {
    std::snprintf(text, sizeof text, "RoPE, full (%d dimensions), base %.0f", config.head_dim,
                  config.rope_base);
  } else {
    std::snprintf(text, sizeof text, "RoPE, partial (%d of %d dimensions), base %.0f", config.rope_dims,
                  config.head_dim, config.rope_base);
  }
  std::string out = text;
  if (config.nope_layers > 0) {
    std::snprintf(text, sizeof text, "; %d of %d layers do not rotate (NoPE)", config.nope_layers,
                  config.layers);
    out += text;
  }
  return out;
}

std::string DescribePositions(const Family& family, const ModelConfig* config) {
  switch (family.positions) {
    case P::kRope:
      return config == nullptr ? "RoPE" : DescribeRope(*config);
    case P::kAlibi:
      return "ALiBi";
    case P::kLearned:
      return "learned absolute positions";
    case P::kRecurrent:
      return "none (recurrent state)";
    case P::kEncoder:
      return "encoder";
    case P::kMla:
      return "RoPE on a part of each key (MLA)";
  }
  return "unknown";
}

// " It has 15 layers with a trained window of 512, ...", or nothing.
std::string DescribeLocal(const ModelConfig& config) {
  if (config.local_layers == 0) return "";
  char text[192];
  std::snprintf(text, sizeof text,
                "; %d of %d layers keep their trained window of %lld tokens, which no policy changes",
                config.local_layers, config.layers, static_cast<long long>(config.local_window));
  return text;
}

}  // namespace

std::span<const Family> AllFamilies() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family& f : kFamilies) {
    if (f.architecture == architecture) return &f;
  }
  return nullptr;
}

std::string RunnableFamilies() {
  std::string out;
  for (const Family& f : kFamilies) {
    if (f.plan == nullptr) continue;
    if (!out.empty()) out += ", ";
    out += f.architecture;
  }
  return out;
}

Status ReadLocalLayers(const ConfigReader& reader, int64_t default_pattern, DecoderPlan& plan) {
  int64_t window = 0, pattern = default_pattern;
  BALLAST_RETURN_IF_ERROR(reader.Int("attention.sliding_window", 0, int64_t{1} << 32, 0, window));
  if (window == 0) return Status();
  const std::vector<bool>* per_layer = nullptr;
  if (const MetaValue* value = reader.Find("attention.sliding_window_pattern")) {
    per_layer = std::get_if<std::vector<bool>>(value);
    if (per_layer == nullptr) {
      BALLAST_RETURN_IF_ERROR(
          reader.Int("attention.sliding_window_pattern", 0, 4096, default_pattern, pattern));
    } else if (per_layer->size() != plan.layers.size()) {
      return reader.Refuse("attention.sliding_window_pattern", std::to_string(plan.layers.size()) + " values",
                           std::to_string(per_layer->size()));
    }
  }
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const bool every = pattern == 0 || (static_cast<int64_t>(i) + 1) % pattern != 0;
    if (per_layer != nullptr ? (*per_layer)[i] : every) plan.layers[i].local_window = window;
  }
  return Status();
}

Streamability CheckStreamable(const TensorFile& file) {
  Streamability s;
  const Result<std::optional<std::string>> name = file.String("general.architecture");
  if (!name.ok() || !name->has_value()) {
    s.positions = "unknown";
    s.reason = "the file does not name its architecture (general.architecture)";
    return s;
  }
  const Family* family = FindFamily(**name);
  if (family == nullptr) {
    s.positions = "unknown";
    s.reason = "unknown architecture " + **name + "; this version runs " + RunnableFamilies();
    return s;
  }
  const Result<ModelConfig> config = ReadConfig(file);
  s.positions = DescribePositions(*family, config.ok() ? &*config : nullptr);
  switch (family->positions) {
    case P::kLearned:
      s.reason =
          "it has learned absolute positions: a token cannot change its place, so a window cannot slide for "
          "ever";
      return s;
    case P::kEncoder:
      s.reason = "it is not a decoder-only language model: there is no KV cache to stream through";
      return s;
    case P::kRecurrent:
      s.reason =
          "it has a recurrent state of fixed size instead of a KV cache: nothing to evict, nothing for "
          "Ballast to do";
      return s;
    default:
      break;
  }
  s.streamable = true;
  if (family->plan == nullptr) {
    s.reason = std::string(kLater);
  } else if (!config.ok()) {
    s.streamable = false;
    s.reason = config.status().message();
  } else {
    s.loadable = true;
    s.reason =
        "positions are relative inside the cache: pinned sinks and a sliding window reproduce them exactly" +
        DescribeLocal(*config);
  }
  return s;
}

}  // namespace ballast
