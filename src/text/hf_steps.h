// The steps of an HfPipeline before its model: normalisers and pre-tokenizers, compiled.
//
// Thread safety: const after Create. Texts are UTF-8, in and out. Cost is linear in the text as far as the
// expressions are (see regex.h).
#ifndef BALLAST_TEXT_HF_STEPS_H_
#define BALLAST_TEXT_HF_STEPS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/hf_pipeline.h"
#include "text/regex.h"

namespace ballast {

class HfNormalizerChain {
 public:
  static Result<HfNormalizerChain> Create(std::vector<HfNormalizer> steps);
  bool empty() const { return steps_.empty(); }
  // `prepend` false: kPrepend does nothing, because the text continues another. `head_kept` becomes false
  // when the first characters are dropped.
  std::string Apply(std::string_view text, bool prepend, RegexMatcher* matcher, bool* head_kept) const;

 private:
  std::vector<HfNormalizer> steps_;
  std::vector<std::optional<Regex>> regexes_;  // (step)
};

// A text cut into words: word i ends at ends[i] and begins where the one before ended. What a step drops is
// no longer in the text.
struct HfWords {
  std::string text;
  std::vector<size_t> ends;
  bool head_kept = true;  // the first word opens the text as it was: nothing before it was dropped
};

class HfPreTokenizerChain {
 public:
  static Result<HfPreTokenizerChain> Create(std::vector<HfPreTokenizer> steps);
  // Cuts words->text. `first`: it begins the whole input. `prepend` false: no step puts a space or mark
  // before it.
  void Apply(bool first, bool prepend, HfWords* words, RegexMatcher* matcher) const;

 private:
  void Split(const HfPreTokenizer& step, const std::optional<Regex>& regex, HfWords* words,
             RegexMatcher* matcher) const;
  void ByteLevel(const HfPreTokenizer& step, const std::optional<Regex>& regex, bool prepend, HfWords* words,
                 RegexMatcher* matcher) const;
  void Metaspace(const HfPreTokenizer& step, bool first, bool prepend, HfWords* words) const;

  std::vector<HfPreTokenizer> steps_;
  std::vector<std::optional<Regex>> regexes_;  // (step)
};

}  // namespace ballast

#endif  // BALLAST_TEXT_HF_STEPS_H_
