#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ballast {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kNanD = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfD = std::numeric_limits<double>::infinity();

// Every knob off, temperature 1.
SamplerOptions Plain(uint64_t seed = 1) {
  SamplerOptions o;
  o.seed = seed;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

Sampler Make(const SamplerOptions& options, int64_t vocab, int64_t capacity = 1024) {
  auto made = Sampler::Create(options, vocab, capacity);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

Token Next(Sampler& sampler, const std::vector<float>& logits) {
  auto token = sampler.Sample(logits);
  EXPECT_TRUE(token.ok()) << token.status().message();
  return token.ok() ? *token : -1;
}

std::vector<float> RandomLogits(int64_t vocab, uint32_t seed, double spread = 2) {
  std::mt19937 rng(seed);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = static_cast<float>((rng() / 4294967296.0 - 0.5) * 2 * spread);
  return logits;
}

// The definition, the slow way: softmax at temperature; keep the top k, renormalise; keep the nucleus; keep
// what has min_p of the best; renormalise.
std::vector<double> ExactProbabilities(const std::vector<double>& logits, const SamplerOptions& o) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (o.top_k > 0) order.resize(std::min<size_t>(order.size(), o.top_k));
  auto weight = [&](size_t id) { return std::exp((logits[id] - logits[order[0]]) / o.temperature); };
  double total = 0;
  for (size_t id : order) total += weight(id);
  std::vector<double> p(logits.size(), 0);
  double mass = 0, kept = 0;
  for (size_t id : order) {
    if (mass >= o.top_p) break;
    mass += weight(id) / total;
    if (weight(id) >= o.min_p) kept += p[id] = weight(id);
  }
  for (double& x : p) x /= kept;
  return p;
}

// Draws against probabilities: nothing impossible is drawn, and every count is within 5 standard deviations.
void ExpectDistribution(Sampler& sampler, const std::vector<float>& logits, const std::vector<double>& p) {
  constexpr int kDraws = 100000;
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) ++counts[Next(sampler, logits)];
  double chi2 = 0;
  int cells = 0;
  for (size_t id = 0; id < p.size(); ++id) {
    const double expected = p[id] * kDraws;
    if (p[id] == 0) {
      EXPECT_EQ(counts[id], 0) << id;
      continue;
    }
    EXPECT_NEAR(counts[id], expected, 5 * std::sqrt(expected * (1 - p[id])) + 1e-9) << id;
    chi2 += (counts[id] - expected) * (counts[id] - expected) / expected;
    ++cells;
  }
  // Mean cells - 1, variance 2 (cells - 1).
  EXPECT_LT(chi2, cells + 5 * std::sqrt(2.0 * cells));
}

std::vector<double> AsDouble(const std::vector<float>& v) { return {v.begin(), v.end()}; }

TEST(RngTest, KnownOutputs) {
  // splitmix64 from seed 1234567 and xoshiro256** from state 1, 2, 3, 4: the published reference outputs.
  uint64_t seed = 1234567;
  EXPECT_EQ(Rng::SplitMix64(&seed), 6457827717110365317u);
  EXPECT_EQ(Rng::SplitMix64(&seed), 3203168211198807973u);
  EXPECT_EQ(Rng::SplitMix64(&seed), 9817491932198370423u);
  Rng rng(std::array<uint64_t, 4>{1, 2, 3, 4});
  EXPECT_EQ(rng.Next(), 11520u);
  EXPECT_EQ(rng.Next(), 0u);
  EXPECT_EQ(rng.Next(), 1509978240u);
  EXPECT_EQ(rng.Next(), 1215971899390074240u);
}

TEST(SamplerTest, DrawsFollowTheExactProbabilities) {
  const std::vector<float> logits = RandomLogits(12, 3);
  for (double temperature : {0.5, 1.0, 2.0}) {
    SamplerOptions o = Plain(42);
    o.temperature = temperature;
    Sampler sampler = Make(o, 12);
    ExpectDistribution(sampler, logits, ExactProbabilities(AsDouble(logits), o));
  }
}

