// StableLM: Llama with LayerNorm and partial RoPE; the 12B runs attention and MLP side by side and norms
// queries and keys head by head.
#include "model/families.h"

namespace ballast {

Status PlanStableLm(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.qk_norm = QkNorm::kPerHead;  // where the file has the weights
  plan.parallel = reader.file().FindTensor("blk.0.ffn_norm.weight") == nullptr;
  return Status();
}

}  // namespace ballast
