// A tiny Llama-family network with random weights, as a GGUF file and as the plain definition of
// StreamingLLM.
//
// Definition: the oracle of the engine's tests. It works the slow way round, in double: keys are cached
// *unrotated*, and at every step each kept key is rotated at its index inside the cache, the query at its own
// (arXiv 2309.17453, section 3.2). It shares no code with the engine.
#ifndef BALLAST_TESTS_SUPPORT_TINY_LLAMA_H_
#define BALLAST_TESTS_SUPPORT_TINY_LLAMA_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/gguf_builder.h"
#include "tensor/dtype.h"

namespace ballast::testing {

struct TinySpec {
  std::string architecture = "llama";  // llama: interleaved RoPE; qwen2: half-split RoPE, QKV biases
  int layers = 3;
  int embed = 32;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int rope_dims = 16;
  int ffn = 64;
  int vocab = 64;
  int trained_context = 256;
  double rope_base = 10000;
  double linear_factor = 1;   // > 1: rope.scaling.type = linear
  bool rope_factors = false;  // a rope_freqs.weight tensor
  bool biases = false;
  bool separate_output = false;
  DType weights = DType::kF32;  // of the matrices
  uint32_t seed = 1;
};

class TinyLlama {
 public:
  explicit TinyLlama(const TinySpec& spec);
  const TinySpec& spec() const { return spec_; }
  // The file, ready for changes (Set, Remove, ...) before it is written. Carries a small byte-level BPE
  // vocabulary.
  GgufBuilder Builder() const;
  // Writes the file into the test's temporary folder and returns its path.
  std::string WriteTemp(const std::string& name) const;
  const std::vector<float>& Tensor(const std::string& name) const { return tensors_.at(name); }

 private:
  void Add(const std::string& name, int64_t rows, int64_t cols, float scale, float offset = 0);
  TinySpec spec_;
  std::map<std::string, std::vector<float>> tensors_;
  std::map<std::string, std::vector<int64_t>> dims_;
  std::vector<std::string> order_;
};

class Definition {
 public:
  Definition(const TinyLlama& model, int64_t pinned, int64_t window);
  // Feeds one token and returns the logits after it. (vocab)
  std::vector<double> Feed(int32_t token);
  // Softmax share of the pinned tokens (of the first 4 if none are pinned) at the last step. (layer * heads +
  // head)
  const std::vector<double>& sink_mass() const { return sink_mass_; }
  // Forgets unpinned tokens before stream position x.
  void DropBefore(int64_t x);

 private:
  struct Entry {
    int64_t position;
    std::vector<std::vector<double>> k, v;  // (layer)(kv_head * head_dim), k unrotated
  };
  std::vector<double> MatVec(const std::string& name, const std::vector<double>& x) const;
  std::vector<double> Norm(const std::string& name, const std::vector<double>& x) const;
  void AddBias(const std::string& name, std::vector<double>& x) const;
  std::vector<double> Rotated(const std::vector<double>& x, int heads, int64_t index) const;
  std::vector<double> Attend(int layer, const std::vector<double>& q);

  const TinyLlama& model_;
  int64_t pinned_, window_, next_ = 0;
  std::vector<Entry> cache_;
  std::vector<double> sink_mass_;
};

// Repeatable token ids below `vocab`.
std::vector<int32_t> RandomTokens(int64_t n, int vocab, uint32_t seed);

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_SUPPORT_TINY_LLAMA_H_
