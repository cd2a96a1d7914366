// The service over the tiny network: replies, sessions, isolation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "engine/chat_prompter.h"
#include "server/service_fixture.h"

namespace ballast::server {
namespace {

// The same reply made by hand, with the engine alone.
std::string Direct(const Messages& messages, int64_t n, const EngineServiceOptions& o) {
  return DirectReply(o, n, [&](const Tokenizer& tokenizer) {
    return ChatPrompter(tokenizer, ChatFormat::kChatMl).Render(messages, 0, true, true).value();
  });
}

TEST(Service, AReplyIsTheEnginesOwn) {
  const EngineServiceOptions o = TinyOptions();
  auto service = Serve(o);
  for (const char* text : {"hello", "WhatIsTheCapital", "a"}) {
    const Messages messages = {{"user", text}};
    const CollectorPtr c = AskAndWait(*service, Chat(messages, 20));
    ASSERT_FALSE(c->failed) << c->error.message;
    EXPECT_EQ(c->text, Direct(messages, 20, o));
    EXPECT_FALSE(c->text.empty());
    EXPECT_EQ(c->usage.position, c->usage.prompt_tokens + c->usage.completion_tokens +
                                     (c->finish == Finish::kLength ? 1 : 0));  // the closing token
  }
}

// llama.cpp #4047, vllm #6521.
TEST(Service, TheBudgetIsKeptExactly) {
  auto service = Serve(TinyOptions());
  for (const bool chat : {true, false}) {
    for (const int64_t n : {0, 1, 2, 3}) {
      const CollectorPtr c = AskAndWait(*service, chat ? Chat({{"user", "budget"}}, n) : Text("budget", n));
      ASSERT_FALSE(c->failed) << c->error.message;
      EXPECT_EQ(c->usage.completion_tokens, n);
      EXPECT_EQ(c->finish, Finish::kLength);
      EXPECT_EQ(c->text.empty(), n == 0);
    }
  }
}

TEST(Service, AHistoryContinuesItsSessionAtTheCostOfTheNewTokens) {
  auto service = Serve(TinyOptions());
  Messages history = {{"system", "besilly"}};
  int64_t position = 0;
  for (int turn = 0; turn < 6; ++turn) {
    history.push_back({"user", "tellme" + std::to_string(turn)});
    const CollectorPtr c = AskAndWait(*service, Chat(history, 8));
    ASSERT_FALSE(c->failed) << c->error.message;
    EXPECT_EQ(c->usage.cached_tokens, position) << "turn " << turn;
    if (turn > 0) {
      EXPECT_LT(c->usage.prompt_tokens - c->usage.cached_tokens, 40);
    }
    position = c->usage.position;
    history.push_back({"assistant", c->text});
  }
  EXPECT_EQ(Sessions(*service).size(), 1u);
}

TEST(Service, ANamedSessionTakesNewMessagesOrTheWholeHistory) {
  auto service = Serve(TinyOptions());
  const auto ask = [&](Messages messages) {
    Request r = Chat(std::move(messages), 6);
    r.session = "mine";
    return AskAndWait(*service, std::move(r));
  };
  const CollectorPtr first = ask({{"system", "besilly"}, {"user", "one"}});
  ASSERT_FALSE(first->failed) << first->error.message;
  EXPECT_EQ(first->usage.session, "mine");
  // Only what is new; the system message that is there already is not fed again.
  const CollectorPtr second = ask({{"system", "besilly"}, {"user", "two"}});
  EXPECT_GT(second->usage.position, first->usage.position);
  EXPECT_LT(second->usage.position - first->usage.position, 45);
  // All of it.
  const CollectorPtr third = ask({{"system", "besilly"},
                                  {"user", "one"},
                                  {"assistant", first->text},
                                  {"user", "two"},
                                  {"assistant", second->text},
                                  {"user", "three"}});
  EXPECT_EQ(third->usage.cached_tokens, second->usage.position);
  EXPECT_EQ(Sessions(*service).size(), 1u);
  // The same conversation, told three ways, says the same.
  auto other = Serve(TinyOptions());
  const CollectorPtr whole = AskAndWait(*other, Chat({{"system", "besilly"}, {"user", "one"}}, 6));
  EXPECT_EQ(whole->text, first->text);
}

// Repeating an older message is a new message, not an edit (koboldcpp #1084: stale replies on repeated
// paragraphs).
TEST(Service, ARepeatedMessageOnANamedSessionIsNew) {
  auto service = Serve(TinyOptions());
  int64_t position = 0;
  for (int i = 0; i < 3; ++i) {
    Request r = Chat({{"user", "again"}}, 4);
    r.session = "mine";
    const CollectorPtr c = AskAndWait(*service, std::move(r));
    ASSERT_FALSE(c->failed) << c->error.message;
    EXPECT_GT(c->usage.position, position);
    position = c->usage.position;
  }
  EXPECT_EQ(Find(*service, "mine")->turns, 3);
}

// An edited history answers as one that was never said otherwise, rolled back or streamed again.
TEST(Service, AnEditedHistoryAnswersLikeAFreshOne) {
  for (const int64_t context : {256, 48}) {  // 48: the old tokens are evicted, so it must be streamed again
    EngineServiceOptions o = TinyOptions();
    o.stream.context = context;
    auto service = Serve(o);
    Messages history;
    for (int turn = 0; turn < 3; ++turn) {
      history.push_back({"user", "tell" + std::to_string(turn)});
      const CollectorPtr c = AskAndWait(*service, Chat(history, 10));
      ASSERT_FALSE(c->failed) << c->error.message;
      history.push_back({"assistant", c->text});
    }
    for (const size_t keep : {4u, 2u, 0u}) {
      Messages edited(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(keep));
      edited.push_back({"user", "EDITED"});
      const CollectorPtr c = AskAndWait(*service, Chat(edited, 10));
      ASSERT_FALSE(c->failed) << c->error.message;
      auto fresh = Serve(o);
      const CollectorPtr expected = AskAndWait(*fresh, Chat(edited, 10));
      if (context == 256 && keep > 0) {
        EXPECT_GT(c->usage.cached_tokens, 0) << keep;
        EXPECT_EQ(c->usage.position - c->usage.completion_tokens,
                  expected->usage.position - expected->usage.completion_tokens);
      }
      EXPECT_EQ(c->text, expected->text) << "context " << context << ", kept " << keep;
    }
    // The conversation that was edited early on was not harmed by it: its last exchange was, so two are left.
    Messages back(history.begin(), history.begin() + 4);
    back.push_back({"user", "EDITED"});
    const CollectorPtr again = AskAndWait(*service, Chat(back, 10));
    ASSERT_FALSE(again->failed);
  }
}

TEST(Service, WhatWasJustSentAndCannotBeSeenIsTold) {
  auto service = Serve(TinyOptions());  // 96 tokens
  const CollectorPtr c = AskAndWait(*service, Chat({{"user", std::string(150, 'x')}}, 4));
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_GT(c->usage.evicted_tokens, 0);
  ASSERT_EQ(c->usage.warnings.size(), 1u);
  EXPECT_NE(c->usage.warnings[0].find("had left the window"), std::string::npos);
  EXPECT_EQ(c->usage.position, c->usage.evicted_tokens + 96);
  const CollectorPtr short_one = AskAndWait(*service, Chat({{"user", "x"}}, 4));
  EXPECT_TRUE(short_one->usage.warnings.empty());
}

TEST(Service, RefuseEvictionNamesBothLengthsAndFeedsNothing) {
  auto service = Serve(TinyOptions());
  Request r = Chat({{"user", std::string(150, 'x')}}, 4);
  r.refuse_eviction = true;
  r.session = "mine";
  const CollectorPtr c = AskAndWait(*service, r);
  ASSERT_TRUE(c->failed);
  EXPECT_EQ(c->error.status, 400);
  EXPECT_EQ(c->error.code, "context_length_exceeded");
  EXPECT_NE(c->error.message.find("96"), std::string::npos);
  EXPECT_FALSE(c->started);
  EXPECT_TRUE(Sessions(*service).empty());
  // What fits is answered, and the reply stops where eviction would begin (llama.cpp PR 13577).
  Request fits = Chat({{"user", std::string(50, 'x')}}, 500);
  fits.refuse_eviction = true;
  const CollectorPtr d = AskAndWait(*service, fits);
  ASSERT_FALSE(d->failed) << d->error.message;
  EXPECT_EQ(d->usage.evicted_tokens, 0);
  EXPECT_LE(d->usage.position, 96);
}

TEST(Service, DenseFillsUpWithLengthAndRefusesTheNext) {
  auto service = Serve(TinyOptions());
  Request r = Chat({{"user", "fill"}}, 500);
  r.policy = Policy::kDense;
  r.session = "dense";
  const CollectorPtr c = AskAndWait(*service, r);
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_LE(c->usage.position, 96);
  if (c->finish == Finish::kLength) {
    const CollectorPtr next = AskAndWait(*service, r);
    EXPECT_EQ(next->error.code, "context_length_exceeded");
  }
}

// llama.cpp #27148, ollama #17475: replies that hold another conversation's words. And: a reply does not
// depend on what else is served, bit for bit, whatever is cancelled beside it.
TEST(Service, ConcurrentRepliesEqualSoloOnesAndNeverShowAnothersCanary) {
  EngineServiceOptions o = TinyOptions();
  o.max_sessions = 16;
  o.max_active = 8;
  std::vector<Messages> asked;
  std::vector<std::string> solo;
  std::vector<std::vector<TokenReport>> scores;
  const auto scored = [](const Messages& messages) {
    Request r = Chat(messages, 30);
    r.top_logprobs = 0;
    return r;
  };
  {
    auto service = Serve(o);
    for (int i = 0; i < 12; ++i) {
      const std::string canary = "canary" + std::string(1, static_cast<char>('A' + i));
      asked.push_back({{"user", canary + std::string(static_cast<size_t>(7 * i), '.') + canary}});
      const CollectorPtr c = AskAndWait(*service, scored(asked.back()));
      solo.push_back(c->text);
      scores.push_back(c->reports);
    }
  }
  auto service = Serve(o);
  std::mt19937 rng(5);
  for (int round = 0; round < 6; ++round) {
    std::vector<CollectorPtr> answers;
    std::vector<uint64_t> noise;
    for (size_t i = 0; i < asked.size(); ++i) {
      Request r = scored(asked[i]);
      r.tenant = "tenant" + std::to_string(round);
      answers.push_back(Ask(*service, r));
      uint64_t ticket = 0;
      Request other = Chat({{"user", std::string(rng() % 200, 'n')}}, 400);
      other.tenant = "noise";
      Ask(*service, other, &ticket);
      noise.push_back(ticket);
      if (rng() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(rng() % 3));
      if (!noise.empty() && rng() % 2 == 0) service->Cancel(noise[rng() % noise.size()]);
    }
    for (const uint64_t ticket : noise) service->Cancel(ticket);
    for (size_t i = 0; i < asked.size(); ++i) {
      answers[i]->Wait();
      ASSERT_FALSE(answers[i]->failed) << answers[i]->error.message;
      EXPECT_EQ(answers[i]->text, solo[i]) << "round " << round << " request " << i;
      ASSERT_EQ(answers[i]->reports.size(), scores[i].size());
      for (size_t t = 0; t < scores[i].size(); ++t) {
        ASSERT_EQ(answers[i]->reports[t].logprob, scores[i][t].logprob) << "bit for bit, token " << t;
      }
    }
  }
}

// Another tenant's session does not exist, by any way of asking.
TEST(Service, NothingCrossesTenants) {
  auto service = Serve(TinyOptions());
  Request mine = Chat({{"user", "secret"}}, 6);
  mine.tenant = "m";
  const CollectorPtr anonymous = AskAndWait(*service, mine);
  mine.session = "shared-name";
  mine.store = true;
  mine.id = "resp_m";
  const CollectorPtr c = AskAndWait(*service, mine);
  ASSERT_FALSE(c->failed) << c->error.message;
  for (const std::string other : {"", "a", "z"}) {  // before and after it in any order
    EXPECT_TRUE(Sessions(*service, other).empty());
    EXPECT_FALSE(Find(*service, "shared-name", other));
    const auto fork = [&](auto d) { service->ForkSession(other, "shared-name", "", d); };
    EXPECT_EQ(Wait<bool>([&](auto d) { service->DeleteSession(other, "shared-name", d); }).second.status,
              404);
    EXPECT_EQ(Wait<SessionInfo>(fork).second.status, 404);
    Request previous = Chat({{"user", "next"}}, 6);
    previous.tenant = other;
    previous.previous = "resp_m";
    EXPECT_EQ(AskAndWait(*service, previous)->error.status, 404);
    // Held by an anonymous and by a named session of the other tenant.
    ASSERT_EQ(anonymous->text, c->text);
    Request history = Chat({{"user", "secret"}, {"assistant", c->text}, {"user", "next"}}, 6);
    history.tenant = other;
    EXPECT_EQ(AskAndWait(*service, history)->usage.cached_tokens, 0);
    Request same_name = Chat({{"user", "other"}}, 6);
    same_name.tenant = other;
    same_name.session = "shared-name";
    EXPECT_LT(AskAndWait(*service, same_name)->usage.position, c->usage.position + 10);
  }
  EXPECT_EQ(Find(*service, "shared-name", "m")->position, c->usage.position) << "m's session was touched";
}

// An edit far back is another conversation: the first one goes on as if nothing had happened.
TEST(Service, AnEarlyEditLeavesTheConversationAlone) {
  EngineServiceOptions o = TinyOptions();
  o.stream.context = 512;
  auto service = Serve(o);
  Messages history;
  CollectorPtr last;
  for (int turn = 0; turn < 4; ++turn) {
    history.push_back({"user", "tell" + std::to_string(turn)});
    last = AskAndWait(*service, Chat(history, 10));
    history.push_back({"assistant", last->text});
  }
  Messages edited(history.begin(), history.begin() + 2);
  edited.push_back({"user", "EDITED"});
  EXPECT_GT(AskAndWait(*service, Chat(edited, 10))->usage.cached_tokens, 0);
  history.push_back({"user", "goon"});
  EXPECT_EQ(AskAndWait(*service, Chat(history, 10))->usage.cached_tokens, last->usage.position);
}

TEST(Service, AResponseIsContinuedAndBranched) {
  EngineServiceOptions o = TinyOptions();
  o.stream.context = 256;
  auto service = Serve(o);
  const auto ask = [&](const std::string& text, const std::string& id, const std::string& previous,
                       bool store) {
    Request r = Chat({{"user", text}}, 8);
    r.id = id;
    r.previous = previous;
    r.store = store;
    return AskAndWait(*service, r);
  };
  const CollectorPtr one = ask("one", "resp_1", "", true);
  ASSERT_FALSE(one->failed) << one->error.message;
  const CollectorPtr two = ask("two", "resp_2", "resp_1", true);
  ASSERT_FALSE(two->failed) << two->error.message;
  EXPECT_EQ(two->usage.session, one->usage.session);
  EXPECT_GT(two->usage.position, one->usage.position);
  // A second branch from the first response says what the first branch said, and leaves it alone.
  const CollectorPtr branch = ask("two", "resp_3", "resp_1", true);
  ASSERT_FALSE(branch->failed) << branch->error.message;
  EXPECT_NE(branch->usage.session, one->usage.session);
  EXPECT_EQ(branch->text, two->text);
  EXPECT_EQ(branch->usage.position, two->usage.position);
  // Not stored: the conversation is as it was.
  const CollectorPtr peek = ask("three", "resp_4", "resp_2", false);
  ASSERT_FALSE(peek->failed) << peek->error.message;
  const CollectorPtr three = ask("three", "resp_5", "resp_2", true);
  EXPECT_EQ(three->text, peek->text);
  EXPECT_EQ(ask("x", "resp_6", "resp_4", true)->error.code, "previous_response_not_found");
}

// Requests on one session are answered one after another, in order.
TEST(Service, TwoRequestsOnOneSessionTakeTurns) {
  auto service = Serve(TinyOptions());
  std::vector<CollectorPtr> answers;
  for (int i = 0; i < 4; ++i) {
    Request r = Chat({{"user", "m" + std::to_string(i)}}, 10);
    r.session = "one";
    answers.push_back(Ask(*service, r));
  }
  int64_t position = 0;
  for (const CollectorPtr& c : answers) {
    c->Wait();
    ASSERT_FALSE(c->failed) << c->error.message;
    EXPECT_GT(c->usage.position, position);
    position = c->usage.position;
  }
}

// The law of "evict": "turn": over 200 turns the first visible token after the pinned part is a turn's start.
TEST(Service, UnderEvictTurnTheWindowAlwaysStartsWithATurn) {
  EngineServiceOptions o = TinyOptions();
  o.stream.context = 160;
  auto service = Serve(o);
  Token marker = -1;
  {
    Result<TensorFile> file = TensorFile::Open(o.model_path);
    marker = LoadTokenizer(*file).value()->Find("<|im_start|>");
  }
  ASSERT_GE(marker, 0);
  const std::string marker_text = "<|im_start|>";
  std::map<int64_t, std::string> texts;
  std::mutex mutex;
  int64_t start = 0, evictions = 0, checked = 0, position = 0;
  std::mt19937 rng(9);
  for (int turn = 0; turn < 200; ++turn) {
    Request r = Chat({{"system", "besilly"}, {"user", std::string(1 + rng() % 30, 'q')}},
                     static_cast<int64_t>(1 + rng() % 20));
    r.session = "endless";
    r.evict = Evict::kTurn;
    r.pin_system = turn == 0;
    const CollectorPtr c = AskAndWait(*service, r);
    ASSERT_FALSE(c->failed) << c->error.message;
    position = c->usage.position;
    if (turn == 0) {
      service->Watch(
          "", "endless",
          [&](const CacheView& v) {
            const std::lock_guard lock(mutex);
            for (const auto& cell : v.fresh) texts[cell.position] = cell.text;
            evictions += v.start > start;
            start = v.start;
            if (v.evicted_tokens > 0) {
              EXPECT_EQ(texts[v.start], marker_text) << "position " << v.start;
              ++checked;
            }
            return true;
          },
          [](const ApiError& e) { FAIL() << e.message; });
    }
    EXPECT_TRUE(c->usage.warnings.empty()) << c->usage.warnings[0];
    if (turn % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(110));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const std::lock_guard lock(mutex);
  EXPECT_GT(position, 10 * 160);  // rolled over ten times
  EXPECT_GT(checked, 5);
  EXPECT_EQ(texts[start], marker_text);
}

TEST(Service, ATurnLargerThanTheWindowFallsBackAndSaysSo) {
  auto service = Serve(TinyOptions());
  Request r = Chat({{"user", std::string(200, 'z')}}, 4);
  r.evict = Evict::kTurn;
  const CollectorPtr c = AskAndWait(*service, r);
  ASSERT_FALSE(c->failed) << c->error.message;
  ASSERT_EQ(c->usage.warnings.size(), 2u);
  EXPECT_NE(c->usage.warnings[1].find("larger than the window"), std::string::npos);
}

TEST(Service, APinnedSystemMessageNeverLeavesAndOneTooLongIsRefused) {
  auto service = Serve(TinyOptions());
  Request r = Chat({{"system", "pinme"}, {"user", std::string(150, 'z')}}, 4);
  r.pin_system = true;
  const CollectorPtr c = AskAndWait(*service, r);
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_GT(c->usage.sinks, 4);
  Request too_long = Chat({{"system", std::string(200, 's')}, {"user", "x"}}, 4);
  too_long.pin_system = true;
  const CollectorPtr d = AskAndWait(*service, too_long);
  EXPECT_EQ(d->error.status, 400);
  EXPECT_EQ(d->error.code, "context_length_exceeded");
  Request none = Chat({{"user", "x"}}, 4);
  none.pin_system = true;
  EXPECT_EQ(AskAndWait(*service, none)->error.param, "pin_system");
}

// Keeps the engine's thread in its first callback until it is let go: what is submitted meanwhile comes while
// its reply runs, however slow the machine is.
class Holding : public Collector {
 public:
  void OnStart(const Usage& what) override {
    Collector::OnStart(what);
    go.get_future().wait();
  }
  std::promise<void> go;
};

TEST(Service, TheQueueIsBoundedAndRefusesWith503) {
  EngineServiceOptions o = TinyOptions();
  o.max_queue = 3;
  o.max_active = 1;
  auto service = Serve(o);
  constexpr int64_t kEndless = 1'000'000'000;
  const auto first = std::make_shared<Holding>();
  std::vector<CollectorPtr> all = {first};
  std::vector<uint64_t> tickets = {service->Submit(Text("x", kEndless), first)};
  EXPECT_TRUE(first->WaitFor([&] { return first->started; }));
  for (int i = 0; i < 11; ++i) {
    uint64_t ticket = 0;
    all.push_back(Ask(*service, Text("x", kEndless), &ticket));
    tickets.push_back(ticket);
  }
  first->go.set_value();
  for (size_t i = 4; i < all.size(); ++i) {  // one runs, three wait
    EXPECT_EQ(all[i]->Wait().error.status, 503) << i;
    EXPECT_GT(all[i]->error.retry_after, 0);
  }
  for (const uint64_t ticket : tickets) service->Cancel(ticket);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i]->Wait();
    EXPECT_EQ(all[i]->ends, 1) << "exactly one end";
    EXPECT_EQ(all[i]->failed, i >= 4) << i;
    if (i < 4) {
      EXPECT_EQ(all[i]->finish, Finish::kCancelled) << i;
    }
  }
  EXPECT_FALSE(AskAndWait(*service, Chat({{"user", "after"}}, 3))->failed);
}

TEST(Service, CancellingFreesInQueuePrefillAndDecode) {
  EngineServiceOptions o = TinyOptions();
  o.max_active = 1;
  o.max_sessions = 4;
  o.stream.context = 512;
  auto service = Serve(o);
  uint64_t running = 0, queued = 0, reading = 0;
  const CollectorPtr a = Ask(*service, Text("x", 10000000), &running);
  const CollectorPtr b = Ask(*service, Text("x", 10000000), &queued);
  ASSERT_TRUE(a->WaitFor([&] { return a->pieces > 3; }));
  service->Cancel(queued);
  b->Wait();
  EXPECT_FALSE(b->started);
  service->Cancel(running);
  a->Wait();
  EXPECT_EQ(a->finish, Finish::kCancelled);
  Request r = Chat({{"user", std::string(200000, 'x')}}, 10);
  r.session = "reader";
  const CollectorPtr c = Ask(*service, r, &reading);
  ASSERT_TRUE(c->WaitFor([&] { return c->fed > 0; }));
  const auto began = std::chrono::steady_clock::now();
  service->Cancel(reading);
  c->Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));  // the law says 200 ms
  EXPECT_EQ(c->finish, Finish::kCancelled);
  service->Cancel(reading);  // again, and one that never was
  service->Cancel(123456789);
  EXPECT_FALSE(AskAndWait(*service, Chat({{"user", "after"}}, 3))->failed);
  EXPECT_EQ(a->ends + b->ends + c->ends, 3);
}

