// What `watch` is made of: lines, templates, words, judgements, and a state that goes on where it stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "engine/stream.h"
#include "eval/line_assembler.h"
#include "eval/log_template.h"
#include "eval/novelty.h"
#include "eval/watch_state.h"
#include "eval/word_model.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

TEST(LineAssembler, EveryByteIsInOneLineHoweverItArrives) {
  std::mt19937 rng(1);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "ab\r\n\0\xff"[rng() % 6];
    LineAssembler assembler(3);
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min<size_t>(1 + rng() % 7, text.size() - at);
      assembler.Push(std::string_view(text).substr(at, n));
      at += n;
    }
    assembler.Finish();
    int64_t next = 0;
    for (const LogLine& line : assembler.lines()) {
      ASSERT_EQ(line.offset, next);
      next += line.bytes;
      std::string raw = text.substr(static_cast<size_t>(line.offset), static_cast<size_t>(line.bytes));
      ASSERT_EQ(line.partial, raw.back() != '\n');
      if (!line.partial) raw.pop_back();
      if (!line.partial && !raw.empty() && raw.back() == '\r') raw.pop_back();
      ASSERT_EQ(line.truncated, raw.size() > 3);
      ASSERT_EQ(line.text, raw.substr(0, 3));
      ASSERT_EQ(line.after.before, FingerprintOf(text.substr(0, static_cast<size_t>(next))));
    }
    ASSERT_EQ(next, static_cast<int64_t>(text.size()));
  }
}

TEST(LogTemplate, NumbersIdsAndTheCalendarAreMasked) {
  EXPECT_EQ(MaskLine("worker 3570 exited on signal 9"), "worker # exited on signal #");
  EXPECT_EQ(MaskLine("Nov 30 12:15:01 at 0xdeadbeef1"), "# # #:#:# at #");
  EXPECT_EQ(MaskLine("Monday in May"), "Monday in #");
  EXPECT_EQ(MaskLine("caf\xc3\xa9 \xff\t "), "caf\xc3\xa9 \xff");
  EXPECT_EQ(MaskLine(std::string(5000, 'x')).size(), 512u);
  EXPECT_EQ(TemplateHash("a 1 b"), TemplateHash("a 22 b"));
  EXPECT_NE(TemplateHash("a 1 b"), TemplateHash("a 1 c"));
}

TEST(LogTemplate, TheTableStaysBoundedAndForgetsTheOldest) {
  TemplateTable table;
  for (uint64_t i = 0; i < 3 * TemplateTable::kMostTemplates; ++i) {
    table.Observe(1);
    table.Observe(1000 + i);
  }
  EXPECT_LE(table.Entries().size(), TemplateTable::kMostTemplates);
  EXPECT_EQ(table.Find(1).count, 3 * static_cast<int64_t>(TemplateTable::kMostTemplates));
  EXPECT_EQ(table.Find(1000).count, 0);
}

TEST(WordModel, AWordIsUnusualWhereFewOthersCome) {
  WordModel model;
  for (int i = 0; i < 300; ++i) {
    model.Judge("user " + std::string(1, static_cast<char>('a' + i % 26)) + "x" +
                std::string(1, 'a' + i / 26) + " logged in, code 200");
  }
  const double ordinary = model.Judge("user zzz logged in, code 200").cost;
  EXPECT_LT(ordinary, 4) << "ever new users come";
  EXPECT_GT(model.Judge("user axa logged in, code 503").cost, 6) << "never another code";
  EXPECT_GT(model.Judge("user axa logged out, code 200").cost, 6);
  EXPECT_LT(model.Judge("user axa logged in, code 200").cost, 2);
}

TEST(WordModel, TheHourThatStrikesIsNotUnusual) {
  WordModel model;
  double worst = 0;
  for (int i = 0; i < 200; ++i)
    worst = model.Judge("Nov 30 11:" + std::to_string(10 + i % 50) + " host app: ok").cost;
  EXPECT_NEAR(model.Judge("Dec 1 00:00 host app: ok").cost, worst, 0.1);
}

TEST(WordModel, ItStaysBounded) {
  WordModel model;
  std::mt19937 rng(2);
  for (int i = 0; i < 20000; ++i) {
    std::string line;
    for (int w = 0; w < 8; ++w) {
      for (int c = 0; c < 5; ++c) line += static_cast<char>('a' + rng() % 26);
      line += ' ';
    }
    model.Judge(line);
  }
  EXPECT_LE(model.Pairs().size(), WordModel::kMostPairs);
  EXPECT_EQ(model.lines(), 20000);
}

LineSurprise Surprise(double bits) {
  LineSurprise s;
  s.bits = s.text_bits = bits;
  s.tokens = s.text_tokens = 1;
  return s;
}

