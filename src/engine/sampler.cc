#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <random>
#include <string>
#include <string_view>

namespace ballast {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr int64_t kLongestRange = 1 << 20;  // recent_ must stay bounded however long the stream runs

std::string Text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.12g", value);
  return buffer;
}

Status Refuse(std::string_view flag, std::string_view expected, std::string_view found) {
  return Status::Expected(Code::kUsage, flag, expected, found);
}

// NaN fails every comparison, so each rule is written as what must hold.
Status CheckNumbers(const SamplerOptions& o) {
  struct Rule {
    std::string_view flag;
    double value;
    bool holds;
    std::string_view expected;
  };
  const Rule rules[] = {
      {"--temp", o.temperature, o.temperature >= 0 && o.temperature < kInfinity, "a number from 0"},
      {"--top-p", o.top_p, o.top_p > 0 && o.top_p <= 1, "a number in (0, 1]"},
      {"--min-p", o.min_p, o.min_p >= 0 && o.min_p <= 1, "a number in [0, 1]"},
      {"--repeat-penalty", o.repeat_penalty, o.repeat_penalty > 0 && o.repeat_penalty < kInfinity,
       "a number above 0"},
      {"--presence-penalty", o.presence_penalty, std::isfinite(o.presence_penalty), "a finite number"},
      {"--frequency-penalty", o.frequency_penalty, std::isfinite(o.frequency_penalty), "a finite number"},
      {"--dry-multiplier", o.dry_multiplier, o.dry_multiplier >= 0 && o.dry_multiplier < kInfinity,
       "a number from 0"},
      {"--dry-base", o.dry_base, o.dry_base >= 1 && o.dry_base < kInfinity, "a number from 1"},
  };
  for (const Rule& rule : rules) {
    if (!rule.holds) return Refuse(rule.flag, rule.expected, Text(rule.value));
  }
  if (o.top_k < 0) return Refuse("--top-k", "an integer from 0", std::to_string(o.top_k));
  if (o.repeat_last_n < -1 || o.repeat_last_n > kLongestRange) {
    return Refuse("--repeat-last-n", "an integer from -1 to " + std::to_string(kLongestRange),
                  std::to_string(o.repeat_last_n));
  }
  if (o.dry_allowed_length < 1) {
    return Refuse("--dry-allowed-length", "an integer from 1", std::to_string(o.dry_allowed_length));
  }
  return Status();
}

Status CheckTokens(const SamplerOptions& o, int64_t vocab) {
  const std::string ids = "a token id in [0, " + std::to_string(vocab) + ")";
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || id >= vocab) return Refuse("--logit-bias", ids, std::to_string(id));
    if (std::isnan(bias) || bias == kInfinity) {
      return Refuse("--logit-bias", "a finite number or -inf for token " + std::to_string(id), Text(bias));
    }
  }
  const auto banned = [](const auto& entry) { return entry.second == -kInfinity; };
  if (std::count_if(o.logit_bias.begin(), o.logit_bias.end(), banned) == vocab) {
    return Refuse("--logit-bias", "a token that may be drawn", "all " + std::to_string(vocab) + " banned");
  }
  for (const Token id : o.dry_breakers) {
    if (id < 0 || id >= vocab) return Refuse("--dry-breaker", ids, std::to_string(id));
  }
  return Status();
}

Result<uint64_t> SystemSeed() {
  try {
    std::random_device device;
    const uint64_t high = device();
    return high << 32 | device();
  } catch (const std::exception& error) {
    return Status(Code::kInternal, std::string("seed: the system gave no random number: ") + error.what(),
                  "pass --seed");
  }
}

// A total order, so that what is kept never depends on the sorting algorithm.
constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

}  // namespace

