// The merge step of byte-pair encoding, for both kinds of vocabulary.
//
// Repeatedly joins the best neighbouring pair: lowest rank first, leftmost among equals. Candidates wait in a
// heap and symbols in a linked list, so n symbols cost O(n log n) even when all of them are one character
// (a rescan per merge would be quadratic). A candidate whose symbols changed since it was pushed is stale and
// dropped when it comes up.
#ifndef BALLAST_TEXT_PAIR_MERGER_H_
#define BALLAST_TEXT_PAIR_MERGER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "text/tokenizer.h"

namespace ballast {

// A stretch of the word being encoded. Dead once merged into its left neighbour: bytes == 0.
struct MergeSymbol {
  uint32_t begin = 0;
  uint32_t bytes = 0;
  int32_t prev = -1;
  int32_t next = -1;
  Token id = -1;
};

class PairMerger {
 public:
  std::vector<MergeSymbol> symbols;  // of one word; symbol 0 stays the first

  void Clear() { symbols.clear(); }
  // REQUIRES: fewer than 2^31 symbols and 2^32 bytes.
  void Add(uint32_t begin, uint32_t bytes, Token id) {
    const int32_t index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({begin, bytes, index - 1, -1, id});
  }

  // `rule(left, right, &rank, &id)` says whether two neighbouring symbols may be joined, how early, and into
  // what.
  template <typename Rule>
  void Merge(const Rule& rule) {
    heap_.clear();
    for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) {
      if (Candidate c; Propose(rule, i, i + 1, &c)) heap_.push_back(c);
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate best = heap_.back();
      heap_.pop_back();
      const int32_t at = static_cast<int32_t>(best.key & 0xFFFFFFFFu);
      if (IsStale(best, at)) continue;
      Join(at, best.right, best.id);
      const MergeSymbol& joined = symbols[at];
      if (joined.prev >= 0) Push(rule, joined.prev, at);
      if (joined.next >= 0) Push(rule, at, joined.next);
    }
  }

 private:
  struct Candidate {
    uint64_t key;    // rank, then the left symbol's index: the order of merging
    int32_t right;   // index of the right symbol
    uint32_t bytes;  // of both together when proposed
    Token id;        // what they become
    bool operator>(const Candidate& other) const { return key > other.key; }
  };

  template <typename Rule>
  bool Propose(const Rule& rule, int32_t left, int32_t right, Candidate* out) {
    uint32_t rank = 0;
    if (!rule(symbols[left], symbols[right], &rank, &out->id)) return false;
    out->key = (static_cast<uint64_t>(rank) << 32) | static_cast<uint32_t>(left);
    out->right = right;
    out->bytes = symbols[left].bytes + symbols[right].bytes;
    return true;
  }
  template <typename Rule>
  void Push(const Rule& rule, int32_t left, int32_t right) {
    Candidate c;
    if (!Propose(rule, left, right, &c)) return;
    heap_.push_back(c);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  // Symbols only grow, so equal neighbours and an equal total mean that both are as they were.
  bool IsStale(const Candidate& c, int32_t at) const {
    const MergeSymbol& left = symbols[at];
    return left.bytes == 0 || left.next != c.right || left.bytes + symbols[c.right].bytes != c.bytes;
  }
  void Join(int32_t at, int32_t right_at, Token id) {
    MergeSymbol& left = symbols[at];
    MergeSymbol& right = symbols[right_at];
    left.bytes += right.bytes;
    left.id = id;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[left.next].prev = at;
  }

  std::vector<Candidate> heap_;
};

}  // namespace ballast

#endif  // BALLAST_TEXT_PAIR_MERGER_H_
