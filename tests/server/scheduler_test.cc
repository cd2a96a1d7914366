// Who computes next.
#include "server/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "server/engine_service.h"

namespace ballast::server {
namespace {

// The law of issue 5: running streams keep at least half of the machine's time while prompts are read.
TEST(PrefillPacer, PromptsGetAtMostHalfOfTheTimeWhileSomebodyDecodes) {
  std::mt19937 rng(3);
  for (const double prompt_cost : {0.002, 0.02, 0.2}) {
    PrefillPacer pacer;
    double decode_time = 0, prompt_time = 0;
    int pieces = 0;
    for (int step = 0; step < 5000; ++step) {
      const double decode = 0.005 * (0.9 + 0.2 * (rng() % 1000) / 1000.0);
      const bool prompt = step > 0 && pacer.MayPrefill(true);
      const double extra = prompt ? prompt_cost * (0.9 + 0.2 * (rng() % 1000) / 1000.0) : 0;
      pacer.Measured(true, prompt ? 128 : 0, decode + extra);
      decode_time += decode;
      prompt_time += extra;
      pieces += prompt;
    }
    EXPECT_LE(prompt_time, decode_time * 1.05 + prompt_cost) << prompt_cost;
    // And prompts are not starved either: they get about the half that is theirs, when they can use it.
    if (prompt_cost > 0.005) {
      EXPECT_GT(prompt_time, decode_time * 0.7) << prompt_cost;
    }
    EXPECT_GT(pieces, 10);
  }
}

TEST(PrefillPacer, NobodyDecodingMeansNoWaiting) {
  PrefillPacer pacer;
  pacer.Measured(true, 0, 0.005);
  pacer.Measured(true, 128, 1.0);
  EXPECT_FALSE(pacer.MayPrefill(true));
  EXPECT_TRUE(pacer.MayPrefill(false));
}

TEST(PrefillTurns, EveryPromptIsServedInTurnWhateverItsLength) {
  PrefillTurns turns;
  std::map<uint64_t, int> served;
  const std::vector<PrefillTurns::Piece> pieces = {{3, 128}, {7, 5}, {9, 128}, {12, 128}};
  for (int step = 0; step < 300; ++step) {
    const std::vector<size_t> chosen = turns.Choose(pieces, 128);
    ASSERT_FALSE(chosen.empty());
    int64_t sum = 0;
    for (const size_t i : chosen) {
      ++served[pieces[i].ticket];
      sum += pieces[i].tokens;
    }
    ASSERT_LE(sum, 128);
  }
  int least = 300, most = 0;
  for (const auto& [ticket, n] : served) {
    least = std::min(least, n);
    most = std::max(most, n);
  }
  EXPECT_EQ(served.size(), 4u);
  EXPECT_LE(most - least, 1);
}

TEST(PrefillTurns, APieceLargerThanTheBudgetIsNotStuck) {
  PrefillTurns turns;
  const std::vector<PrefillTurns::Piece> pieces = {{1, 128}};
  EXPECT_EQ(turns.Choose(pieces, 16).size(), 1u);
  EXPECT_TRUE(turns.Choose({}, 16).empty());
}

// One key that floods the queue does not keep another one waiting behind it.
TEST(AdmissionOrder, ATenantWithManyRequestsWaitsForThoseWithFew) {
  std::vector<Waiting> waiting;
  for (uint64_t i = 0; i < 20; ++i) waiting.push_back({"flood", i});
  waiting.push_back({"light", 20});
  const std::vector<std::string> running = {"flood", "flood"};
  const std::vector<size_t> order = AdmissionOrder(waiting, running);
  EXPECT_EQ(order[0], 20u);
  for (size_t i = 1; i < order.size(); ++i) EXPECT_EQ(order[i], i - 1) << "arrival order within a tenant";
}

// A step cannot be taken back: a cancelled request of a large model must not wait for seconds.
TEST(PrefillChunk, ShrinksWithTheModelAndNeverDependsOnTheMachine) {
  EXPECT_EQ(DefaultPrefillChunk(1), 128);
  EXPECT_EQ(DefaultPrefillChunk(134'000'000), 128);
  EXPECT_EQ(DefaultPrefillChunk(270'000'000), 64);
  EXPECT_EQ(DefaultPrefillChunk(1'100'000'000), 16);
  EXPECT_EQ(DefaultPrefillChunk(70'000'000'000), 8);
}

}  // namespace
}  // namespace ballast::server
