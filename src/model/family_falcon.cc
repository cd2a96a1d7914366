// Falcon: multi-query (7B) or grouped (40B, with a norm each for attention and MLP) attention, in parallel
// with the MLP.
#include "model/families.h"

namespace ballast {

Status PlanFalcon(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.gated = false;
  plan.activation = Activation::kGelu;
  return reader.Bool("use_parallel_residual", true, plan.parallel);
}

}  // namespace ballast