TEST(SamplerTest, TopKTopPMinPTogetherFollowTheDefinition) {
  const std::vector<float> logits = RandomLogits(30, 5);
  struct Knobs {
    int64_t k;
    double p, min_p;
  };
  for (const Knobs knobs :
       {Knobs{5, 1, 0}, Knobs{0, 0.6, 0}, Knobs{0, 1, 0.3}, Knobs{12, 0.8, 0.1}, Knobs{1000, 0.999, 0.001}}) {
    SamplerOptions o = Plain(7);
    o.top_k = knobs.k, o.top_p = knobs.p, o.min_p = knobs.min_p;
    Sampler sampler = Make(o, 30);
    ExpectDistribution(sampler, logits, ExactProbabilities(AsDouble(logits), o));
  }
}

// Which tokens can come out at all, over many random settings. 300 draws at a high temperature miss a kept
// token rarely enough for the sets to be compared one way, and never the other way.
TEST(SamplerTest, NothingOutsideTheDefinitionIsEverDrawn) {
  std::mt19937 rng(17);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits = RandomLogits(1 + rng() % 20, rng());
    for (float& x : logits) x = std::round(x * 2) / 2;  // many ties
    SamplerOptions o = Plain(rng());
    o.top_k = rng() % 8;
    o.top_p = (1 + rng() % 100) / 100.0;
    o.min_p = rng() % 2 ? 0 : (rng() % 101) / 100.0;
    o.temperature = 0.1 + rng() % 30 / 10.0;
    const std::vector<double> p = ExactProbabilities(AsDouble(logits), o);
    Sampler sampler = Make(o, static_cast<int64_t>(logits.size()));
    std::set<Token> seen;
    for (int i = 0; i < 300; ++i) seen.insert(Next(sampler, logits));
    for (Token id : seen) EXPECT_GT(p[id], 0) << "round " << round;
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] > 0.1) {
        EXPECT_TRUE(seen.count(static_cast<Token>(id))) << "round " << round;
      }
    }
  }
}

// llama.cpp#684: temperature 0 divided by zero.
TEST(SamplerTest, GreedyTakesTheLowestIdOfTheBest) {
  const std::vector<float> logits = {1, 3, 3, 2, 3};
  SamplerOptions zero = Plain();
  zero.temperature = 0;
  SamplerOptions one = Plain();
  one.top_k = 1;
  for (const SamplerOptions& o : {zero, one}) {
    for (uint64_t seed : {1u, 2u, 3u}) {
      SamplerOptions seeded = o;
      seeded.seed = seed;
      Sampler sampler = Make(seeded, 5);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(Next(sampler, logits), 1);
    }
  }
}

TEST(SamplerTest, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits = {-3e38f, 3e38f, 1, 3e38f};
  for (double t : {1e-3, 1e-30, 1e-300, std::numeric_limits<double>::denorm_min()}) {
    SamplerOptions o = Plain();
    o.temperature = t;
    Sampler sampler = Make(o, 4);
    std::set<Token> seen;
    for (int i = 0; i < 100; ++i) seen.insert(Next(sampler, logits));
    EXPECT_EQ(seen, (std::set<Token>{1, 3})) << t;
  }
  SamplerOptions o = Plain();
  o.temperature = 1e308;
  Sampler sampler = Make(o, 4);
  ExpectDistribution(sampler, logits, {0.25, 0.25, 0.25, 0.25});
}

// llama.cpp#7381: the seed was ignored, and not echoed.
TEST(SamplerTest, TheSeedDecidesAndIsReadable) {
  const std::vector<float> logits = RandomLogits(50, 1, 0.1);
  auto draw = [&](SamplerOptions o) {
    o.temperature = 5;
    Sampler sampler = Make(o, 50);
    std::vector<Token> out;
    for (int i = 0; i < 100; ++i) out.push_back(Next(sampler, logits));
    return std::pair(out, sampler.seed());
  };
  EXPECT_EQ(draw(Plain(42)), draw(Plain(42)));
  EXPECT_EQ(draw(Plain(42)).second, 42u);
  EXPECT_NE(draw(Plain(42)).first, draw(Plain(43)).first);
  SamplerOptions unseeded = Plain();
  unseeded.seed.reset();
  const auto [tokens, seed] = draw(unseeded);
  EXPECT_NE(seed, draw(unseeded).second);
  EXPECT_EQ(draw(Plain(seed)).first, tokens);  // the seed it reports gives the same again
}

