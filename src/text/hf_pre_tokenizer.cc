#include <algorithm>
#include <utility>

#include "text/byte_table.h"
#include "text/hf_steps.h"
#include "text/unicode.h"

namespace ballast {
namespace {

using Kind = HfPreTokenizer::Kind;
using Behavior = HfPreTokenizer::Behavior;
using Prepend = HfPreTokenizer::Prepend;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// \w+|[^\w\s]+ as Rust's regex crate reads it (Unicode's UTS 18, annex C).
constexpr std::string_view kWords =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\p{Z}\x09-\x0D\x{85}]+)";

struct Cut {
  size_t begin;
  size_t end;
  bool match;
};

// Matches and what lies between them, in order.
void CutAt(const std::vector<TextSpan>& matches, size_t size, bool invert, std::vector<Cut>* cuts) {
  size_t at = 0;
  for (const TextSpan& m : matches) {
    if (m.begin > at) cuts->push_back({at, m.begin, invert});
    cuts->push_back({m.begin, m.end, !invert});
    at = m.end;
  }
  if (at < size) cuts->push_back({at, size, invert});
}

// Each character of a class is a match of its own; the others run together.
template <typename Is>
void CutAtCharacters(std::string_view word, const Is& is, std::vector<Cut>* cuts) {
  size_t open = 0, bytes = 0;
  for (size_t at = 0; at < word.size(); at += bytes) {
    if (!is(DecodeUtf8(word, at, &bytes))) continue;
    if (at > open) cuts->push_back({open, at, false});
    cuts->push_back({at, at + bytes, true});
    open = at + bytes;
  }
  if (open < word.size()) cuts->push_back({open, word.size(), false});
}

void FindText(std::string_view word, std::string_view text, std::vector<TextSpan>* matches) {
  if (text.empty()) return;
  for (size_t at = 0; (at = word.find(text, at)) != std::string_view::npos; at += text.size()) {
    matches->push_back({at, at + text.size()});
  }
}

// The cuts joined or dropped as `behavior` says.
std::vector<Cut> Arrange(const std::vector<Cut>& cuts, Behavior behavior) {
  std::vector<Cut> out;
  bool previous = false;
  switch (behavior) {
    case Behavior::kIsolated:
      return cuts;
    case Behavior::kRemoved:
      for (const Cut& cut : cuts) {
        if (!cut.match) out.push_back(cut);
      }
      return out;
    case Behavior::kContiguous:
      for (const Cut& cut : cuts) {
        if (!out.empty() && previous == cut.match) {
          out.back().end = cut.end;
        } else {
          out.push_back(cut);
        }
        previous = cut.match;
      }
      return out;
    case Behavior::kMergedWithPrevious:
      for (const Cut& cut : cuts) {
        if (cut.match && !previous && !out.empty()) {
          out.back().end = cut.end;
        } else {
          out.push_back(cut);
        }
        previous = cut.match;
      }
      return out;
    case Behavior::kMergedWithNext:
      for (size_t i = cuts.size(); i-- > 0;) {
        if (cuts[i].match && !previous && !out.empty()) {
          out.back().begin = cuts[i].begin;
        } else {
          out.push_back(cuts[i]);
        }
        previous = cuts[i].match;
      }
      std::reverse(out.begin(), out.end());
      return out;
  }
  return out;
}

// Calls cut(word, &cuts) for each word, and arranges what it found.
template <typename CutWord>
void Recut(HfWords* words, Behavior behavior, const CutWord& cut_word) {
  HfWords out;
  out.head_kept = words->head_kept;
  out.text.reserve(words->text.size());
  std::vector<Cut> cuts;
  size_t begin = 0;
  for (const size_t end : words->ends) {
    const std::string_view word = std::string_view(words->text).substr(begin, end - begin);
    const bool head = begin == 0;
    begin = end;
    cuts.clear();
    cut_word(word, &cuts);
    const std::vector<Cut> kept = Arrange(cuts, behavior);
    if (head && (kept.empty() || kept[0].begin > 0)) out.head_kept = false;
    for (const Cut& cut : kept) {
      out.text.append(word.substr(cut.begin, cut.end - cut.begin));
      if (cut.end > cut.begin) out.ends.push_back(out.text.size());
    }
  }
  *words = std::move(out);
}

}  // namespace

Result<HfPreTokenizerChain> HfPreTokenizerChain::Create(std::vector<HfPreTokenizer> steps) {
  HfPreTokenizerChain chain;
  for (HfPreTokenizer& step : steps) {
    std::optional<Regex> regex;
    if (step.kind == Kind::kSplit && step.pattern.regex) {
      BALLAST_ASSIGN_OR_RETURN(regex, Regex::FromOniguruma(step.pattern.text));
    } else if (step.kind == Kind::kByteLevel && step.use_regex) {
      BALLAST_ASSIGN_OR_RETURN(regex, Regex::FromOniguruma(kGpt2));
    } else if (step.kind == Kind::kWhitespace) {
      BALLAST_ASSIGN_OR_RETURN(regex, Regex::Compile(kWords));
    }
    chain.regexes_.push_back(std::move(regex));
    chain.steps_.push_back(std::move(step));
  }
  return chain;
}