Result<Sampler> Sampler::Create(const SamplerOptions& options, int64_t vocab, int64_t capacity) {
  if (vocab < 1 || vocab > std::numeric_limits<Token>::max()) {
    return Status::Expected(Code::kInternal, "vocabulary size", "from 1 to 2147483647",
                            std::to_string(vocab));
  }
  BALLAST_RETURN_IF_ERROR(CheckNumbers(options));
  BALLAST_RETURN_IF_ERROR(CheckTokens(options, vocab));
  Sampler sampler;
  sampler.options_ = options;
  std::sort(sampler.options_.dry_breakers.begin(), sampler.options_.dry_breakers.end());
  if (options.seed.has_value()) {
    sampler.seed_ = *options.seed;
  } else {
    BALLAST_ASSIGN_OR_RETURN(sampler.seed_, SystemSeed());
  }
  sampler.rng_ = Rng(sampler.seed_);
  sampler.vocab_ = vocab;
  sampler.range_ = options.repeat_last_n >= 0 ? options.repeat_last_n : std::max<int64_t>(capacity, 0);
  return sampler;
}

void Sampler::Observe(Token token) {
  if (token < 0 || token >= vocab_ || range_ == 0) return;
  recent_.push_back(token);
  ++counts_[token];
  if (static_cast<int64_t>(recent_.size()) <= range_) return;
  const auto oldest = counts_.find(recent_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  recent_.pop_front();
}

Result<Token> Sampler::Sample(std::span<const float> logits) {
  if (static_cast<int64_t>(logits.size()) != vocab_) {
    return Status::Expected(Code::kInternal, "logits", std::to_string(vocab_) + " of them",
                            std::to_string(logits.size()));
  }
  LoadLogits(logits);
  Penalise();
  const Token best = Greedy();
  if (work_[best] == kBanned) {
    return Status(Code::kModel, "no token can be sampled: expected a finite logit, found none in " +
                                    std::to_string(vocab_));
  }
  if (options_.temperature == 0 || options_.top_k == 1) return best;
  GatherCandidates(work_[best]);
  return Draw();
}

void Sampler::LoadLogits(std::span<const float> logits) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  work_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    work_[i] = std::isnan(logits[i]) ? kBanned : std::min(logits[i], kLargest);
  }
  for (const auto& [id, bias] : options_.logit_bias) {
    if (bias == -kInfinity) {
      work_[id] = kBanned;
    } else {
      AddTo(id, bias);
    }
  }
}

// A finite logit stays finite: however large a penalty, it never bans, so a token is left to choose.
void Sampler::AddTo(Token id, double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (work_[id] == kBanned) return;
  work_[id] = static_cast<float>(std::clamp(work_[id] + value, -kLargest, kLargest));
}

void Sampler::Penalise() {
  const SamplerOptions& o = options_;
  if (o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0) {
    for (const auto& [id, count] : counts_) {
      if (work_[id] == kBanned) continue;
      const double logit = work_[id];
      // Repetition penalty: CTRL (Keskar et al., 2019, section 4.1), sign-aware so that it always lowers.
      const double scaled = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
      const double subtracted = o.presence_penalty + o.frequency_penalty * static_cast<double>(count);
      AddTo(id, scaled - logit);
      AddTo(id, -subtracted);
    }
  }
  if (o.dry_multiplier > 0) PenaliseRepetitions();
}

// DRY ("don't repeat yourself", proposed by p-e-w, 2024). With the range reversed, r[0] the newest token, the
// tokens r[i], r[i+1], ... lead up to r[i-1]; so r[i-1] would continue a repetition as long as the common
// prefix of r[i..] and r: the Z-function, linear in the range.
void Sampler::PenaliseRepetitions() {
  const std::vector<Token>& r = newest_first_;
  newest_first_.assign(recent_.rbegin(), recent_.rend());
  const auto breaks = [this](Token token) {
    return std::binary_search(options_.dry_breakers.begin(), options_.dry_breakers.end(), token);
  };
  const size_t limit = static_cast<size_t>(std::find_if(r.begin(), r.end(), breaks) - r.begin());
  std::unordered_map<Token, size_t> longest;
  match_.assign(r.size(), 0);
  for (size_t i = 1, left = 0, right = 0; i < r.size(); ++i) {  // [left, right): the rightmost match known
    size_t length = i < right ? std::min(right - i, match_[i - left]) : 0;
    while (i + length < r.size() && r[i + length] == r[length]) ++length;
    match_[i] = length;
    if (i + length > right) left = i, right = i + length;
    length = std::min(length, limit);
    if (static_cast<int64_t>(length) < options_.dry_allowed_length || breaks(r[i - 1])) continue;
    size_t& known = longest[r[i - 1]];
    known = std::max(known, length);
  }
  for (const auto& [id, length] : longest) {
    const auto excess = static_cast<double>(static_cast<int64_t>(length) - options_.dry_allowed_length);
    AddTo(id, -options_.dry_multiplier * std::pow(options_.dry_base, excess));
  }
}

