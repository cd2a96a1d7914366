// Which model computed a cache: what every file that holds a stream is checked against.
//
// Thread safety: pure functions.
#ifndef BALLAST_ENGINE_MODEL_IDENTITY_H_
#define BALLAST_ENGINE_MODEL_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "formats/tensor_file.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ballast {

// Equal for caches of the same file, computed in the same way.
struct ModelIdentity {
  uint64_t low = 0, high = 0;  // XXH3-128 of metadata, vocabulary, tensors and a sample of their bytes
  std::string name;
  Compute compute = Compute::kFast;
  friend bool operator==(const ModelIdentity& a, const ModelIdentity& b) {
    return a.low == b.low && a.high == b.high && a.compute == b.compute;
  }
};
ModelIdentity IdentifyModel(const TensorFile& file, const Tokenizer& tokenizer, const ModelConfig& config,
                            Compute compute, std::optional<DType> weights = std::nullopt);

}  // namespace ballast

#endif  // BALLAST_ENGINE_MODEL_IDENTITY_H_
