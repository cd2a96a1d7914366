#include "eval/novelty.h"

#include <algorithm>
#include <cmath>

namespace ballast {
namespace {

constexpr std::array<double, 3> kWeights = {1, 1, 0.5};  // of seen, words, surprise
constexpr double kExcess = 3;   // bits of evidence that a bit of surprise per token above the median can be
constexpr double kUnusual = 6;  // bits of score
constexpr int64_t kBeginning = 5;  // lines of a run that count in full
constexpr int64_t kQuiet = 4;      // other lines that end a run
constexpr double kFollowing = 0.5;
constexpr int64_t kHabit = 10;  // earlier lines like it: no news any more
constexpr double kLeastDeviation = 0.5;
constexpr double kGaussian = 1.4826;  // standard deviations in a median absolute deviation

double Median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// -log2 of the share of the newest lines that were as unusual, at most `most`: of ordinary lines, too, one is
// the most unusual.
double NoveltyJudge::Evidence(size_t measure, double value, double most) const {
  const auto as_unusual = std::count_if(
      recent_.begin(), recent_.end(), [&](const Recent& r) { return r.measures[measure] >= value - 1e-12; });
  const double bits =
      std::log2(static_cast<double>(recent_.size() + 1) / static_cast<double>(as_unusual + 1));
  return std::min(bits, std::max(0.0, most));
}

double NoveltyJudge::MedianOf(double (*value)(const Recent&)) const {
  if (recent_.empty()) return 0;
  std::vector<double> values;
  values.reserve(recent_.size());
  for (const Recent& r : recent_) values.push_back(value(r));
  return Median(values);
}

double NoveltyJudge::Z(double score) const {
  if (recent_.empty()) return 0;
  const double median = MedianOf([](const Recent& r) { return r.score; });
  std::vector<double> distances;
  distances.reserve(recent_.size());
  for (const Recent& r : recent_) distances.push_back(std::abs(r.score - median));
  return (score - median) / std::max(kLeastDeviation, kGaussian * Median(distances));
}

double NoveltyJudge::Discount(double score) {
  const double discounted = run_ < kBeginning ? score : score * kFollowing;
  if (score >= kUnusual) {
    ++run_;
    quiet_ = 0;
  } else if (++quiet_ >= kQuiet) {
    run_ = 0;
  }
  return discounted;
}

Judgement NoveltyJudge::Judge(std::string_view line, const LineSurprise& surprise, bool exempt) {
  const uint64_t hash = TemplateHash(line);
  Judgement j;
  j.seen = templates_.Find(hash).count;
  const WordModel::Verdict words = words_.Judge(line);
  j.words = words.cost;
  j.surprise = surprise.text_tokens > 0 ? surprise.text_bits / static_cast<double>(surprise.text_tokens) : 0;
  Recent recent;
  recent.measures = {-static_cast<double>(j.seen), j.words, j.surprise};
  const double rarity = std::log2(static_cast<double>(lines() + 2) / static_cast<double>(j.seen + 1));
  const double excess = j.surprise - MedianOf([](const Recent& r) { return r.measures[2]; });
  const std::array<double, 3> most = {rarity, j.words, kExcess * excess};
  double score = 0;
  for (size_t m = 0; m < kWeights.size(); ++m) {
    j.evidence[m] = Evidence(m, recent.measures[m], most[m]);
    score += kWeights[m] * j.evidence[m];
  }
  j.score = Discount(score);
  j.z = Z(j.score);
  // Rare things that come again and again stay rare; new they are no more.
  const bool habit = j.seen >= kHabit && words.fewest >= kHabit;
  j.alarm = !exempt && !habit && j.score >= options_.threshold && lines() >= options_.warm_up;
  recent.score = j.score;
  recent_.push_back(recent);
  if (recent_.size() > kNormalLines) recent_.pop_front();
  templates_.Observe(hash);
  return j;
}

NoveltyJudge::State NoveltyJudge::state() const {
  return {lines(), run_, quiet_, templates_.Entries(), words_.Pairs(), {recent_.begin(), recent_.end()}};
}

void NoveltyJudge::Restore(const State& state) {
  templates_.Restore(state.lines, state.templates);
  words_.Restore(state.lines, state.pairs);
  recent_.assign(state.recent.begin(), state.recent.end());
  run_ = state.run;
  quiet_ = state.quiet;
}

}  // namespace ballast