// In independent lanes, since one running maximum waits for itself: the vocabulary is read for every token.
Token Sampler::Greedy() const {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kBanned);
  size_t i = 0;
  for (; i + kLanes <= work_.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = work_[i + lane] > lanes[lane] ? work_[i + lane] : lanes[lane];
    }
  }
  for (; i < work_.size(); ++i) lanes[0] = std::max(lanes[0], work_[i]);
  const float largest = *std::max_element(lanes, lanes + kLanes);
  return static_cast<Token>(std::find(work_.begin(), work_.end(), largest) - work_.begin());
}

// The k likeliest, likeliest first: a heap of the best so far, its worst in front. Ids come in order, so a
// later tie never replaces an earlier one.
void Sampler::GatherTopK(size_t k) {
  for (size_t i = 0; i < work_.size(); ++i) {
    if (candidates_.size() == k) {
      if (!(work_[i] > candidates_.front().logit)) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), kLikelier);
      candidates_.pop_back();
    } else if (work_[i] == kBanned) {
      continue;
    }
    candidates_.push_back({work_[i], static_cast<Token>(i), 0.0});
    std::push_heap(candidates_.begin(), candidates_.end(), kLikelier);
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), kLikelier);
}

// Everything that may be drawn, with weights. Subtracting the largest logit before dividing keeps a tiny
// temperature from overflowing upwards; downwards the weight is just 0.
void Sampler::GatherCandidates(double largest) {
  candidates_.clear();
  if (options_.top_k > 0 && options_.top_k < vocab_) {
    GatherTopK(static_cast<size_t>(options_.top_k));
  } else {
    for (size_t i = 0; i < work_.size(); ++i) {
      if (work_[i] != kBanned) candidates_.push_back({work_[i], static_cast<Token>(i), 0.0});
    }
  }
  double total = 0;
  for (Candidate& c : candidates_) {
    c.weight = std::exp((c.logit - largest) / options_.temperature);
    total += c.weight;
  }
  // min-p: at least this share of the likeliest token's probability, whose weight is 1. Before top-p, whose
  // share is of all the same: both keep the likeliest few, and this way only those are put in order.
  if (options_.min_p > 0) {
    std::erase_if(candidates_, [this](const Candidate& c) { return c.weight < options_.min_p; });
  }
  if (options_.top_p < 1) KeepNucleus(total);
}

// top-p: the fewest likeliest tokens that hold the share top_p of `total` (Holtzman et al., 2019). A heap,
// since of a large vocabulary only a few are wanted.
void Sampler::KeepNucleus(double total) {
  const auto less = [](const Candidate& a, const Candidate& b) { return kLikelier(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), less);
  auto end = candidates_.end();
  double mass = 0;
  while (end != candidates_.begin() && mass < options_.top_p * total) {
    std::pop_heap(candidates_.begin(), end, less);
    --end;
    mass += end->weight;
  }
  candidates_.erase(candidates_.begin(), end);
  std::reverse(candidates_.begin(), candidates_.end());  // likeliest first
}

Token Sampler::Draw() {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const double target = rng_.Uniform() * total;
  double mass = 0;
  Token last = candidates_.front().id;  // rounding may leave the target just past the end
  for (const Candidate& c : candidates_) {
    if (c.weight == 0) continue;
    mass += c.weight;
    last = c.id;
    if (mass > target) break;
  }
  return last;
}

}  // namespace ballast
