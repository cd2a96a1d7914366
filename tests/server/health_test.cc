// Sessions whose text collapses: told in usage, in the view and in the counters, and treated as asked.
#include <gtest/gtest.h>

#include "server/metrics.h"
#include "service_fixture.h"

namespace ballast::server {
namespace {

Request More(const std::string& session, std::optional<Policy> policy, int64_t tokens = 400) {
  std::string text;
  for (int64_t i = 0; i < tokens; ++i) text += static_cast<char>('a' + (i * i * 7 + i / 3) % 26);
  Request r = Text(text, 4);
  r.session = session;
  r.policy = policy;
  r.sampling.temperature = 1;
  r.sampling.seed = 3;
  return r;
}

TEST(SessionHealth, AWindowThatLostItsSinksSaysSoAndPinnedSinksAreWell) {
  EngineCounters counters;
  EngineServiceOptions o = TinyOptions();
  o.counters = &counters;
  auto service = Serve(o);
  const CollectorPtr window = AskAndWait(*service, More("w", Policy::kWindow));
  ASSERT_FALSE(window->failed) << window->error.message;
  EXPECT_EQ(window->usage.health.verdict.state, Health::kCollapsed);
  EXPECT_EQ(window->usage.health.verdict.reason, Ailment::kSinkLoss);
  EXPECT_GE(window->usage.health.verdict.since, 95);
  ASSERT_EQ(window->usage.warnings.size(), 2U);  // and that a part of the prompt was not seen
  EXPECT_NE(window->usage.warnings[1].find("sink loss"), std::string::npos) << window->usage.warnings[1];
  EXPECT_GT(window->usage.completion_tokens, 0) << "a warning ends nothing";
  const CollectorPtr sinks = AskAndWait(*service, More("s", std::nullopt));
  EXPECT_EQ(sinks->usage.health.verdict.state, Health::kOk);
  EXPECT_EQ(sinks->usage.warnings.size(), 1U);
  EXPECT_EQ(counters.alarms[static_cast<size_t>(Ailment::kSinkLoss)], 1);
  EXPECT_EQ(counters.rescues_ok + counters.stopped, 0);
}

TEST(SessionHealth, StopEndsTheReplyThere) {
  EngineServiceOptions o = TinyOptions();
  o.on_collapse = OnCollapse::kStop;
  auto service = Serve(o);
  const CollectorPtr c = AskAndWait(*service, More("w", Policy::kWindow));
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_EQ(c->finish, Finish::kStop);
  EXPECT_EQ(c->usage.completion_tokens, 0);
  EXPECT_EQ(c->usage.health.verdict.reason, Ailment::kSinkLoss);
}

TEST(SessionHealth, ARescueGoesOnBehindSinksForGood) {
  EngineCounters counters;
  EngineServiceOptions o = TinyOptions();
  o.on_collapse = OnCollapse::kRescue;
  o.counters = &counters;
  auto service = Serve(o);
  const CollectorPtr first = AskAndWait(*service, More("w", Policy::kWindow));
  ASSERT_FALSE(first->failed) << first->error.message;
  EXPECT_EQ(first->usage.health.verdict.state, Health::kOk);
  EXPECT_EQ(first->usage.health.rescues, 1);
  EXPECT_EQ(first->usage.sinks, 4);
  EXPECT_GT(first->usage.completion_tokens, 0);
  const int64_t position = first->usage.position;
  // The client may go on to ask for what it asked for at first.
  const CollectorPtr second = AskAndWait(*service, More("w", Policy::kWindow));
  ASSERT_FALSE(second->failed) << second->error.message;
  EXPECT_EQ(second->usage.health.verdict.state, Health::kOk);
  EXPECT_EQ(second->usage.health.rescues, 1);
  EXPECT_GT(second->usage.position, position + 300);
  EXPECT_EQ(counters.rescues_ok, 1);
}

// The size of a prompt's pieces is chosen with the model, and a rescue is fed in such pieces.
TEST(SessionHealth, ARescueEndsWithTheDefaultPieces) {
  EngineServiceOptions o = TinyOptions();
  o.prefill_chunk = 0;
  o.stream.context = 288;  // two pieces fit: what is usual is learnt before the sinks are lost
  o.on_collapse = OnCollapse::kRescue;
  auto service = Serve(o);
  const CollectorPtr c = AskAndWait(*service, More("w", Policy::kWindow, 700));
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_EQ(c->usage.health.rescues, 1);
  EXPECT_EQ(c->usage.sinks, 4);
}

// A fork goes through a snapshot: what the monitor knows survives it.
TEST(SessionHealth, ASnapshotKeepsTheVerdict) {
  auto service = Serve(TinyOptions());
  AskAndWait(*service, More("w", Policy::kWindow));
  std::promise<void> forked;
  service->ForkSession("", "w", "copy", [&](std::optional<SessionInfo>, const ApiError& e) {
    EXPECT_EQ(e.message, "");
    forked.set_value();
  });
  forked.get_future().wait();
  const CollectorPtr c = AskAndWait(*service, More("copy", std::nullopt, 3));
  ASSERT_FALSE(c->failed) << c->error.message;
  EXPECT_EQ(c->usage.health.verdict.reason, Ailment::kSinkLoss);
  EXPECT_EQ(c->usage.health.verdict.state, Health::kCollapsed);
}

}  // namespace
}  // namespace ballast::server
