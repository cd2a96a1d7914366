// GPT-NeoX (Pythia, Dolly): LayerNorm, partial RoPE, attention and MLP side by side, biases everywhere. And
// StarCoder2, which has the same parts one after the other.
#include "model/families.h"

namespace ballast {

Status PlanGptNeoX(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.gated = false;
  plan.activation = Activation::kGelu;
  return reader.Bool("use_parallel_residual", true, plan.parallel);
}

Status PlanStarCoder2(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.gated = false;
  plan.activation = Activation::kGeluTanh;
  return ReadLocalLayers(reader, 0, plan);
}

}  // namespace ballast
