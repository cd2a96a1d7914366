#include "engine/model_identity.h"

#include <xxhash.h>

#include <algorithm>
#include <variant>
#include <vector>

namespace ballast {
namespace {

// XXH3-128 of values whose lengths are part of what is hashed.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    BALLAST_CHECK(state_ != nullptr);
    XXH3_128bits_reset(state_);
  }
  ~Hasher() { XXH3_freeState(state_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void Bytes(const void* data, size_t n) { XXH3_128bits_update(state_, data, n); }
  void Add(const std::string& text) {
    Add(text.size());
    Bytes(text.data(), text.size());
  }
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Add(T value) { Bytes(&value, sizeof(value)); }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Add(values.size());
    for (const auto& value : values) Add(static_cast<T>(value));
  }
  XXH128_hash_t Digest() const { return XXH3_128bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

}  // namespace

ModelIdentity IdentifyModel(const TensorFile& file, const Tokenizer& tokenizer, const ModelConfig& config,
                            Compute compute, std::optional<DType> weights) {
  Hasher hash;
  if (weights) hash.Add(*weights);  // made while loading: another model than the file's
  for (const TensorFile::Meta& meta : file.metadata()) {
    hash.Add(meta.key);
    hash.Add(meta.value.index());
    std::visit([&](const auto& value) { hash.Add(value); }, meta.value);
  }
  hash.Add(tokenizer.vocab().tokens);
  hash.Add(tokenizer.vocab().merges);
  // Of each tensor 16 pieces: another training run changes every weight.
  constexpr uint64_t kPieces = 16, kPiece = 256;
  for (const TensorInfo& t : file.tensors()) {
    hash.Add(t.name);
    hash.Add(t.dtype);
    hash.Add(t.dims);
    const uint64_t piece = std::min(kPiece, t.bytes);
    for (uint64_t i = 0; i < kPieces; ++i) {
      hash.Bytes(file.Data(t) + (t.bytes - piece) * i / (kPieces - 1), piece);
    }
  }
  const XXH128_hash_t sum = hash.Digest();
  return {sum.low64, sum.high64, config.name.substr(0, 127), compute};
}

}  // namespace ballast
