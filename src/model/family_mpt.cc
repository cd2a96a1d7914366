// MPT: ALiBi instead of rotations, LayerNorm without biases, clipped projections.
#include <cmath>

#include "model/families.h"

namespace ballast {
namespace {

// One slope per head, a geometric series from 2^(-max_bias / n) with n the power of two at or above the
// number of heads; when they are fewer than n, every second one first (arXiv 2108.12409, appendix).
std::vector<float> AlibiSlopes(int heads, double max_bias) {
  int n = 1;
  while (n < heads) n *= 2;
  const auto slope = [&](int i) { return static_cast<float>(std::pow(2.0, -max_bias * i / n)); };
  std::vector<float> slopes;
  if (n == heads) {
    for (int i = 1; i <= n; ++i) slopes.push_back(slope(i));
    return slopes;
  }
  for (int i = 2; i <= n; i += 2) slopes.push_back(slope(i));
  for (int i = 1; static_cast<int>(slopes.size()) < heads; i += 2) slopes.push_back(slope(i));
  return slopes;
}

}  // namespace

Status PlanMpt(const ConfigReader& reader, ModelConfig& config, DecoderPlan& plan) {
  plan.norm = NormKind::kLayer;
  plan.gated = false;
  plan.activation = Activation::kGelu;
  float max_bias = 8;
  BALLAST_RETURN_IF_ERROR(reader.OptionalPositive("attention.max_alibi_bias", max_bias));
  if (!(max_bias > 0)) {
    return reader.Refuse("attention.max_alibi_bias",
                         "a number above 0 (without ALiBi MPT has learned positions)", "0");
  }
  BALLAST_RETURN_IF_ERROR(reader.OptionalPositive("attention.clamp_kqv", plan.clip_qkv));
  plan.slopes = AlibiSlopes(config.heads, max_bias);
  plan.ropes.clear();
  for (LayerPlan& layer : plan.layers) layer.rope = -1;
  return Status();
}

}  // namespace ballast
