#include "eval/word_model.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "eval/log_template.h"

namespace ballast {
namespace {

uint64_t Hash(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }
uint64_t Join(uint64_t seed, uint64_t a, uint64_t b) {
  const uint64_t both[2] = {a, b};
  return XXH3_64bits_withSeed(both, sizeof(both), seed);
}

// Three digits between blanks: what status codes look like, and times, dates and most counts do not.
bool IsCode(std::string_view line, std::string_view part) {
  if (part.size() != 3) return false;
  if (!std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; })) return false;
  const auto begin = static_cast<size_t>(part.data() - line.data());
  const size_t end = begin + part.size();
  return (begin == 0 || line[begin - 1] == ' ') &&
         (end == line.size() || line[end] == ' ' || line[end] == '\t');
}

// Kinds of context; the seed of its hash.
enum : uint64_t { kNone = 1, kOne = 2, kTwo = 3, kNumber = 4, kWord = 5 };

}  // namespace

// Nothing of a context seen less than kLeast times, unless `any`.
std::optional<WordModel::Word> WordModel::Cost(uint64_t context, uint64_t word, bool any) const {
  const auto found = contexts_.find(context);
  const Context c = found == contexts_.end() ? Context{} : found->second;
  if (!any && c.words < kLeast) return std::nullopt;
  if (c.words == 0) return Word{.cost = 1, .count = 0};
  const auto pair = pairs_.find(Join(kWord, context, word));
  const int64_t count = pair == pairs_.end() ? 0 : pair->second.count;
  const auto likely = static_cast<double>(std::max({count, c.different, int64_t{1}}));
  return Word{.cost = std::log2(static_cast<double>(c.words + c.different) / likely), .count = count};
}

WordModel::Verdict WordModel::Judge(std::string_view line) {
  const uint64_t number = Hash("#");
  uint64_t before = Hash("^"), last = before;  // the two words before
  Verdict verdict{.cost = 0, .fewest = std::numeric_limits<int64_t>::max()};
  const auto hear = [&](const std::optional<Word>& heard) {
    if (!heard) return;
    verdict.cost = std::max(verdict.cost, heard->cost);
    if (heard->cost >= kNotable) verdict.fewest = std::min(verdict.fewest, heard->count);
  };
  seen_.clear();
  const auto judge = [&](std::string_view part, bool masked, bool code) {
    const uint64_t word = masked ? number : Hash(part);
    const uint64_t two = Join(kTwo, before, last), one = Join(kOne, last, 0), none = Join(kNone, 0, 0);
    std::optional<Word> heard;
    for (const uint64_t context : {two, one, none}) {
      if (!heard) heard = Cost(context, word, context == none);
      seen_.emplace_back(context, word);
    }
    hear(heard);
    if (code) {
      const uint64_t context = Join(kNumber, before, last);
      hear(Cost(context, Hash(part), false));
      seen_.emplace_back(context, Hash(part));
    }
    before = std::exchange(last, word);
  };
  ForEachPart(line, [&](std::string_view part, bool masked) {
    const bool blank = part.size() == 1 && (part[0] == ' ' || (part[0] >= '\t' && part[0] <= '\r'));
    if (!blank) judge(part, masked, IsCode(line, part));
  });
  judge("\n", false, false);
  ++lines_;
  for (const auto& [context, word] : seen_) Learn(context, word);
  if (pairs_.size() > kMostPairs) Forget();
  return verdict;
}

void WordModel::Learn(uint64_t context, uint64_t word) {
  const uint64_t key = Join(kWord, context, word);
  Pair& pair = pairs_[key];
  Context& c = contexts_[context];
  ++c.words;
  if (pair.count == 0) ++c.different;
  pair.key = key;
  pair.context = context;
  ++pair.count;
  pair.last = lines_;
}

void WordModel::Forget() {
  std::vector<int64_t> last;
  last.reserve(pairs_.size());
  for (const auto& [key, pair] : pairs_) last.push_back(pair.last);
  const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
  std::nth_element(last.begin(), middle, last.end());
  // Those of the very line in the middle stay, unless that would keep all.
  const int64_t keep_from = std::min(*middle, lines_);
  std::erase_if(pairs_, [&](const auto& item) { return item.second.last < keep_from; });
  const std::vector<Pair> left = Pairs();
  Restore(lines_, left);
}

std::vector<WordModel::Pair> WordModel::Pairs() const {
  std::vector<Pair> all;
  all.reserve(pairs_.size());
  for (const auto& [key, pair] : pairs_) all.push_back(pair);
  std::sort(all.begin(), all.end(), [](const Pair& a, const Pair& b) { return a.key < b.key; });
  return all;
}

void WordModel::Restore(int64_t lines, std::span<const Pair> pairs) {
  lines_ = lines;
  pairs_.clear();
  contexts_.clear();
  for (const Pair& pair : pairs) {
    pairs_[pair.key] = pair;
    Context& c = contexts_[pair.context];
    c.words += pair.count;
    ++c.different;
  }
}

}  // namespace ballast
