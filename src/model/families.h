// What Ballast knows of architectures: which it runs and how, and what positions they use, so that `inspect`
// can say why a model can or cannot be streamed even when this version cannot run it.
//
// A family that runs is one function, in a family_*.cc of its own or beside its next of kin: it reads the
// keys that only it has and states its forward pass as a DecoderPlan. docs/adding-a-model.md walks through
// one.
#ifndef BALLAST_MODEL_FAMILIES_H_
#define BALLAST_MODEL_FAMILIES_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/rope.h"
#include "model/config.h"
#include "model/config_reader.h"
#include "model/decoder_plan.h"

namespace ballast {

struct Family {
  enum class Positions { kRope, kAlibi, kLearned, kRecurrent, kEncoder, kMla };
  // Completes `plan`, which holds what most families share (RMSNorm with its eps, one RoPE table, every layer
  // rotated and without a window of its own), and may correct `config`.
  using PlanFunction = Status (*)(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);

  std::string_view architecture;  // as general.architecture spells it
  std::string_view models;        // for people: "Llama 1 to 3, ..."
  Positions positions = Positions::kRope;
  PlanFunction plan = nullptr;  // null: this version does not run the family
  RopeForm rope_form = RopeForm::kHalfSplit;
  NormKind norm = NormKind::kRms;  // says which key holds the epsilon
  std::string_view rope = "";      // for people: where a family does not rotate all of every layer
};

std::span<const Family> AllFamilies();
// Null for an architecture nobody described yet.
const Family* FindFamily(std::string_view architecture);
// "llama, qwen2".
std::string RunnableFamilies();

// For families with local layers: sets the window of layer i where (i + 1) % pattern != 0, which `pattern`
// (a number, or one truth value per layer in the file) may override.
Status ReadLocalLayers(const ConfigReader& reader, int64_t default_pattern, DecoderPlan& plan);

// The families that run, by file.
Status PlanLlama(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);    // family_llama.cc
Status PlanSmolLm3(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);  // family_llama.cc
Status PlanGranite(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);  // family_llama.cc
Status PlanQwen2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);    // family_qwen.cc
Status PlanQwen3(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);    // family_qwen.cc
Status PlanGemma(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);    // family_gemma.cc
Status PlanGemma2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);   // family_gemma.cc
Status PlanGemma3(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);   // family_gemma.cc
Status PlanPhi2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);     // family_phi.cc
Status PlanPhi3(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);     // family_phi.cc
Status PlanGptNeoX(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);  // family_gptneox.cc
Status PlanStarCoder2(const ConfigReader& reader, ModelConfig& config,
                      DecoderPlan& plan);                                               // family_gptneox.cc
Status PlanFalcon(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);  // family_falcon.cc
Status PlanMpt(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);     // family_mpt.cc
Status PlanStableLm(const ConfigReader& reader, ModelConfig& config,
                    DecoderPlan& plan);                                                  // family_stablelm.cc
Status PlanOlmo2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);    // family_olmo2.cc
Status PlanCohere(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);   // family_cohere.cc
Status PlanCohere2(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan);  // family_cohere.cc

}  // namespace ballast

#endif  // BALLAST_MODEL_FAMILIES_H_
