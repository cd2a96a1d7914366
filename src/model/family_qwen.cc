// Qwen: Llama with half-split RoPE; version 2 has biases on Q, K and V, version 3 norms queries and keys.
#include "model/families.h"

namespace ballast {

Status PlanQwen2(const ConfigReader&, ModelConfig&, DecoderPlan&) { return Status(); }

Status PlanQwen3(const ConfigReader&, ModelConfig&, DecoderPlan& plan) {
  plan.qk_norm = QkNorm::kPerHead;
  return Status();
}

}  // namespace ballast
