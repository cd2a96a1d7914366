#include "prompt_feed.h"

#include <algorithm>

namespace ballast::app {
namespace {

constexpr size_t kBefore = 256;  // bytes around a cut that are compared
constexpr size_t kAfter = 64;
constexpr int kAttempts = 8;  // line ends tried per read

bool Graphic(char c) { return c > ' ' && c < 0x7f; }
bool InsideCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

// What pre-tokenizers and merges do is local: the lines beside the cut show whether a token reaches across.
bool TextCutter::CutsCleanly(size_t cut) const {
  size_t from = cut > kBefore ? cut - kBefore : 0;
  while (from < cut && InsideCharacter(held_[from])) ++from;
  const std::string_view text(held_);
  const std::string_view left = text.substr(from, cut - from);
  const std::string_view right = text.substr(cut, kAfter);
  std::vector<Token> apart = EncodeContinued(left);
  const std::vector<Token> more = EncodeContinued(right);
  apart.insert(apart.end(), more.begin(), more.end());
  return apart == EncodeContinued(text.substr(from, left.size() + right.size()));
}

size_t TextCutter::SafeCut() const {
  int attempts = kAttempts;
  for (size_t i = held_.size(); i > 1 && attempts > 0; --i) {
    if (held_[i - 2] != '\n' || !Graphic(held_[i - 1])) continue;
    // Behind the newline for most texts; some pre-tokenizers keep the last of several for what follows.
    if (CutsCleanly(i - 1)) return i - 1;
    if (i > 2 && CutsCleanly(i - 2)) return i - 2;
    --attempts;
  }
  if (held_.size() <= kLongestLine) return 0;
  // No line end for too long: between two words if there are any, else between two characters. Here the ids
  // may differ from those of the whole.
  for (size_t i = held_.size() - 1; i > 1; --i) {
    if (held_[i - 1] == ' ' && Graphic(held_[i]) && Graphic(held_[i - 2])) return i - 1;
  }
  size_t cut = held_.size();
  while (cut > held_.size() - 3 && InsideCharacter(held_[cut - 1])) --cut;
  return cut - 1;
}

std::vector<Token> TextCutter::Take() {
  const size_t cut = SafeCut();
  if (cut == 0) return {};
  std::vector<Token> ids = Encode(std::string_view(held_).substr(0, cut));
  held_.erase(0, cut);
  return ids;
}

std::vector<Token> TextCutter::Flush() {
  std::vector<Token> ids = Encode(held_);
  held_.clear();
  return ids;
}

// Ids of a text that continues another.
std::vector<Token> TextCutter::EncodeContinued(std::string_view text) const {
  if (text.empty() || !tokenizer_.vocab().add_space_prefix) return tokenizer_.Encode(text);
  // The leading-space rule is for the beginning of a text, not of a piece: lend the piece a line before it.
  const std::vector<Token> line = tokenizer_.Encode("\n");
  std::vector<Token> ids = tokenizer_.Encode("\n" + std::string(text));
  const bool lent = ids.size() >= line.size() && std::equal(line.begin(), line.end(), ids.begin());
  if (!lent) return tokenizer_.Encode(text);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(line.size()));
  return ids;
}

std::vector<Token> TextCutter::Encode(std::string_view text) {
  if (begun_) return EncodeContinued(text);
  begun_ = true;
  const Vocab& vocab = tokenizer_.vocab();
  std::vector<Token> ids = tokenizer_.Encode(text);
  // Not EncodeOptions::add_special: an EOS must not end a text that goes on.
  if (vocab.add_bos && vocab.bos >= 0 && (ids.empty() || ids[0] != vocab.bos)) {
    ids.insert(ids.begin(), vocab.bos);
  }
  return ids;
}

}  // namespace ballast::app
