// What Hugging Face calls what GGUF calls: model types, config keys and tensor names, as tables of data.
//
// Adding a family that config.json and GGUF both know is adding rows here. Thread safety: constants.
#ifndef BALLAST_FORMATS_HF_TABLES_H_
#define BALLAST_FORMATS_HF_TABLES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ballast {

// One config key. `names` are alternatives, separated by '|'; a '.' goes into an object. null is absent.
struct HfKey {
  enum class Kind : uint8_t { kInt, kFloat, kBool, kText };
  enum class When : uint8_t { kRequired, kOptional, kDefault };
  std::string_view names;
  std::string_view gguf;  // behind "<architecture>."; "ballast.…" stands as it is
  Kind kind = Kind::kInt;
  When when = When::kRequired;
  double fallback = 0;  // kDefault: what transformers takes when the key is absent
};

// One tensor, without ".weight" or ".bias"; '#' is the layer.
struct HfTensor {
  std::string_view hf;
  std::string_view gguf;
};

struct HfFamily {
  enum Flag : uint32_t {
    kHalfSplitRope = 1,    // rows of Q and K in the order of half-split RoPE, where GGUF has them permuted
    kNormPlusOne = 2,      // norm weights stored minus one
    kQkvPerHead = 4,       // fused QKV rows are (kv_head, [its queries, key, value], head_dim)
    kAlternating = 8,      // even layers are local
    kLocalPattern = 16,    // all layers but each n-th are local
    kLocalNeedsFlag = 32,  // sliding_window counts only with use_sliding_window
    kSomeNope = 64,        // no_rope_layers
    kNopeGlobal = 128,     // global layers do not rotate
    kFalcon = 256,         // keys whose meaning depends on others; see hf_config.cc
    kMpt = 512,
    kGemmaScale = 1024,  // query_pre_attn_scalar
    kNoRope = 2048,
    kOnlyNamed = 4096,  // known to be streamed differently, or not at all: nothing but its name is read
  };
  std::string_view model_type;
  std::string_view architecture;
  std::span<const HfKey> keys;        // besides HfCommonKeys
  std::span<const HfTensor> tensors;  // looked up before HfCommonTensors
  std::span<const std::string_view> prefixes;
  std::span<const std::string_view> skipped;  // prefixes of tensors that are none of a language model's
  uint32_t flags = 0;
  double local_pattern = 0;  // kLocalPattern: n when the config does not say

  bool Is(Flag flag) const { return (flags & flag) != 0; }
};

// Null for a model_type nobody described yet.
const HfFamily* FindHfFamily(std::string_view model_type);
std::string KnownHfFamilies();  // "llama, mistral, ..."

std::span<const HfKey> HfCommonKeys(const HfFamily& family);

// What a stored tensor is in GGUF's names. `skip`: a part of no use, such as a stored mask.
struct HfTensorName {
  std::string gguf;  // empty when unknown or skipped
  bool skip = false;
};
HfTensorName TranslateTensorName(const HfFamily& family, std::string_view name, int64_t layers);

}  // namespace ballast

#endif  // BALLAST_FORMATS_HF_TABLES_H_
