// Cohere's Command: attention and MLP side by side behind one LayerNorm without bias. Command-R7B (cohere2)
// has three local, rotated layers before each global one, which does not rotate.
#include "model/families.h"

namespace ballast {

Status PlanCohere(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.parallel = true;
  plan.qk_norm = QkNorm::kPerHead;  // where the file has the weights (Command-R+)
  return reader.Positive("logit_scale", 1, plan.logit_scale);
}

Status PlanCohere2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan) {
  BALLAST_RETURN_IF_ERROR(PlanCohere(reader, config, plan));
  BALLAST_RETURN_IF_ERROR(ReadLocalLayers(reader, 4, plan));
  for (LayerPlan& layer : plan.layers) {
    if (layer.local_window == 0) layer.rope = -1;
  }
  return Status();
}

}  // namespace ballast
