#include "model/families.h"

#include <cstdio>

#include "model/config.h"

namespace ballast {
namespace {

using P = Family::Positions;
constexpr std::string_view kLater = "streamable in principle; this version does not run the family yet";

constexpr Family kFamilies[] = {
    {"llama", P::kRope, true, RopeForm::kInterleaved, ""},
    {"qwen2", P::kRope, true, RopeForm::kHalfSplit, ""},
    {"qwen3", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"gemma", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"gemma2", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"gemma3", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"phi2", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"phi3", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"smollm3", P::kRope, false, RopeForm::kInterleaved, kLater},
    {"stablelm", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"gptneox", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"gptj", P::kRope, false, RopeForm::kInterleaved, kLater},
    {"falcon", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"olmo2", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"granite", P::kRope, false, RopeForm::kInterleaved, kLater},
    {"command-r", P::kRope, false, RopeForm::kInterleaved, kLater},
    {"cohere2", P::kRope, false, RopeForm::kInterleaved, kLater},
    {"gpt-oss", P::kRope, false, RopeForm::kHalfSplit, kLater},
    {"mpt", P::kAlibi, false, RopeForm::kHalfSplit, kLater},
    {"bloom", P::kAlibi, false, RopeForm::kHalfSplit, kLater},
    {"deepseek2", P::kMla, false, RopeForm::kInterleaved, kLater},
    {"gpt2", P::kLearned, false, RopeForm::kHalfSplit, ""},
    {"opt", P::kLearned, false, RopeForm::kHalfSplit, ""},
    {"starcoder", P::kLearned, false, RopeForm::kHalfSplit, ""},
    {"bert", P::kEncoder, false, RopeForm::kHalfSplit, ""},
    {"nomic-bert", P::kEncoder, false, RopeForm::kHalfSplit, ""},
    {"t5", P::kEncoder, false, RopeForm::kHalfSplit, ""},
    {"mamba", P::kRecurrent, false, RopeForm::kHalfSplit, ""},
    {"mamba2", P::kRecurrent, false, RopeForm::kHalfSplit, ""},
    {"rwkv6", P::kRecurrent, false, RopeForm::kHalfSplit, ""},
    {"rwkv7", P::kRecurrent, false, RopeForm::kHalfSplit, ""},
};

std::string DescribePositions(const Family& family, const ModelConfig* config) {
  switch (family.positions) {
    case P::kRope: {
      if (config == nullptr) return "RoPE";
      char text[128];
      std::snprintf(text, sizeof text, "RoPE, %d of %d dimensions, base %.0f", config->rope_dims,
                    config->head_dim, config->rope_base);
      return text;
    }
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

}  // namespace

const Family* FindFamily(std::string_view architecture) {
  for (const Family& f : kFamilies) {
    if (f.architecture == architecture) return &f;
  }
  return nullptr;
}

std::string RunnableFamilies() {
  std::string out;
  for (const Family& f : kFamilies) {
    if (!f.runs) continue;
    if (!out.empty()) out += ", ";
    out += f.architecture;
  }
  return out;
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
  if (!family->runs) {
    s.reason = std::string(family->note);
  } else if (!config.ok()) {
    s.streamable = false;
    s.reason = config.status().message();
  } else {
    s.loadable = true;
    s.reason =
        "positions are relative inside the cache: pinned sinks and a sliding window reproduce them exactly";
  }
  return s;
}

}  // namespace ballast
