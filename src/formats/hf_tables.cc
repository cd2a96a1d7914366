// The rows. GGUF's names are those of the GGUF specification and of llama.cpp's architectures; Hugging Face's
// those of the transformers package's configuration and modelling classes.
#include "formats/hf_tables.h"

#include <charconv>

namespace ballast {
namespace {

using K = HfKey::Kind;
using W = HfKey::When;
using F = HfFamily;

constexpr HfKey kSizes[] = {
    {"num_hidden_layers|n_layer|n_layers", "block_count"},
    {"hidden_size|n_embd|d_model", "embedding_length"},
    {"num_attention_heads|n_head|n_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv", K::kInt, W::kOptional},
    {"head_dim", "attention.key_length", K::kInt, W::kOptional},
    {"head_dim", "attention.value_length", K::kInt, W::kOptional},
    {"vocab_size", "vocab_size", K::kInt, W::kOptional},
    {"hidden_act|hidden_activation|activation|activation_function", "ballast.hidden_act", K::kText,
     W::kOptional},
    {"num_local_experts|num_experts", "expert_count", K::kInt, W::kOptional},
};
// Families that came later write fewer keys than they mean: gemma-3-4b's config.json has five.
constexpr HfKey kGemma3Sizes[] = {
    {"num_hidden_layers", "block_count", K::kInt, W::kDefault, 26},
    {"hidden_size", "embedding_length", K::kInt, W::kDefault, 2304},
    {"num_attention_heads", "attention.head_count", K::kInt, W::kDefault, 8},
    {"num_key_value_heads", "attention.head_count_kv", K::kInt, W::kDefault, 4},
    {"head_dim", "attention.key_length", K::kInt, W::kDefault, 256},
    {"head_dim", "attention.value_length", K::kInt, W::kDefault, 256},
    {"intermediate_size", "feed_forward_length", K::kInt, W::kDefault, 9216},
    {"max_position_embeddings", "context_length", K::kInt, W::kDefault, 131072},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", K::kFloat, W::kDefault, 1e-6},
    {"sliding_window", "attention.sliding_window", K::kInt, W::kDefault, 4096},
    {"attn_logit_softcapping", "attn_logit_softcapping", K::kFloat, W::kOptional},
    {"final_logit_softcapping", "final_logit_softcapping", K::kFloat, W::kOptional},
    {"hidden_activation", "ballast.hidden_act", K::kText, W::kOptional},
    {"vocab_size", "vocab_size", K::kInt, W::kOptional},
};

constexpr HfKey kLlamaKeys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", K::kFloat},
};
constexpr HfKey kGemmaKeys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length", K::kInt, W::kDefault, 8192},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", K::kFloat, W::kDefault, 1e-6},
};
constexpr HfKey kGemma2Keys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length", K::kInt, W::kDefault, 8192},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", K::kFloat, W::kDefault, 1e-6},
    {"sliding_window", "attention.sliding_window", K::kInt, W::kDefault, 4096},
    {"attn_logit_softcapping", "attn_logit_softcapping", K::kFloat, W::kDefault, 50},
    {"final_logit_softcapping", "final_logit_softcapping", K::kFloat, W::kDefault, 30},
};
constexpr HfKey kGraniteKeys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", K::kFloat},
    {"embedding_multiplier", "embedding_scale", K::kFloat, W::kDefault, 1},
    {"residual_multiplier", "residual_scale", K::kFloat, W::kDefault, 1},
    {"attention_multiplier", "attention.scale", K::kFloat, W::kDefault, 1},
    {"logits_scaling", "logit_scale", K::kFloat, W::kDefault, 1},
};
constexpr HfKey kCohereKeys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length", K::kInt, W::kDefault, 8192},
    {"layer_norm_eps", "attention.layer_norm_epsilon", K::kFloat, W::kDefault, 1e-5},
    {"logit_scale", "logit_scale", K::kFloat, W::kDefault, 0.0625},
};
constexpr HfKey kStableLmKeys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"layer_norm_eps", "attention.layer_norm_epsilon", K::kFloat, W::kDefault, 1e-5},
    {"use_parallel_residual", "use_parallel_residual", K::kBool, W::kDefault, 0},
};
constexpr HfKey kNeoXKeys[] = {
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"layer_norm_eps", "attention.layer_norm_epsilon", K::kFloat, W::kDefault, 1e-5},
    {"use_parallel_residual", "use_parallel_residual", K::kBool, W::kDefault, 1},
};
constexpr HfKey kFalconKeys[] = {
    {"max_position_embeddings", "context_length", K::kInt, W::kDefault, 2048},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", K::kFloat, W::kDefault, 1e-5},
    {"parallel_attn", "use_parallel_residual", K::kBool, W::kDefault, 1},
};
constexpr HfKey kMptKeys[] = {
    {"max_seq_len", "context_length"},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", K::kFloat, W::kDefault, 1e-5},
    {"attn_config.clip_qkv", "attention.clamp_kqv", K::kFloat, W::kOptional},
    {"attn_config.kv_n_heads", "attention.head_count_kv", K::kInt, W::kOptional},
    {"attn_config.softmax_scale", "attention.scale", K::kFloat, W::kOptional},
};

