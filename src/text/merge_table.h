// MergeTable: (left id, right id) -> rank and result, for byte-pair encoding. Flat and open-addressed, like
// TokenIndex. Thread safety: const after the last insertion.
#ifndef BALLAST_TEXT_MERGE_TABLE_H_
#define BALLAST_TEXT_MERGE_TABLE_H_

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "text/tokenizer.h"

namespace ballast {

class MergeTable {
 public:
  void Reset(size_t merges) { slots_.assign(std::bit_ceil(merges * 2 + 1), Slot{}); }
  // Of two merges of one pair the first, best one stays.
  void Insert(Token left, Token right, uint32_t rank, Token id) {
    Slot& slot = slots_[Probe(Key(left, right))];
    if (slot.key == kFree) slot = {Key(left, right), rank, id};
  }
  // The last one stays.
  void InsertOrReplace(Token left, Token right, uint32_t rank, Token id) {
    slots_[Probe(Key(left, right))] = {Key(left, right), rank, id};
  }
  bool Find(Token left, Token right, uint32_t* rank, Token* id) const {
    const Slot& slot = slots_[Probe(Key(left, right))];
    if (slot.key == kFree) return false;
    *rank = slot.rank;
    *id = slot.id;
    return true;
  }

 private:
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();
  struct Slot {
    uint64_t key = kFree;
    uint32_t rank = 0;
    Token id = -1;
  };
  static uint64_t Key(Token left, Token right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  size_t Probe(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;  // Fibonacci hashing (Knuth, TAOCP 3, 6.4)
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_MERGE_TABLE_H_
