#include "engine/stop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace ballast {
namespace {

// The definition: the text before the earliest place where any stop string begins.
std::string PlainCut(const std::string& text, const std::vector<std::string>& stops) {
  size_t cut = text.size();
  for (const std::string& stop : stops) {
    if (!stop.empty()) cut = std::min(cut, text.find(stop));
  }
  return text.substr(0, cut);
}

// What may be shown of a prefix: a byte is certain when it is shown for every continuation, which fails
// exactly when it lies at or after an unfinished stop or after a found one.
std::string PlainCertain(const std::string& seen, const std::vector<std::string>& stops) {
  size_t certain = PlainCut(seen, stops).size();
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= seen.size(); ++n) {
      if (seen.ends_with(stop.substr(0, n))) certain = std::min(certain, seen.size() - n);
    }
  }
  return seen.substr(0, certain);
}

TEST(StopFilterTest, AnyCuttingGivesTheTextBeforeTheEarliestStop) {
  std::mt19937 rng(11);
  auto word = [&](size_t length) {
    std::string out(length, 'a');
    for (char& c : out) c = static_cast<char>('a' + rng() % 3);
    return out;
  };
  int stopped = 0, ran_out = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = word(rng() % 30);
    std::vector<std::string> stops(rng() % 4);
    for (std::string& stop : stops) stop = word(rng() % 7);
    StopFilter filter(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min<size_t>(text.size() - at, rng() % 5);
      out += filter.Push(text.substr(at, n));
      at += n;
      ASSERT_EQ(out, PlainCertain(text.substr(0, at), stops)) << text;  // as early as possible, never earlier
    }
    out += filter.Finish();
    const std::string expected = PlainCut(text, stops);
    ASSERT_EQ(out, expected) << text;
    ASSERT_EQ(filter.stopped(), expected.size() < text.size()) << text;
    (filter.stopped() ? stopped : ran_out)++;
    ASSERT_EQ(filter.Push("") + filter.Finish(), "") << text;
    // Once stopped nothing else is ever shown.
    if (filter.stopped()) {
      ASSERT_EQ(filter.Push("abcabc") + filter.Finish(), "");
    }
  }
  EXPECT_GT(stopped, 1000);
  EXPECT_GT(ran_out, 1000);
}

// vllm#3574: the first tokens of a stop string were streamed before the rest arrived.
TEST(StopFilterTest, NoByteOfAStopThatSpansTokensIsShown) {
  StopFilter filter({"</answer>"});
  EXPECT_EQ(filter.Push("42 <"), "42 ");
  EXPECT_EQ(filter.Push("/ans"), "");
  EXPECT_EQ(filter.Push("wer> and more"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.Finish(), "");
}

// llama.cpp#9867: text that only looked like a stop was lost when generation ended.
TEST(StopFilterTest, AHeldTailIsGivenBackAtTheEnd) {
  StopFilter filter({"STOP"});
  EXPECT_EQ(filter.Push("a ST"), "a ");
  EXPECT_EQ(filter.Finish(), "ST");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilterTest, AHeldTailThatTurnsOutInnocentIsShown) {
  StopFilter filter({"aab"});
  EXPECT_EQ(filter.Push("aa"), "");
  EXPECT_EQ(filter.Push("a"), "a");  // "aaa": the last two may still begin a stop
  EXPECT_EQ(filter.Push("c"), "aac");
}

TEST(StopFilterTest, OneByteStopAndSeveralStops) {
  StopFilter newline({"\n"});
  EXPECT_EQ(newline.Push("one\ntwo\n"), "one");
  EXPECT_TRUE(newline.stopped());

  StopFilter several({"User:", "\n\n"});
  EXPECT_EQ(several.Push("hi\nUse"), "hi\n");
  EXPECT_EQ(several.Push("r:"), "");
  EXPECT_TRUE(several.stopped());
}

TEST(StopFilterTest, ALongerStopThatBeganEarlierWins) {
  StopFilter wins({"bc", "abcd"});
  EXPECT_EQ(wins.Push("xabc"), "x");
  EXPECT_FALSE(wins.stopped());  // "abcd" may still begin before "bc"
  EXPECT_EQ(wins.Push("d"), "");
  EXPECT_TRUE(wins.stopped());

  StopFilter loses({"bc", "abcd"});
  EXPECT_EQ(loses.Push("xabc"), "x");
  EXPECT_EQ(loses.Push("e"), "a");
  EXPECT_TRUE(loses.stopped());

  StopFilter ends({"bc", "abcd"});
  EXPECT_EQ(ends.Push("xabc"), "x");
  EXPECT_EQ(ends.Finish(), "a");
  EXPECT_TRUE(ends.stopped());
}

TEST(StopFilterTest, NoStopsPassEverything) {
  StopFilter filter({"", ""});
  EXPECT_EQ(filter.Push("abc"), "abc");
  EXPECT_EQ(filter.Push(""), "");
  EXPECT_EQ(filter.Finish(), "");
  EXPECT_FALSE(filter.stopped());
}

// A stream of near misses must cost the same per byte throughout: a filter that rescans what it holds would
// need 10^11 comparisons here.
TEST(StopFilterTest, NearMissesForEverStayLinear) {
  const std::string stop = std::string(100000, 'a') + "b";
  StopFilter filter({stop});
  const std::string piece(1000, 'a');
  size_t shown = 0;
  for (int i = 0; i < 2000; ++i) shown += filter.Push(piece).size();
  EXPECT_EQ(shown, 2000u * 1000 - 100000);
  EXPECT_EQ(filter.Push("b"), "");
  EXPECT_TRUE(filter.stopped());
}

}  // namespace
}  // namespace ballast