// Pins the whole path from seed to token: a change here changes every user's reproducible output.
TEST(SamplerTest, GoldenDraws) {
  std::vector<float> logits(16);
  for (int i = 0; i < 16; ++i) logits[i] = static_cast<float>(i % 5) / 2;
  SamplerOptions o;
  o.seed = 42;
  Sampler sampler = Make(o, 16);
  std::vector<Token> out;
  for (int i = 0; i < 12; ++i) out.push_back(Next(sampler, logits));
  EXPECT_EQ(out, (std::vector<Token>{4, 14, 13, 1, 0, 2, 13, 7, 13, 3, 13, 9}));
}

TEST(SamplerTest, BrokenLogitsNeverChooseABrokenToken) {
  Sampler sampler = Make(Plain(), 4);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Next(sampler, {kNan, -kInf, 0, kNan}), 2);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Next(sampler, {kNan, kInf, 0, -kInf}), 1);
  SamplerOptions greedy = Plain();
  greedy.temperature = 0;
  Sampler best = Make(greedy, 4);
  EXPECT_EQ(Next(best, {kNan, -kInf, -5, kNan}), 2);
  for (Sampler* s : {&sampler, &best}) {
    const auto none = s->Sample(std::vector<float>{kNan, -kInf, kNan, -kInf});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.status().code(), Code::kModel);
    EXPECT_EQ(none.status().message(), "no token can be sampled: expected a finite logit, found none in 4");
  }
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 2}).status().code(), Code::kInternal);
}

TEST(Sampler, ABiasThatBansEveryTokenIsRefused) {
  SamplerOptions options = Plain();
  for (Token id = 0; id < 4; ++id) options.logit_bias[id] = -kInf;
  EXPECT_TRUE(Sampler::Create(options, 5, 1).ok());
  const Status status = Sampler::Create(options, 4, 1).status();
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_EQ(status.message(), "--logit-bias: expected a token that may be drawn, found all 4 banned");
}

TEST(SamplerTest, LogitBiasAddsAndBans) {
  const std::vector<float> logits = RandomLogits(8, 9);
  SamplerOptions o = Plain(3);
  o.logit_bias = {{2, 1.5}, {5, -0.75}, {6, -kInfD}};
  std::vector<double> biased = AsDouble(logits);
  biased[2] += 1.5, biased[5] -= 0.75, biased[6] = -kInfD;
  Sampler sampler = Make(o, 8);
  ExpectDistribution(sampler, logits, ExactProbabilities(biased, o));

  SamplerOptions huge = Plain();
  huge.logit_bias = {{0, -1e300}, {1, -kInfD}};
  Sampler only = Make(huge, 2);
  EXPECT_EQ(Next(only, {1, 1}), 0);  // a large bias is not a ban
}

// Greedy over chosen logits reads off which token the penalties leave in front.
std::vector<double> PlainPenalties(std::vector<double> l, const std::vector<Token>& seen,
                                   const SamplerOptions& o, int64_t range) {
  const size_t from = seen.size() - std::min<size_t>(seen.size(), range);
  for (size_t id = 0; id < l.size(); ++id) {
    const auto n = std::count(seen.begin() + from, seen.end(), static_cast<Token>(id));
    if (n == 0) continue;
    l[id] = l[id] > 0 ? l[id] / o.repeat_penalty : l[id] * o.repeat_penalty;
    l[id] -= o.presence_penalty + o.frequency_penalty * n;
  }
  return l;
}

TEST(SamplerTest, PenaltiesFollowTheDefinitionOverTheRange) {
  std::mt19937 rng(23);
  for (int64_t last_n : {0, 1, 5, -1}) {
    SamplerOptions o = Plain(rng());
    o.repeat_last_n = last_n;
    o.repeat_penalty = 1.3;
    o.presence_penalty = 0.4;
    o.frequency_penalty = 0.25;
    Sampler sampler = Make(o, 10, 7);
    std::vector<Token> seen;
    for (int i = 0; i < 40; ++i) {
      seen.push_back(static_cast<Token>(rng() % 10));
      sampler.Observe(seen.back());
    }
    sampler.Observe(-1);  // not tokens
    sampler.Observe(10);
    const std::vector<float> logits = RandomLogits(10, 31);
    const std::vector<double> penalised = PlainPenalties(AsDouble(logits), seen, o, last_n < 0 ? 7 : last_n);
    ExpectDistribution(sampler, logits, ExactProbabilities(penalised, o));
  }
}

