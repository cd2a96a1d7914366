// Phi: version 2 is a parallel block with LayerNorm and partial RoPE; version 3 (and 3.5, 4) is Llama with
// fused projections.
#include <algorithm>

#include "model/families.h"

namespace ballast {

Status PlanPhi2(const ConfigReader&, ModelConfig&, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.parallel = true;
  plan.gated = false;
  plan.activation = Activation::kGeluTanh;
  return Status();
}

Status PlanPhi3(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan) {
  // The long-context models carry two sets of frequency factors, for prompts up to the original length and
  // beyond. The law of the cache needs fixed frequencies: the short set, with the length it is meant for.
  if (reader.file().FindTensor("rope_factors_short.weight") != nullptr) {
    int64_t original = 0;
    BALLAST_RETURN_IF_ERROR(reader.Int("rope.scaling.original_context_length", 1, int64_t{1} << 32,
                                       config.trained_context, original));
    config.trained_context = std::min(config.trained_context, original);
    BALLAST_RETURN_IF_ERROR(reader.Positive("rope.scaling.attn_factor", 1, plan.ropes[0].magnitude));
  }
  return ReadLocalLayers(reader, 0, plan);
}

}  // namespace ballast
