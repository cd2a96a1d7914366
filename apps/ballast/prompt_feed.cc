#include "prompt_feed.h"

#include <algorithm>

namespace ballast::app {
namespace {

bool Graphic(char c) { return c > ' ' && c < 0x7f; }

}  // namespace

size_t TextCutter::SafeCut() const {
  for (size_t i = held_.size(); i > 1; --i) {
    if (held_[i - 2] == '\n' && Graphic(held_[i - 1])) return i - 1;
  }
  if (held_.size() <= kLongestLine) return 0;
  // No line end for too long: between two words if there are any, else between two characters. Here the ids
  // may differ from those of the whole.
  for (size_t i = held_.size() - 1; i > 1; --i) {
    if (held_[i - 1] == ' ' && Graphic(held_[i]) && Graphic(held_[i - 2])) return i - 1;
  }
  size_t cut = held_.size();
  while (cut > held_.size() - 3 && (static_cast<unsigned char>(held_[cut - 1]) & 0xC0) == 0x80) --cut;
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

std::vector<Token> TextCutter::Encode(std::string_view text) {
  const Vocab& vocab = tokenizer_.vocab();
  if (begun_) {
    if (text.empty() || !vocab.add_space_prefix) return tokenizer_.Encode(text);
    // The leading-space rule is for the beginning of a text, not of a piece: lend the piece a line before it.
    const std::vector<Token> line = tokenizer_.Encode("\n");
    std::vector<Token> ids = tokenizer_.Encode("\n" + std::string(text));
    if (ids.size() >= line.size() && std::equal(line.begin(), line.end(), ids.begin())) {
      ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(line.size()));
      return ids;
    }
    return tokenizer_.Encode(text);
  }
  begun_ = true;
  std::vector<Token> ids = tokenizer_.Encode(text);
  // Not EncodeOptions::add_special: an EOS must not end a text that goes on.
  if (vocab.add_bos && vocab.bos >= 0 && (ids.empty() || ids[0] != vocab.bos))
    ids.insert(ids.begin(), vocab.bos);
  return ids;
}

}  // namespace ballast::app