// A prompt that was cancelled while it was read leaves the session as it was, when nothing was evicted for
// it.
TEST(Service, ACancelledPromptIsTakenBackWhereThatIsExact) {
  EngineServiceOptions o = TinyOptions();
  o.stream.context = 65536;  // long enough never to be read whole before it is cancelled
  o.prefill_chunk = 1;
  auto service = Serve(o);
  const auto ask = [&](const std::string& text) {
    Request r = Chat({{"user", text}}, 8);
    r.session = "s";
    return r;
  };
  const CollectorPtr first = AskAndWait(*service, ask("one"));
  uint64_t ticket = 0;
  const CollectorPtr cut = Ask(*service, ask(std::string(60000, 'x')), &ticket);
  ASSERT_TRUE(cut->WaitFor([&] { return cut->fed > 50; }));
  service->Cancel(ticket);
  cut->Wait();
  EXPECT_EQ(Find(*service, "s")->position, first->usage.position);
  // Exchanges that were read before the cancellation are taken back too.
  Request exchanges = ask("");
  exchanges.messages = {{"user", "a"}, {"assistant", "b"}, {"user", std::string(60000, 'x')}};
  const CollectorPtr cut_again = Ask(*service, exchanges, &ticket);
  ASSERT_TRUE(cut_again->WaitFor([&] { return cut_again->fed > 60; }));
  service->Cancel(ticket);
  cut_again->Wait();
  EXPECT_EQ(Find(*service, "s")->turns, 1);
  const CollectorPtr next = AskAndWait(*service, ask("two"));
  EXPECT_TRUE(next->usage.warnings.empty());
  auto fresh = Serve(o);
  AskAndWait(*fresh, ask("one"));
  EXPECT_EQ(AskAndWait(*fresh, ask("two"))->text, next->text);
}

