// Sampler: from logits to the next token, reproducibly.
//
// Order of the chain: logit bias, penalties (repetition, presence, frequency, DRY), then greedy if
// temperature is 0; otherwise top-k, top-p, min-p at temperature, draw. Thread safety: one sampler per
// stream. Invariant: the same seed, options and inputs give the same tokens on every machine with the same
// logits; nothing reads the clock unless seed is absent.
#ifndef BALLAST_ENGINE_SAMPLER_H_
#define BALLAST_ENGINE_SAMPLER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/rng.h"
#include "text/tokenizer.h"

namespace ballast {

struct SamplerOptions {
  std::optional<uint64_t> seed;  // absent: drawn from the system, readable through Sampler::seed()
  double temperature = 0.8;      // 0: greedy
  int64_t top_k = 40;            // 0: off
  double top_p = 0.95;           // 1: off
  double min_p = 0.05;           // 0: off
  double repeat_penalty = 1.0;   // 1: off
  int64_t repeat_last_n =
      64;  // tokens the penalties look back on; -1: the whole capacity of the stream; 0: off
  double presence_penalty = 0;   // subtracted once from a token that occurred in the range
  double frequency_penalty = 0;  // subtracted per occurrence
  // 0: off. DRY: a token that would continue a repetition of `match length` tokens, at least the allowed
  // length, loses multiplier * base^(match length - allowed length).
  double dry_multiplier = 0;
  double dry_base = 1.75;
  int64_t dry_allowed_length = 2;
  std::vector<Token> dry_breakers;     // a match never crosses these, and they are never penalised
  std::map<Token, double> logit_bias;  // added to the logits; -inf bans
};

class Sampler {
 public:
  // `capacity`: what repeat_last_n = -1 spans. kUsage names the option that is out of range (NaN included),
  // what is allowed and what was found; a bias id outside [0, vocab) too.
  static Result<Sampler> Create(const SamplerOptions& options, int64_t vocab, int64_t capacity);

  // Tokens fed to the stream, in order, prompt and reply alike: the range the penalties span. Ids outside the
  // vocabulary are ignored.
  void Observe(Token token);
  // Picks the next token; does not Observe it. logits: (vocab); not changed. Finite unless the model is
  // broken: NaN counts as -inf; when nothing is left, returns kModel. Ties go to the lowest id.
  Result<Token> Sample(std::span<const float> logits);
  uint64_t seed() const { return seed_; }
  const SamplerOptions& options() const { return options_; }

 private:
  struct Candidate {
    float logit;
    Token id;
    double weight;  // exp((logit - largest logit) / temperature)
  };
  Sampler() = default;
  void LoadLogits(std::span<const float> logits);
  void AddTo(Token id, double value);  // work_[id] += value, kept finite
  void Penalise();
  void PenaliseRepetitions();  // DRY
  Token Greedy() const;
  void GatherTopK(size_t k);
  void GatherCandidates(double largest);
  void KeepNucleus(double total);
  Token Draw();

  SamplerOptions options_;
  uint64_t seed_ = 0;
  Rng rng_{0};
  int64_t vocab_ = 0;
  int64_t range_ = 0;                          // how many tokens recent_ may hold
  std::deque<Token> recent_;                   // the last range_ tokens, oldest first
  std::unordered_map<Token, int64_t> counts_;  // of the tokens in recent_
  std::vector<Candidate> candidates_;          // scratch
  std::vector<float> work_;                    // (vocab): logits after bias and penalties; finite or -inf
  std::vector<Token> newest_first_;            // scratch: recent_ reversed
  std::vector<size_t> match_;                  // scratch: see PenaliseRepetitions
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_SAMPLER_H_
