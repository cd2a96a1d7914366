#include "text/special_matcher.h"

#include <algorithm>
#include <utility>

namespace ballast {
namespace {

uint8_t ByteAt(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

}  // namespace

void SpecialMatcher::Build(std::vector<Entry> entries) {
  // string_view compares as unsigned bytes, so entries with a common opening are neighbours, shortest first.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
  entries_ = std::move(entries);
  first_.fill(0);
  for (const Entry& entry : entries_) ++first_[ByteAt(entry.text, 0) + 1];
  for (size_t b = 1; b < first_.size(); ++b) first_[b] += first_[b - 1];
}

SpecialMatcher::Match SpecialMatcher::Find(std::string_view text, size_t from, bool control) const {
  for (size_t at = from; at < text.size(); ++at) {
    const uint8_t byte = ByteAt(text, at);
    if (first_[byte] == first_[byte + 1]) continue;
    if (const Match match = MatchAt(text, at, control); match.bytes > 0) return match;
  }
  return {};
}

// Narrows the sorted entries byte by byte to those that agree with the text.
SpecialMatcher::Match SpecialMatcher::MatchAt(std::string_view text, size_t at, bool control) const {
  const uint8_t open = ByteAt(text, at);
  auto low = entries_.begin() + first_[open];
  auto high = entries_.begin() + first_[open + 1];
  Match best;
  for (size_t depth = 1; low != high; ++depth) {
    if (low->text.size() == depth) {
      if (control || !low->control) best = {at, depth, low->id};
      ++low;
    }
    if (at + depth >= text.size()) break;
    const uint8_t byte = ByteAt(text, at + depth);
    low = std::partition_point(low, high, [&](const Entry& e) { return ByteAt(e.text, depth) < byte; });
    high = std::partition_point(low, high, [&](const Entry& e) { return ByteAt(e.text, depth) == byte; });
  }
  return best;
}

}  // namespace ballast
