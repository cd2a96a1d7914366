// config.json of a Hugging Face folder as the metadata that a GGUF file of the same model would have.
//
// Where the two worlds store a model differently, a key of our own says so, and only when it is true:
//   ballast.rope.half_split        rows of Q and K are in the order of half-split RoPE
//   ballast.norm.plus_one          norm weights are stored minus one
//   ballast.qkv.per_head           rows of attn_qkv are (kv_head, [its queries, key, value], head_dim)
//   ballast.rope.layers            by layer: does it rotate (NoPE layers do not)
//   ballast.hidden_act             the MLP's activation, as config.json spells it
//   ballast.tie_word_embeddings    the output matrix is the embedding
// Thread safety: pure function.
#ifndef BALLAST_FORMATS_HF_CONFIG_H_
#define BALLAST_FORMATS_HF_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/hf_tables.h"
#include "formats/tensor_file.h"

namespace ballast {

struct HfConfig {
  const HfFamily* family = nullptr;
  std::vector<TensorFile::Meta> metadata;
  // Tensors that GGUF files hold and config.json spells out: LongRoPE's divisors.
  std::vector<std::pair<std::string, std::vector<float>>> made;
  int64_t layers = 0;
  std::optional<bool> tied;  // tie_word_embeddings, when it says
};

// `name` ("folder/config.json") opens messages. kModel: a needed key is missing or of another type, or the
// model_type is unknown.
Result<HfConfig> ReadHfConfig(const std::string& name, std::string_view text);

}  // namespace ballast

#endif  // BALLAST_FORMATS_HF_CONFIG_H_