TEST(Service, ACancelledPromptThatEvictedIsToldInANamedSession) {
  EngineServiceOptions o = TinyOptions();
  auto service = Serve(o);
  Request r = Chat({{"user", "one"}}, 8);
  r.session = "s";
  AskAndWait(*service, r);
  r.messages = {{"user", std::string(100000, 'x')}};
  uint64_t ticket = 0;
  const CollectorPtr cut = Ask(*service, r, &ticket);
  ASSERT_TRUE(cut->WaitFor([&] { return cut->fed > 200; }));
  service->Cancel(ticket);
  cut->Wait();
  r.messages = {{"user", "two"}};
  const CollectorPtr next = AskAndWait(*service, r);
  ASSERT_FALSE(next->failed) << next->error.message;
  ASSERT_EQ(next->usage.warnings.size(), 1u);
  EXPECT_NE(next->usage.warnings[0].find("cancelled"), std::string::npos);
}

// A reply that was stopped is a part of the conversation: its history is recognised.
TEST(Service, AStoppedReplyIsClosedAndContinued) {
  EngineServiceOptions o = TinyOptions();
  o.stream.context = 8192;
  auto service = Serve(o);
  uint64_t ticket = 0;
  const CollectorPtr c = Ask(*service, Chat({{"user", "stopme"}}, 1000000), &ticket);
  ASSERT_TRUE(c->WaitFor([&] { return c->pieces >= 5 || c->ends > 0; }));
  service->Cancel(ticket);
  c->Wait();
  const CollectorPtr next =
      AskAndWait(*service, Chat({{"user", "stopme"}, {"assistant", c->text}, {"user", "goon"}}, 5));
  ASSERT_FALSE(next->failed) << next->error.message;
  // All that was sampled is in the stream, and the end of the turn that was cut.
  ASSERT_EQ(c->finish, Finish::kCancelled);
  EXPECT_EQ(next->usage.cached_tokens, c->usage.prompt_tokens + c->usage.completion_tokens + 1);
}