void HfPreTokenizerChain::Split(const HfPreTokenizer& step, const std::optional<Regex>& regex, HfWords* words,
                                RegexMatcher* matcher) const {
  const bool words_match = step.kind == Kind::kWhitespace;
  const Behavior behavior = words_match || step.kind == Kind::kDelimiter ? Behavior::kRemoved : step.behavior;
  std::vector<TextSpan> matches;
  Recut(words, behavior, [&](std::string_view word, auto* cuts) {
    matches.clear();
    if (regex.has_value()) {
      matcher->FindAll(*regex, word, &matches);
    } else {
      FindText(word, step.pattern.text, &matches);
    }
    CutAt(matches, word.size(), step.invert || words_match, cuts);
  });
}

void HfPreTokenizerChain::ByteLevel(const HfPreTokenizer& step, const std::optional<Regex>& regex,
                                    bool prepend, HfWords* words, RegexMatcher* matcher) const {
  if (step.add_prefix_space) {
    HfWords out;
    size_t begin = 0;
    for (const size_t end : words->ends) {
      const bool skip = begin == 0 && !prepend;
      if (!skip && words->text[begin] != ' ') out.text += ' ';
      out.text.append(words->text, begin, end - begin);
      out.ends.push_back(out.text.size());
      begin = end;
    }
    *words = std::move(out);
  }
  if (regex.has_value()) {
    HfPreTokenizer split;
    Split(split, regex, words, matcher);
  }
  HfWords out;
  out.text.reserve(words->text.size());
  size_t at = 0;
  for (const size_t end : words->ends) {
    for (; at < end; ++at) AppendByteChar(static_cast<uint8_t>(words->text[at]), &out.text);
    out.ends.push_back(out.text.size());
  }
  *words = std::move(out);
}

void HfPreTokenizerChain::Metaspace(const HfPreTokenizer& step, bool first, bool prepend,
                                    HfWords* words) const {
  HfWords out;
  size_t begin = 0;
  for (const size_t end : words->ends) {
    std::string word;
    for (size_t at = begin; at < end; ++at) {
      if (words->text[at] == ' ') {
        word += step.mark;
      } else {
        word += words->text[at];
      }
    }
    const bool wanted = step.prepend == Prepend::kAlways ||
                        (step.prepend == Prepend::kFirst && first && begin == 0 && words->head_kept);
    if (wanted && (prepend || begin > 0) && !word.starts_with(step.mark)) word.insert(0, step.mark);
    begin = end;
    out.text += word;
    out.ends.push_back(out.text.size());
  }
  *words = std::move(out);
  if (!step.split) return;
  std::vector<TextSpan> matches;
  Recut(words, Behavior::kMergedWithNext, [&](std::string_view word, auto* cuts) {
    matches.clear();
    FindText(word, step.mark, &matches);
    CutAt(matches, word.size(), false, cuts);
  });
}

void HfPreTokenizerChain::Apply(bool first, bool prepend, HfWords* words, RegexMatcher* matcher) const {
  words->ends.clear();
  words->head_kept = true;
  if (words->text.empty()) return;
  words->ends.push_back(words->text.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const HfPreTokenizer& step = steps_[i];
    switch (step.kind) {
      case Kind::kSplit:
      case Kind::kWhitespace:
      case Kind::kDelimiter:
        Split(step, regexes_[i], words, matcher);
        break;
      case Kind::kByteLevel:
        ByteLevel(step, regexes_[i], prepend, words, matcher);
        break;
      case Kind::kMetaspace:
        Metaspace(step, first, prepend, words);
        break;
      case Kind::kDigits:
        Recut(words, step.individual ? Behavior::kIsolated : Behavior::kContiguous,
              [](std::string_view word, auto* cuts) { CutAtCharacters(word, IsNumber, cuts); });
        break;
      case Kind::kPunctuation:
        Recut(words, step.behavior,
              [](std::string_view word, auto* cuts) { CutAtCharacters(word, IsPunctuation, cuts); });
        break;
      case Kind::kBert:
      case Kind::kWhitespaceSplit:
        Recut(words, Behavior::kRemoved,
              [](std::string_view word, auto* cuts) { CutAtCharacters(word, IsSpace, cuts); });
        if (step.kind == Kind::kBert) {
          Recut(words, Behavior::kIsolated,
                [](std::string_view word, auto* cuts) { CutAtCharacters(word, IsPunctuation, cuts); });
        }
        break;
    }
  }
}

}  // namespace ballast
