// Llama and its kin: pre-norms, RoPE, grouped-query attention, SwiGLU. Names and keys as GGUF has them.
#include <string>
#include <variant>
#include <vector>

#include "model/families.h"

namespace ballast {

// Llama 1 to 3, Mistral, SmolLM 1 and 2, TinyLlama, Yi, and many fine-tunes. Biases where the file has them.
Status PlanLlama(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  // Mistral 7B v0.1 was trained with a window in every layer.
  return ReadLocalLayers(reader, 0, plan);
}

// SmolLM3: every fourth layer does not rotate (NoPE).
Status PlanSmolLm3(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  // A folder of Hugging Face says it layer by layer.
  if (const MetaValue* value = reader.file().Find("ballast.rope.layers")) {
    const auto* rotates = std::get_if<std::vector<bool>>(value);
    if (rotates == nullptr || rotates->size() != plan.layers.size()) {
      return Status::Expected(Code::kModel, reader.file().path() + ": layers that rotate",
                              std::to_string(plan.layers.size()) + " truth values", "something else");
    }
    for (size_t i = 0; i < plan.layers.size(); ++i) plan.layers[i].rope = (*rotates)[i] ? 0 : -1;
    return Status();
  }
  int64_t interval = 4;
  BALLAST_RETURN_IF_ERROR(reader.Int("no_rope_layer_interval", 1, 4096, 4, interval));
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    if ((static_cast<int64_t>(i) + 1) % interval == 0) plan.layers[i].rope = -1;
  }
  return Status();
}

// Granite 3: Llama with four multipliers.
Status PlanGranite(const ConfigReader& reader, ModelConfig&, DecoderPlan& plan) {
  float logit_divisor = 1;
  BALLAST_RETURN_IF_ERROR(reader.Positive("embedding_scale", 1, plan.embed_scale));
  BALLAST_RETURN_IF_ERROR(reader.Positive("residual_scale", 1, plan.residual_scale));
  BALLAST_RETURN_IF_ERROR(reader.Positive("logit_scale", 1, logit_divisor));
  plan.logit_scale = 1 / logit_divisor;
  return Status();
}

}  // namespace ballast