TEST(Service, TheLeastRecentlyUsedSessionIsForgottenBeyondTheLimit) {
  EngineServiceOptions o = TinyOptions();
  o.max_sessions = 3;
  auto service = Serve(o);
  for (const char* id : {"a", "b", "c"}) {
    Request r = Chat({{"user", "x"}}, 2);
    r.session = id;
    ASSERT_FALSE(AskAndWait(*service, r)->failed);
  }
  Request again = Chat({{"user", "x"}}, 2);
  again.session = "a";
  AskAndWait(*service, again);
  again.session = "d";
  AskAndWait(*service, again);
  EXPECT_TRUE(Find(*service, "a"));
  EXPECT_FALSE(Find(*service, "b")) << "b was used longest ago";
  EXPECT_TRUE(Find(*service, "c"));
  EXPECT_TRUE(Find(*service, "d"));
}

// One tenant's flood never pushes out the few sessions of another.
TEST(Service, AFloodOfOneTenantForgetsItsOwnSessionsFirst) {
  EngineServiceOptions o = TinyOptions();
  o.max_sessions = 6;
  auto service = Serve(o);
  Request r = Chat({{"user", "x"}}, 2);
  r.tenant = "quiet";
  AskAndWait(*service, r);
  for (int i = 0; i < 30; ++i) {
    Request flood = Chat({{"user", "flood" + std::to_string(i)}}, 2);
    flood.tenant = "loud";
    AskAndWait(*service, flood);
  }
  EXPECT_EQ(Sessions(*service, "quiet").size(), 1u);
  EXPECT_EQ(Sessions(*service, "loud").size(), 5u);
}

