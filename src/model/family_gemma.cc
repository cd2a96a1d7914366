// Gemma: embeddings scaled by sqrt(width), GELU-gated MLP; from version 2 norms after each block as well and
// layers with a local window.
#include <cmath>

#include "model/families.h"

namespace ballast {
namespace {

constexpr int kGemma27bLayers2 = 46, kGemma27bLayers3 = 62;

// The 27B models divide scores by sqrt(width / heads) instead of sqrt(head_dim).
void ScaleBySize(const ModelConfig& config, int layers_of_27b, DecoderPlan& plan) {
  if (plan.attention_scale > 0 || config.layers != layers_of_27b) return;  // what the file says goes first
  plan.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.embed) / config.heads));
}

}  // namespace

Status PlanGemma(const ConfigReader&, ModelConfig& config, DecoderPlan& plan) {
  plan.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(config.embed)));
  plan.activation = Activation::kGeluTanh;
  return Status();
}

// Every other layer, the first among them, is local; scores and logits are soft-capped.
Status PlanGemma2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan) {
  BALLAST_RETURN_IF_ERROR(PlanGemma(reader, config, plan));
  plan.post_norms = true;
  plan.score_softcap = 50;
  plan.logit_softcap = 30;
  BALLAST_RETURN_IF_ERROR(reader.OptionalPositive("attn_logit_softcapping", plan.score_softcap));
  BALLAST_RETURN_IF_ERROR(reader.OptionalPositive("final_logit_softcapping", plan.logit_softcap));
  ScaleBySize(config, kGemma27bLayers2, plan);
  return ReadLocalLayers(reader, 2, plan);
}

// Five local layers, with a RoPE base of their own, before each global one; queries and keys are normed.
Status PlanGemma3(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan) {
  BALLAST_RETURN_IF_ERROR(PlanGemma(reader, config, plan));
  plan.post_norms = true;
  plan.qk_norm = QkNorm::kPerHead;
  BALLAST_RETURN_IF_ERROR(reader.OptionalPositive("final_logit_softcapping", plan.logit_softcap));
  ScaleBySize(config, kGemma27bLayers3, plan);
  BALLAST_RETURN_IF_ERROR(ReadLocalLayers(reader, 6, plan));
  RopePlan local;
  BALLAST_RETURN_IF_ERROR(reader.Positive("rope.freq_base_swa", 10000, local.base));
  plan.ropes.push_back(local);
  for (LayerPlan& layer : plan.layers) {
    if (layer.local_window > 0) layer.rope = 1;
  }
  return Status();
}

}  // namespace ballast
