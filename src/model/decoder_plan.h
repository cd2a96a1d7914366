// DecoderPlan: what a family states about its forward pass, as plain facts; decoder.cc composes it.
//
// One layer, with x the residual stream (norms that a family lacks are the identity):
//   a = o(attention(q, k, v of attn_norm(x)));          q and k normed (qk_norm) before they are rotated
//   sequential:  x += r * post_attn_norm(a);  x += r * post_ffn_norm(mlp(ffn_norm(x)))
//   parallel:    x += r * (a + mlp(ffn_norm(x), or of attn_norm(x) when they share it))
// logits = softcap(logit_scale * output(output_norm(x))).
#ifndef BALLAST_MODEL_DECODER_PLAN_H_
#define BALLAST_MODEL_DECODER_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "kernels/rope.h"

namespace ballast {

enum class NormKind : uint8_t { kRms, kLayer };
enum class QkNorm : uint8_t {
  kNone,
  kPerHead,    // each head's vector by itself; weights (head_dim), or (heads, head_dim)
  kWholeRows,  // all heads of a token together; weights (heads * head_dim)
};

struct LayerPlan {
  int rope = 0;              // index in DecoderPlan::ropes; -1: the layer does not rotate (NoPE, ALiBi)
  int64_t local_window = 0;  // > 0: trained with this window, which is its own ring
};

struct RopePlan {
  double base = 10000;
  RopeScaling scaling;
  float magnitude = 1;  // multiplies cos and sin, on top of the scaling's own
};

struct DecoderPlan {
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  bool pre_norms = true;  // attn_norm, ffn_norm
  bool post_norms = false;
  bool parallel = false;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool gated = true;  // down(activation(gate) * up), else down(activation(up))
  std::vector<RopePlan> ropes;
  std::vector<LayerPlan> layers;
  std::vector<float> slopes;  // (heads): ALiBi; empty: none
  float attention_scale = 0;  // 0: 1 / sqrt(head_dim)
  float score_softcap = 0;    // 0: off
  float logit_softcap = 0;    // 0: off
  float embed_scale = 1;
  float residual_scale = 1;
  float logit_scale = 1;
  float clip_qkv = 0;  // > 0: q, k, v are clamped to +-clip
};

}  // namespace ballast

#endif  // BALLAST_MODEL_DECODER_PLAN_H_
