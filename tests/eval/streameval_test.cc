// StreamEval: distances, and what is asked about. (That a real model looks up what is near and guesses what
// is far: tests/cli/test_proof.py.)
#include "eval/streameval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval_fixture.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StreamEval, DistancesReachBeyondTheWindow) {
  EXPECT_THAT(DefaultDistances(100), ElementsAre(1, 2, 5, 10, 25, 50, 75, 90, 110, 150, 200));
  for (const double lines : {0.1, 3.0, 1e9}) {
    const std::vector<int64_t> distances = DefaultDistances(lines);
    EXPECT_GE(distances.front(), 1);
    EXPECT_LE(distances.back(), kMostDistance);
    EXPECT_TRUE(std::is_sorted(distances.begin(), distances.end()));
  }
}

// Two words apart, the same seed, the same list: and what is visible follows the law of the cache.
TEST(StreamEval, VisibleIsWhatTheCacheHolds) {
  const auto* loaded = testing::SmolLm2(Compute::kFast);
  ASSERT_NE(loaded, nullptr);
  StreamEvalOptions options;
  options.stream.context = 128;
  options.distances = {1, 4, 40};  // 1, 5 and 41
  options.questions = 3;
  const auto run = [&] { return RunStreamEval(*loaded->model, *loaded->tokenizer, *loaded->pool, options); };
  const auto result = run();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->words, 16);
  ASSERT_EQ(result->points.size(), 3u);
  EXPECT_EQ(result->points[0].visible, 1);
  EXPECT_EQ(result->points[1].visible, 1);
  EXPECT_EQ(result->points[2].visible, 0);
  for (const StreamEvalPoint& p : result->points) {
    EXPECT_EQ(p.asked, 3);
    EXPECT_GE(p.likelihood, 0);
    EXPECT_LE(p.likelihood, 1);
  }
  EXPECT_GT(result->points[2].tokens, 128);
  const auto again = run();
  EXPECT_EQ(again->points[1].likelihood, result->points[1].likelihood);
  EXPECT_EQ(again->example, result->example);
}

TEST(StreamEval, AVocabularyWithoutTheWordsIsRefused) {
  const testing::TinyLlama network{testing::TinySpec{}};
  const auto loaded = testing::LoadFile(network.WriteTemp("streameval_test.gguf"), Compute::kF32, 1);
  const auto result = RunStreamEval(*loaded->model, *loaded->tokenizer, *loaded->pool, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kModel);
  EXPECT_THAT(result.status().message(), HasSubstr("the vocabulary"));
}

}  // namespace
}  // namespace ballast