TEST(Service, LogprobsAreTheModelsOwnDistribution) {
  auto service = Serve(TinyOptions());
  Request r = Chat({{"user", "score"}}, 10);
  r.top_logprobs = 5;
  const CollectorPtr c = AskAndWait(*service, r);
  ASSERT_FALSE(c->failed) << c->error.message;
  std::string joined;
  for (const TokenReport& t : c->reports) {
    joined += t.bytes;
    ASSERT_EQ(t.top.size(), 5u);
    EXPECT_EQ(t.top[0].id, t.id) << "greedy picks the likeliest";
    EXPECT_DOUBLE_EQ(t.top[0].logprob, t.logprob);
    EXPECT_LE(t.logprob, 0);
    double sum = 0;
    for (const TokenScore& s : t.top) sum += std::exp(s.logprob);
    EXPECT_LE(sum, 1.0 + 1e-9);
    EXPECT_TRUE(std::is_sorted(t.top.begin(), t.top.end(),
                               [](const auto& a, const auto& b) { return a.logprob > b.logprob; }));
  }
  EXPECT_EQ(joined, c->text);
}

TEST(Service, BadRequestsAreRefusedByName) {
  auto service = Serve(TinyOptions());
  Request wild = Text("", 3);
  wild.prompt_tokens = {1, 160};
  EXPECT_EQ(AskAndWait(*service, wild)->error.param, "prompt");
  EXPECT_EQ(AskAndWait(*service, Chat({}, 3))->error.param, "messages");
  EXPECT_EQ(AskAndWait(*service, Chat({{"wizard", "x"}}, 3))->error.status, 400);
  EXPECT_EQ(AskAndWait(*service, Text("", 3))->error.status, 400);
  Request bias = Chat({{"user", "x"}}, 3);
  bias.sampling.logit_bias = {{5000, 1.0}};  // vllm PR 16529
  EXPECT_EQ(AskAndWait(*service, bias)->error.param, "logit_bias");
  Request sinks = Chat({{"user", "x"}}, 3);
  sinks.sinks = 96;
  EXPECT_EQ(AskAndWait(*service, sinks)->error.status, 400);
  Request policy = Chat({{"user", "x"}}, 3);
  policy.session = "p";
  AskAndWait(*service, policy);
  policy.policy = Policy::kWindow;
  EXPECT_EQ(AskAndWait(*service, policy)->error.param, "policy");
  EXPECT_FALSE(AskAndWait(*service, Chat({{"user", "x"}}, 3))->failed) << "and the server lives";
}

