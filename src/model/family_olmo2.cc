// OLMo-2: norms behind attention and MLP instead of before, and over all queries and keys of a token.
#include "model/families.h"

namespace ballast {

Status PlanOlmo2(const ConfigReader&, ModelConfig&, DecoderPlan& plan) {
  plan.pre_norms = false;
  plan.post_norms = true;
  plan.qk_norm = QkNorm::kWholeRows;
  return Status();
}

}  // namespace ballast