TEST(NoveltyJudge, OnlyTheBeginningOfARunCountsInFull) {
  NoveltyJudge judge({});
  for (int i = 0; i < 500; ++i) judge.Judge("GET /item/" + std::to_string(i), Surprise(1 + i % 7), false);
  std::vector<Judgement> run;
  for (int i = 0; i < 8; ++i) {
    run.push_back(judge.Judge("trace" + std::string(static_cast<size_t>(i), '-') + "x", Surprise(20), false));
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(run[static_cast<size_t>(i)].alarm) << i;
  EXPECT_LT(run[6].score, 0.7 * run[0].score);
  for (int i = 0; i < 10; ++i) judge.Judge("GET /item/" + std::to_string(i), Surprise(1), false);
  EXPECT_TRUE(judge.Judge("panic", Surprise(20), false).alarm) << "another event";
  EXPECT_FALSE(judge.Judge("panic again", Surprise(20), true).alarm) << "marked as normal";
}

TEST(NoveltyJudge, WhatComesAgainAndAgainIsNoNewsHoweverRare) {
  NoveltyJudge judge({});
  int alarms = 0;
  for (int i = 0; i < 4000; ++i) {
    judge.Judge("GET /item/" + std::to_string(i) + " 200", Surprise(1), false);
    if (i % 100 == 99) alarms += judge.Judge("health check of /status 200", Surprise(9), false).alarm;
  }
  EXPECT_GE(alarms, 5) << "at first it is new";
  EXPECT_LE(alarms, 10);
  EXPECT_TRUE(judge.Judge("health check of /status 503", Surprise(9), false).alarm) << "never this code";
  EXPECT_TRUE(judge.Judge("health check of /other 200", Surprise(9), false).alarm) << "never this word";
}

TEST(NoveltyJudge, NoAlarmBeforeItKnowsTheLog) {
  NoveltyJudge judge({});
  for (int i = 0; i < 199; ++i)
    EXPECT_FALSE(judge.Judge(std::string(1 + i % 40, 'x'), Surprise(9), false).alarm);
}

class WatchStateTest : public ::testing::Test {
 protected:
  WatchStateTest() : pool_(1), file_(TensorFile::Open(TinyLlama(TinySpec{}).WriteTemp("watch_state"))) {
    model_ = Model::Load(*file_, {Compute::kF32, nullptr}, pool_).value();
  }
  std::unique_ptr<Stream> New(int64_t context = 24) {
    StreamOptions o;
    o.context = context;
    return Stream::Create(*model_, pool_, o).value();
  }
  static void Feed(NoveltyJudge& judge, int from, int to) {
    for (int i = from; i < to; ++i) {
      judge.Judge("line " + std::string(1 + i % 17, 'a' + i % 3) + " " + std::to_string(i % 900),
                  Surprise(i % 11), false);
    }
  }

  ThreadPool pool_;
  Result<TensorFile> file_;
  std::unique_ptr<const Model> model_;
};

TEST_F(WatchStateTest, WhatGoesOnIsWhatWouldHaveGoneOn) {
  auto stream = New();
  ASSERT_TRUE(stream->Append(RandomTokens(60, 64, 1)).ok());
  NoveltyJudge judge({});
  Feed(judge, 0, 1500);
  WatchProgress progress;
  progress.input = "a.log";
  progress.place = {1, ~uint64_t{0}, int64_t{1} << 40, {256, ~uint64_t{0}}};
  progress.lines = 7;
  const std::string image = EncodeWatchState(progress, judge, *stream, "m");

  auto other = New();
  NoveltyJudge restored({});
  WatchProgress read;
  const Status status = DecodeWatchState(image, "m", &read, &restored, other.get());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read.place.inode, ~uint64_t{0});
  EXPECT_EQ(read.place.before.hash, ~uint64_t{0});
  EXPECT_EQ(read.lines, 7);
  EXPECT_EQ(EncodeWatchState(read, restored, *other, "m"), image);
  Feed(judge, 1500, 1600);
  Feed(restored, 1500, 1600);
  ASSERT_TRUE(stream->Append(RandomTokens(9, 64, 2)).ok());
  ASSERT_TRUE(other->Append(RandomTokens(9, 64, 2)).ok());
  EXPECT_EQ(EncodeWatchState(progress, judge, *stream, "m"), EncodeWatchState(read, restored, *other, "m"));
}

TEST_F(WatchStateTest, ADamagedFileIsRefusedAndNothingChanges) {
  auto stream = New();
  ASSERT_TRUE(stream->Append(RandomTokens(60, 64, 1)).ok());
  NoveltyJudge judge({});
  Feed(judge, 0, 50);
  const std::string image = EncodeWatchState({}, judge, *stream, "m");
  auto other = New();
  NoveltyJudge empty({});
  WatchProgress progress;
  std::mt19937 rng(3);
  for (int i = 0; i < 300; ++i) {
    std::string bad = image;
    if (i % 3 == 0) {
      bad.resize(rng() % bad.size());
    } else {
      bad[rng() % bad.size()] ^= static_cast<char>(1 << rng() % 8);
    }
    ASSERT_EQ(DecodeWatchState(bad, "m", &progress, &empty, other.get()).code(), Code::kInput);
  }
  EXPECT_EQ(DecodeWatchState(image, "n", &progress, &empty, other.get()).code(), Code::kInput);
  auto wide = New(32);
  EXPECT_EQ(DecodeWatchState(image, "m", &progress, &empty, wide.get()).code(), Code::kInput);
  EXPECT_EQ(empty.lines(), 0);
  EXPECT_EQ(other->position(), 0);
}

}  // namespace
}  // namespace ballast