// DRY by search: for each candidate, the longest suffix that was followed by it before.
std::vector<double> PlainDry(std::vector<double> l, const std::vector<Token>& seen, const SamplerOptions& o) {
  auto breaks = [&](Token t) { return std::count(o.dry_breakers.begin(), o.dry_breakers.end(), t) > 0; };
  std::vector<int64_t> longest(l.size(), 0);
  for (size_t next = 1; next < seen.size(); ++next) {  // seen[next] was said after seen[..next)
    int64_t n = 0;
    while (n < static_cast<int64_t>(next) && seen[next - 1 - n] == seen[seen.size() - 1 - n] &&
           !breaks(seen[next - 1 - n]))
      ++n;
    longest[seen[next]] = std::max(longest[seen[next]], n);
  }
  for (size_t id = 0; id < l.size(); ++id) {
    if (longest[id] < o.dry_allowed_length || breaks(static_cast<Token>(id))) continue;
    l[id] -= o.dry_multiplier * std::pow(o.dry_base, longest[id] - o.dry_allowed_length);
  }
  return l;
}

TEST(SamplerTest, DryFollowsTheDefinition) {
  std::mt19937 rng(29);
  int penalised_rounds = 0;
  for (int round = 0; round < 3000; ++round) {
    SamplerOptions o = Plain();
    o.temperature = 0;  // the argmax shows the penalty, tested at random logits
    o.dry_multiplier = 0.1 + rng() % 10 / 5.0;
    o.dry_base = 1 + rng() % 10 / 10.0;
    o.dry_allowed_length = 1 + rng() % 3;
    if (rng() % 2) o.dry_breakers = {3, 0};
    Sampler sampler = Make(o, 4);
    std::vector<Token> seen(rng() % 40);
    for (Token& t : seen) {
      t = static_cast<Token>(rng() % 8 == 0 ? rng() % 4 : rng() % 2);
      sampler.Observe(t);
    }
    const std::vector<float> logits = RandomLogits(4, rng());
    const std::vector<double> l = PlainDry(AsDouble(logits), seen, o);
    const auto best = std::max_element(l.begin(), l.end()) - l.begin();
    penalised_rounds += l != AsDouble(logits);
    ASSERT_EQ(Next(sampler, logits), best) << "round " << round;
  }
  EXPECT_GT(penalised_rounds, 1000);
}

TEST(SamplerTest, DryBreaksAnEndlessLoop) {
  SamplerOptions o = Plain();
  o.temperature = 0;
  o.dry_multiplier = 1;
  Sampler sampler = Make(o, 3);
  std::vector<float> logits = {5, 0, 0};
  int repeats = 0;
  while (repeats < 64 && Next(sampler, logits) == 0) sampler.Observe(0), ++repeats;
  // After n zeros the match is n - 1 long: 1.75^(n - 1 - 2) first exceeds 5 at n = 6.
  EXPECT_EQ(repeats, 6);
}

// A range full of one token makes a quadratic matcher take 10^10 steps.
TEST(SamplerTest, DryIsLinearInTheRange) {
  SamplerOptions o = Plain();
  o.temperature = 0;
  o.dry_multiplier = 1;
  o.repeat_last_n = 200000;
  Sampler sampler = Make(o, 2);
  for (int i = 0; i < 300000; ++i) sampler.Observe(0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Next(sampler, {1e30f, 1}), 1);  // 1.75^199997 is past any logit
}

TEST(SamplerTest, ExtremePenaltiesStayFinite) {
  SamplerOptions o = Plain();
  o.repeat_penalty = 1e-300;
  o.presence_penalty = 1e308;
  o.frequency_penalty = 1e308;
  o.dry_multiplier = 1e308;
  o.dry_allowed_length = 1;
  Sampler sampler = Make(o, 3);
  for (int i = 0; i < 20; ++i) {
    for (Token t : {0, 1, 2}) sampler.Observe(t);
    EXPECT_GE(Next(sampler, {1, -1, 3e38f}), 0);
  }
}

