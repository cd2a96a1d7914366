// Long texts are encoded beside the engine's thread.
#include <gtest/gtest.h>

#include "server/encoding_cache.h"
#include "server/service_fixture.h"

namespace ballast::server {
namespace {

// Megabytes are encoded beside the engine's thread: others are answered meanwhile, a session's requests keep
// their order, and the reply is what it would be.
TEST(Service, ALongTextIsEncodedBesideTheOthers) {
  EngineServiceOptions o = TinyOptions();
  o.stream.context = 96;
  auto service = Serve(o);
  const std::string text(EncodingCache::kLongText + 1000, 'x');
  Request first = Text("ab " + text, 3);
  first.session = "s";
  Request second = Text(" and on", 3);
  second.session = "s";
  const CollectorPtr long_one = Ask(*service, first), after = Ask(*service, second);
  const CollectorPtr other = AskAndWait(*service, Text("hello", 3));
  EXPECT_FALSE(other->failed) << other->error.message;
  long_one->Wait();
  after->Wait();
  ASSERT_FALSE(long_one->failed) << long_one->error.message;
  ASSERT_FALSE(after->failed) << after->error.message;
  EXPECT_GT(after->usage.position, long_one->usage.position) << "it came second";
  EXPECT_EQ(long_one->text, DirectReply(o, 3, [&](const Tokenizer& tokenizer) {
              return tokenizer.Encode("ab " + text, {.add_special = true});
            }));
  // One that is cancelled meanwhile ends, and so does a server that stops.
  uint64_t ticket = 0;
  const CollectorPtr cancelled = Ask(*service, first, &ticket),
                     chat = Ask(*service, Chat({{"user", text}}, 2));
  service->Cancel(ticket);
  EXPECT_EQ(cancelled->Wait().finish, Finish::kCancelled);
  EXPECT_FALSE(chat->Wait().failed) << chat->error.message;
  const CollectorPtr refused = Ask(*service, first);
  DrainAndWait(*service, 0);
  refused->Wait();
}

TEST(EncodingCacheTest, ItHoldsLongTextsWhileSomebodyHoldsIt) {
  const TensorFile file = std::move(TensorFile::Open(TinyModelPath())).value();
  const auto tokenizer = LoadTokenizer(file).value();
  EncodingCache cache(*tokenizer);
  const std::string text(EncodingCache::kLongText, 'y');
  const std::vector<Token> ids = tokenizer->Encode(text);
  EXPECT_EQ(cache.Encode(text), ids);
  EXPECT_EQ(cache.count(), 0u) << "nobody holds it";
  std::shared_ptr<void> one = cache.Hold(), two = cache.Hold();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache.Encode(text), ids);
  EXPECT_EQ(cache.count(), 1u);
  EXPECT_EQ(cache.Encode(text, {.leading_space = false}), tokenizer->Encode(text, {.leading_space = false}));
  EXPECT_EQ(cache.count(), 2u) << "other options";
  cache.Encode(text.substr(1));
  EXPECT_EQ(cache.count(), 2u) << "a short one";
  one.reset();
  EXPECT_EQ(cache.count(), 2u);
  two.reset();
  EXPECT_EQ(cache.count(), 0u);
  cache.Stop();
  EXPECT_TRUE(cache.Encode(text).size() < ids.size());
}

}  // namespace
}  // namespace ballast::server