constexpr HfTensor kCommonTensors[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {"layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
};
constexpr HfTensor kPostNormTensors[] = {
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
};
constexpr HfTensor kNeoXTensors[] = {
    {"embed_in", "token_embd"},
    {"embed_out", "output"},
    {"final_layer_norm", "output_norm"},
    {"layers.#.attention.query_key_value", "blk.#.attn_qkv"},
    {"layers.#.attention.dense", "blk.#.attn_output"},
    {"layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
    {"layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
};
constexpr HfTensor kFalconTensors[] = {
    {"word_embeddings", "token_embd"},
    {"ln_f", "output_norm"},
    {"h.#.input_layernorm", "blk.#.attn_norm"},
    {"h.#.ln_mlp", "blk.#.attn_norm"},
    {"h.#.ln_attn", "blk.#.attn_norm_2"},
    {"h.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"h.#.self_attention.query_key_value", "blk.#.attn_qkv"},
    {"h.#.self_attention.dense", "blk.#.attn_output"},
    {"h.#.mlp.dense_h_to_4h", "blk.#.ffn_up"},
    {"h.#.mlp.dense_4h_to_h", "blk.#.ffn_down"},
};
constexpr HfTensor kMptTensors[] = {
    {"wte", "token_embd"},
    {"norm_f", "output_norm"},
    {"blocks.#.norm_1", "blk.#.attn_norm"},
    {"blocks.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"blocks.#.attn.out_proj", "blk.#.attn_output"},
    {"blocks.#.attn.q_ln", "blk.#.attn_q_norm"},
    {"blocks.#.attn.k_ln", "blk.#.attn_k_norm"},
    {"blocks.#.norm_2", "blk.#.ffn_norm"},
    {"blocks.#.ffn.up_proj", "blk.#.ffn_up"},
    {"blocks.#.ffn.down_proj", "blk.#.ffn_down"},
};

constexpr std::string_view kModelPrefix[] = {"model."};
constexpr std::string_view kGemma3Prefixes[] = {"model.language_model.", "language_model.model.",
                                                "language_model.", "model."};
constexpr std::string_view kGemma3Skipped[] = {"vision_tower.", "multi_modal_projector.",
                                               "model.vision_tower.", "model.multi_modal_projector."};
constexpr std::string_view kNeoXPrefix[] = {"gpt_neox."};
constexpr std::string_view kTransformerPrefix[] = {"transformer."};

// Stored by old versions beside the weights, computed by everybody.
constexpr std::string_view kMasks[] = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias",
                                       ".rotary_emb.cos_cached", ".rotary_emb.sin_cached"};

constexpr HfFamily kFamilies[] = {
    {"llama", "llama", kLlamaKeys, {}, kModelPrefix, {}, F::kHalfSplitRope, 0},
    {"mistral", "llama", kLlamaKeys, {}, kModelPrefix, {}, F::kHalfSplitRope, 0},
    {"qwen2", "qwen2", kLlamaKeys, {}, kModelPrefix, {}, F::kHalfSplitRope | F::kLocalNeedsFlag, 0},
    {"qwen3", "qwen3", kLlamaKeys, {}, kModelPrefix, {}, F::kHalfSplitRope | F::kLocalNeedsFlag, 0},
    {"gemma", "gemma", kGemmaKeys, {}, kModelPrefix, {}, F::kHalfSplitRope | F::kNormPlusOne, 0},
    {"gemma2",
     "gemma2",
     kGemma2Keys,
     kPostNormTensors,
     kModelPrefix,
     {},
     F::kHalfSplitRope | F::kNormPlusOne | F::kAlternating | F::kGemmaScale,
     0},
    {"gemma3_text",
     "gemma3",
     {},
     kPostNormTensors,
     kGemma3Prefixes,
     kGemma3Skipped,
     F::kHalfSplitRope | F::kNormPlusOne | F::kLocalPattern | F::kGemmaScale,
     6},
    {"gemma3",
     "gemma3",
     {},
     kPostNormTensors,
     kGemma3Prefixes,
     kGemma3Skipped,
     F::kHalfSplitRope | F::kNormPlusOne | F::kLocalPattern | F::kGemmaScale,
     6},
    {"phi3", "phi3", kLlamaKeys, {}, kModelPrefix, {}, F::kHalfSplitRope, 0},
    {"gpt_neox", "gptneox", kNeoXKeys, kNeoXTensors, kNeoXPrefix, {}, F::kHalfSplitRope | F::kQkvPerHead, 0},
    {"falcon",
     "falcon",
     kFalconKeys,
     kFalconTensors,
     kTransformerPrefix,
     {},
     F::kHalfSplitRope | F::kFalcon,
     0},
    {"mpt", "mpt", kMptKeys, kMptTensors, kTransformerPrefix, {}, F::kMpt | F::kNoRope, 0},
    {"stablelm", "stablelm", kStableLmKeys, {}, kModelPrefix, {}, F::kHalfSplitRope, 0},
    {"olmo2", "olmo2", kLlamaKeys, kPostNormTensors, kModelPrefix, {}, F::kHalfSplitRope, 0},
    {"granite", "granite", kGraniteKeys, {}, kModelPrefix, {}, F::kHalfSplitRope, 0},
    // Cohere's own code rotates neighbouring pairs, as its GGUF files do.
    {"cohere", "command-r", kCohereKeys, {}, kModelPrefix, {}, 0, 0},
    {"cohere2", "cohere2", kCohereKeys, {}, kModelPrefix, {}, F::kLocalPattern | F::kNopeGlobal, 4},
    {"smollm3",
     "smollm3",
     kLlamaKeys,
     {},
     kModelPrefix,
     {},
     F::kHalfSplitRope | F::kSomeNope | F::kLocalNeedsFlag,
     0},
    {"gpt2", "gpt2", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"opt", "opt", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"gpt_bigcode", "starcoder", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"gptj", "gptj", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"phi", "phi2", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"bloom", "bloom", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"bert", "bert", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"t5", "t5", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"mamba", "mamba", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"mamba2", "mamba2", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"rwkv7", "rwkv7", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"gpt_oss", "gpt-oss", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"deepseek_v2", "deepseek2", {}, {}, {}, {}, F::kOnlyNamed, 0},
    {"deepseek_v3", "deepseek2", {}, {}, {}, {}, F::kOnlyNamed, 0},
};

// The layer number of "layers.12.x", written as a number is written; -1 for anything else.
int64_t ParseLayer(std::string_view digits) {
  if (digits.empty() || digits.size() > 6 || (digits[0] == '0' && digits.size() > 1)) return -1;
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  return error == std::errc() && end == digits.data() + digits.size() ? layer : -1;
}

// "layers.12.mlp.up_proj" -> "layers.#.mlp.up_proj" and 12; untouched when no component is a number.
std::string TakeLayer(std::string_view name, int64_t* layer) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (const int64_t number = ParseLayer(name.substr(begin, end - begin)); number >= 0) {
      *layer = number;
      return std::string(name.substr(0, begin)) + "#" + std::string(name.substr(end));
    }
    begin = end + 1;
  }
  return std::string(name);
}

std::string_view Look(std::span<const HfTensor> table, std::string_view stem) {
  for (const HfTensor& row : table) {
    if (row.hf == stem) return row.gguf;
  }
  return "";
}

}  // namespace

const HfFamily* FindHfFamily(std::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string KnownHfFamilies() {
  std::string out;
  for (const HfFamily& family : kFamilies) {
    if (!family.Is(F::kOnlyNamed)) out += (out.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return out;
}

std::span<const HfKey> HfCommonKeys(const HfFamily& family) {
  if (family.architecture == "gemma3") return kGemma3Sizes;
  return kSizes;
}

HfTensorName TranslateTensorName(const HfFamily& family, std::string_view name, int64_t layers) {
  for (const std::string_view prefix : family.skipped) {
    if (name.starts_with(prefix)) return {"", true};
  }
  for (const std::string_view mask : kMasks) {
    if (name.ends_with(mask)) return {"", true};
  }
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.find('#') != std::string_view::npos) return {};
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return {};
  std::string_view stem = name.substr(0, dot);
  for (const std::string_view prefix : family.prefixes) {
    if (!stem.starts_with(prefix)) continue;
    stem.remove_prefix(prefix.size());
    break;
  }
  int64_t layer = -1;
  const std::string pattern = TakeLayer(stem, &layer);
  std::string_view gguf = Look(family.tensors, pattern);
  if (gguf.empty()) gguf = Look(kCommonTensors, pattern);
  if (gguf.empty() || (layer >= 0 && layer >= layers)) return {};
  std::string out(gguf);
  if (const size_t mark = out.find('#'); mark != std::string::npos)
    out.replace(mark, 1, std::to_string(layer));
  return {out + std::string(suffix), false};
}

}  // namespace ballast