TEST(SamplerTest, SamplingDoesNotObserve) {
  SamplerOptions o = Plain();
  o.temperature = 0;
  o.presence_penalty = 10;
  Sampler sampler = Make(o, 2);
  EXPECT_EQ(Next(sampler, {1, 0}), 0);
  EXPECT_EQ(Next(sampler, {1, 0}), 0);
  sampler.Observe(0);
  EXPECT_EQ(Next(sampler, {1, 0}), 1);
}

// vllm#16529: a bias for an id past the vocabulary ended the engine. Every refusal names the flag, what is
// allowed and what was found.
TEST(SamplerTest, OptionsOutOfRangeAreRefusedByName) {
  auto with = [](auto change) {
    SamplerOptions o = Plain();
    change(o);
    const auto made = Sampler::Create(o, 100, 64);
    EXPECT_FALSE(made.ok());
    EXPECT_EQ(made.ok() ? Code::kOk : made.status().code(), Code::kUsage);
    return made.ok() ? "" : made.status().message();
  };
  using O = SamplerOptions;
  EXPECT_EQ(with([](O& o) { o.temperature = -1; }), "--temp: expected a number from 0, found -1");
  EXPECT_EQ(with([](O& o) { o.temperature = kNanD; }), "--temp: expected a number from 0, found nan");
  EXPECT_EQ(with([](O& o) { o.temperature = kInfD; }), "--temp: expected a number from 0, found inf");
  EXPECT_EQ(with([](O& o) { o.top_k = -1; }), "--top-k: expected an integer from 0, found -1");
  EXPECT_EQ(with([](O& o) { o.top_p = 1.5; }), "--top-p: expected a number in (0, 1], found 1.5");
  EXPECT_EQ(with([](O& o) { o.top_p = 0; }), "--top-p: expected a number in (0, 1], found 0");
  EXPECT_EQ(with([](O& o) { o.top_p = kNanD; }), "--top-p: expected a number in (0, 1], found nan");
  EXPECT_EQ(with([](O& o) { o.min_p = -0.1; }), "--min-p: expected a number in [0, 1], found -0.1");
  EXPECT_EQ(with([](O& o) { o.min_p = 1.1; }), "--min-p: expected a number in [0, 1], found 1.1");
  EXPECT_EQ(with([](O& o) { o.repeat_penalty = 0; }), "--repeat-penalty: expected a number above 0, found 0");
  EXPECT_EQ(with([](O& o) { o.repeat_last_n = -2; }),
            "--repeat-last-n: expected an integer from -1 to 1048576, found -2");
  EXPECT_EQ(with([](O& o) { o.repeat_last_n = INT64_MAX; }),
            "--repeat-last-n: expected an integer from -1 to 1048576, found 9223372036854775807");
  EXPECT_EQ(with([](O& o) { o.presence_penalty = kNanD; }),
            "--presence-penalty: expected a finite number, found nan");
  EXPECT_EQ(with([](O& o) { o.frequency_penalty = -kInfD; }),
            "--frequency-penalty: expected a finite number, found -inf");
  EXPECT_EQ(with([](O& o) { o.dry_multiplier = -1; }),
            "--dry-multiplier: expected a number from 0, found -1");
  EXPECT_EQ(with([](O& o) { o.dry_base = 0.5; }), "--dry-base: expected a number from 1, found 0.5");
  EXPECT_EQ(with([](O& o) { o.dry_allowed_length = 0; }),
            "--dry-allowed-length: expected an integer from 1, found 0");
  EXPECT_EQ(with([](O& o) {
              o.dry_breakers = {5, 100};
            }),
            "--dry-breaker: expected a token id in [0, 100), found 100");
  EXPECT_EQ(with([](O& o) {
              o.logit_bias = {{100, 1}};
            }),
            "--logit-bias: expected a token id in [0, 100), found 100");
  EXPECT_EQ(with([](O& o) {
              o.logit_bias = {{-1, 1}};
            }),
            "--logit-bias: expected a token id in [0, 100), found -1");
  EXPECT_EQ(with([](O& o) {
              o.logit_bias = {{7, kNanD}};
            }),
            "--logit-bias: expected a finite number or -inf for token 7, found nan");
  EXPECT_TRUE(Sampler::Create(SamplerOptions(), 100, 64).ok());
}

}  // namespace
}  // namespace ballast
