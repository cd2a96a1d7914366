// The model of an HfPipeline: words to ids.
//
// Thread safety: const after Create; scratch belongs to the call. Invariants: 1. cost is O(n log n) in the
// word for BPE and O(n times the longest token) for Unigram; 2. no id is a control token, but for the unknown
// token, which stands for what has no other.
#ifndef BALLAST_TEXT_HF_MODEL_H_
#define BALLAST_TEXT_HF_MODEL_H_

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/hf_pipeline.h"
#include "text/pair_merger.h"
#include "text/tokenizer.h"

namespace ballast {

class HfModel {
 public:
  // What one call of Encode needs; reused from word to word.
  struct Scratch {
    PairMerger merger;
    std::string text;
    std::vector<double> best;     // (byte): score of the best path that ends there
    std::vector<int64_t> starts;  // (byte): where its last piece begins; -1: no path yet
    std::vector<Token> ids;       // (byte): that piece
    std::vector<int64_t> ends;    // of the pieces of the best path, last first
  };
  virtual ~HfModel() = default;
  // REQUIRES: `word` is UTF-8, shorter than 2^31 bytes.
  virtual void Encode(std::string_view word, Scratch* scratch, std::vector<Token>* out) const = 0;
};

// `vocab` and `pipeline` must outlive the model and stay where they are.
Result<std::unique_ptr<const HfModel>> MakeHfBpe(const Vocab& vocab, const HfPipeline& pipeline);
Result<std::unique_ptr<const HfModel>> MakeHfUnigram(const Vocab& vocab, const HfPipeline& pipeline);

// Ids of "<0x00>" to "<0xFF>", where the model has them.
std::vector<Token> FindByteTokens(const Vocab& vocab, const HfPipeline& pipeline);
// True for a token that the model may produce from plain text.
bool IsPlain(const Vocab& vocab, const HfPipeline& pipeline, Token id);

}  // namespace ballast

#endif  // BALLAST_TEXT_HF_MODEL_H_