TEST(Service, ARefusedModelIsToldAndRequestsAreAnswered) {
  EngineServiceOptions o = TinyOptions();
  o.model_path = "/nonexistent.gguf";
  std::promise<Status> loaded;
  o.on_loaded = [&](const Status& s) { loaded.set_value(s); };
  auto service = MakeEngineService(o);
  ASSERT_TRUE(service.ok());
  EXPECT_EQ(loaded.get_future().get().code(), Code::kModel);
  EXPECT_EQ((*service)->state(), Service::State::kFailed);
  EXPECT_TRUE(AskAndWait(**service, Chat({{"user", "x"}}, 3))->failed);
}

// The page's view: slots, evictions and text are those of the stream.
TEST(Service, AWatcherSeesEveryTokenOnceAndTheSinkMassOfEveryHead) {
  EngineServiceOptions o = TinyOptions();
  auto service = Serve(o);
  Request r = Chat({{"user", "watchme"}}, 2);
  r.session = "w";
  AskAndWait(*service, r);
  std::mutex mutex;
  std::vector<CacheView> views;
  const uint64_t watch = service->Watch(
      "", "w",
      [&](const CacheView& v) {
        const std::lock_guard lock(mutex);
        views.push_back(v);
        return true;
      },
      [](const ApiError& e) { FAIL() << e.message; });
  for (int i = 0; i < 4; ++i) {
    AskAndWait(*service, r);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
  }
  service->Unwatch(watch);
  const int64_t position = Find(*service, "w")->position;
  std::set<int64_t> seen;
  const std::lock_guard lock(mutex);
  ASSERT_GE(views.size(), 3u);
  for (const CacheView& v : views) {
    for (const auto& cell : v.fresh) EXPECT_TRUE(seen.insert(cell.position).second) << cell.position;
    EXPECT_EQ(v.live, v.position - v.evicted_tokens);
    EXPECT_LT(v.write_slot, v.context);
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), position);
  EXPECT_EQ(views.back().sink_mass.size(), 8u);
  EXPECT_GT(views.back().surprise, 0);
}

TEST(Service, AWatcherIsToldThatItsSessionIsDeleted) {
  auto service = Serve(TinyOptions());
  Request r = Chat({{"user", "watchme"}}, 2);
  r.session = "w";
  AskAndWait(*service, r);
  std::promise<ApiError> ended;
  service->Watch(
      "", "w", [](const CacheView&) { return true; }, [&](const ApiError& e) { ended.set_value(e); });
  ASSERT_TRUE(Wait<bool>([&](auto done) { service->DeleteSession("", "w", done); }).first);
  EXPECT_EQ(ended.get_future().get().code, "session_not_found");
}

}  // namespace
}  // namespace ballast::server
