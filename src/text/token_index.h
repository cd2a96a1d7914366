// TokenIndex: token text to id, without copying the texts.
//
// Thread safety: const after the last Insert. Invariants: 1. of equal texts the first inserted wins; 2. the
// empty text is never found. A flat open-addressing table, because building a node-based map over 262k
// tokens costs more than reading them.
#ifndef BALLAST_TEXT_TOKEN_INDEX_H_
#define BALLAST_TEXT_TOKEN_INDEX_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ballast {

class TokenIndex {
 public:
  // `texts` must outlive the index and stay where it is. Room for all of them.
  void Reset(const std::vector<std::string>* texts) {
    texts_ = texts;
    max_bytes_ = 0;
    slots_.assign(std::bit_ceil(texts->size() * 2 + 1), Slot{});
  }

  void Insert(Token id) {
    const std::string& text = (*texts_)[id];
    if (text.empty()) return;
    const uint32_t hash = Hash(text);
    Slot& slot = slots_[Probe(text, hash)];
    if (slot.id >= 0) return;
    slot = {hash, id};
    max_bytes_ = std::max(max_bytes_, text.size());
  }

  // -1 when there is none.
  Token Find(std::string_view text) const {
    if (text.empty() || text.size() > max_bytes_) return -1;
    return slots_[Probe(text, Hash(text))].id;
  }

  size_t max_bytes() const { return max_bytes_; }  // of the longest text inserted

 private:
  struct Slot {
    uint32_t hash = 0;
    Token id = -1;
  };

  static uint32_t Hash(std::string_view text) {
    const uint64_t h = std::hash<std::string_view>()(text);
    return static_cast<uint32_t>(h ^ (h >> 32));
  }
  // The slot that holds `text`, or the free one where it would go.
  size_t Probe(std::string_view text, uint32_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].id >= 0 && (slots_[at].hash != hash || (*texts_)[slots_[at].id] != text)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  const std::vector<std::string>* texts_ = nullptr;
  std::vector<Slot> slots_;
  size_t max_bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_TOKEN_INDEX_H_
