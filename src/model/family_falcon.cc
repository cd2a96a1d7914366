// Falcon: multi-query (7B) or grouped (40B, with a norm each for attention and MLP) attention, in parallel
// with the MLP.
#include "model/families.h"

namespace ballast {

Status PlanFalcon(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  if (reader.Has("attention.max_alibi_bias")) {  // Falcon-RW: its biases are scaled with the scores
    return reader.Refuse("attention.max_alibi_bias", "no such key (Falcon with ALiBi is not supported)",
                         "one");
  }
  plan.norm = NormKind::kLayer;
  plan.gated = false;
  plan.activation = Activation::kGelu;
  return reader.Bool("use_parallel_residual", true, plan.parallel);
}

}  // namespace ballast
