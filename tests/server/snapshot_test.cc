// Sessions as files: exact, checked before anything is touched, never torn.
#include "server/snapshot.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <random>

#include "engine/generate.h"
#include "engine/load_tokenizer.h"
#include "server/service_fixture.h"
#include "server/session_store.h"
#include "support/temp_path.h"

namespace ballast::server {
namespace {

using testing::RandomTokens;
using testing::TinyLlama;

struct Network {
  ThreadPool pool{1};
  Result<TensorFile> file;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const Model> model;
  ModelIdentity identity;
  Network(const std::string& path, Compute compute) : file(TensorFile::Open(path)) {
    EXPECT_TRUE(file.ok()) << file.status().message();
    tokenizer = LoadTokenizer(*file).value();
    model = Model::Load(*file, {compute, nullptr}, pool).value();
    identity = IdentifyModel(*file, *tokenizer, model->config(), compute);
  }
};
Network& Tiny() {
  static Network network(TinyModelPath(), Compute::kF32);
  return network;
}

struct Shape {
  Policy policy;
  Evict evict;
  KvType kv;
};

std::unique_ptr<Session> MakeSession(const Shape& shape, int64_t tokens, uint32_t seed, Network& m = Tiny()) {
  Session::Config config;
  config.stream.policy = shape.policy;
  config.stream.kv = shape.kv;
  config.stream.context = 40;
  config.evict = shape.evict;
  auto session = Session::Create(*m.model, m.pool, config).value();
  const std::vector<Token> ids = RandomTokens(tokens, 160, seed);
  for (int64_t at = 0; at < tokens;) {
    const int64_t n = std::min<int64_t>(7, tokens - at);
    const std::span<const Token> piece(ids.data() + at, static_cast<size_t>(n));
    if (!session->turns().open()) session->turns().Open(session->stream().position());
    session->BeforeFeed(n);
    EXPECT_TRUE(session->stream().Append(piece).ok());
    session->AfterFeed(piece);
    at += n;
    const int64_t turn = session->turns().count() + 1;
    session->turns().Close(session->stream().position(), session->stream().floor(),
                           static_cast<uint64_t>(turn * 77 + seed), 2 * turn);
  }
  session->owed() = {2};
  return session;
}

SnapshotLabel Label(const std::string& id = "s") {
  SnapshotLabel label;
  label.tenant = "t";
  label.id = id;
  label.response = "resp_1";
  label.named = true;
  label.saved_at = 1234;
  return label;
}

std::vector<uint8_t> Image(const Session& session, const SnapshotLabel& label = Label()) {
  const Result<Arena> image = EncodeSnapshot(session, label, Tiny().identity);
  EXPECT_TRUE(image.ok()) << image.status().message();
  return {image->data(), image->data() + image->size()};
}
Result<std::unique_ptr<Session>> Decode(std::span<const uint8_t> image, Network& m = Tiny()) {
  return DecodeSnapshot(image, *m.model, m.pool, m.identity);
}

// The next n tokens; seeded draws at a high temperature when `seed` is not 0.
std::vector<Token> Next(Session& session, int64_t n, uint64_t seed) {
  SamplerOptions options;
  options.temperature = seed == 0 ? 0 : 1.3;
  options.seed = seed;
  Sampler sampler = Sampler::Create(options, 160, 40).value();
  GenerateOptions generate;
  generate.max_tokens = n;
  generate.stop_at_end_of_turn = false;
  const auto out = Generate(session.stream(), *Tiny().tokenizer, sampler, generate);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? out->tokens : std::vector<Token>{};
}

TEST(Snapshot, TheNext256TokensAreThoseOfTheUnbrokenRun) {
  const Shape shapes[] = {{Policy::kSinks, Evict::kToken, KvType::kF32},
                          {Policy::kSinks, Evict::kToken, KvType::kQ8},
                          {Policy::kSinks, Evict::kTurn, KvType::kF16},
                          {Policy::kWindow, Evict::kToken, KvType::kF32},
                          {Policy::kRecompute, Evict::kToken, KvType::kF32}};
  for (const Shape& shape : shapes) {
    for (const int64_t fed : {1, 5, 39, 40, 41, 300}) {
      for (const uint64_t seed : {0, 9}) {
        auto original = MakeSession(shape, fed, 5);
        auto restored = Decode(Image(*original));
        ASSERT_TRUE(restored.ok()) << restored.status().message();
        ASSERT_EQ((*restored)->stream().position(), fed);
        ASSERT_EQ((*restored)->stream().live(), original->stream().live());
        ASSERT_EQ((*restored)->owed(), original->owed());
        ASSERT_EQ(Next(**restored, 256, seed), Next(*original, 256, seed))
            << PolicyName(shape.policy) << " after " << fed;
        const auto a = original->stream().logits(), b = (*restored)->stream().logits();
        ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << "bit for bit";
      }
    }
  }
}

TEST(Snapshot, ItsSizeIsThatOfItsConfigurationAndTheSameStateGivesTheSameBytes) {
  const Shape shape{Policy::kSinks, Evict::kToken, KvType::kQ8};
  const std::vector<uint8_t> small = Image(*MakeSession(shape, 3, 1));
  const std::vector<uint8_t> large = Image(*MakeSession(shape, 500, 1));
  EXPECT_EQ(small.size(), large.size());
  EXPECT_EQ(large, Image(*MakeSession(shape, 500, 1)));
  EXPECT_EQ(large, Image(**Decode(large)));
}

TEST(Snapshot, TheHeaderTellsWhoseItIs) {
  const std::vector<uint8_t> image =
      Image(*MakeSession({Policy::kSinks, Evict::kTurn, KvType::kF32}, 100, 1));
  const Result<SnapshotLabel> label =
      ReadSnapshotHeader(std::span(image).first(kSnapshotHeaderBytes), image.size());
  ASSERT_TRUE(label.ok()) << label.status().message();
  EXPECT_EQ(label->tenant, "t");
  EXPECT_EQ(label->id, "s");
  EXPECT_EQ(label->response, "resp_1");
  EXPECT_TRUE(label->named);
  EXPECT_EQ(label->position, 100);
  EXPECT_EQ(label->evict, Evict::kTurn);
  EXPECT_EQ(label->turns, 15);
  EXPECT_EQ(label->chain, 15u * 77 + 1);
}

TEST(Snapshot, EveryFlippedHeaderBitAndManyOthersAreRefused) {
  std::vector<uint8_t> image = Image(*MakeSession({Policy::kSinks, Evict::kToken, KvType::kF32}, 100, 1));
  ASSERT_TRUE(Decode(image).ok());
  for (size_t bit = 0; bit < 8 * kSnapshotHeaderBytes; ++bit) {
    image[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ASSERT_EQ(Decode(image).status().code(), Code::kInput) << "bit " << bit;
    ASSERT_FALSE(ReadSnapshotHeader(std::span(image).first(kSnapshotHeaderBytes), image.size()).ok());
    image[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  std::mt19937_64 rng(3);
  for (int i = 0; i < 2000; ++i) {
    const size_t bit = rng() % (8 * image.size());
    image[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ASSERT_EQ(Decode(image).status().code(), Code::kInput) << "bit " << bit;
    image[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{1023}, size_t{1024}, image.size() / 2, image.size() - 1}) {
    ASSERT_FALSE(Decode(std::span(image).first(size)).ok()) << size;
  }
  image.push_back(0);
  EXPECT_FALSE(Decode(image).ok());
}

// Redis' corrupt-dump fuzzer: the checksum made right again, whatever is inside must not crash or hang.
TEST(Snapshot, DamageUnderARightChecksumIsRefusedOrHarmless) {
  const std::vector<uint8_t> good = Image(*MakeSession({Policy::kSinks, Evict::kTurn, KvType::kQ8}, 100, 1));
  std::mt19937_64 rng(4);
  int refused = 0, taken = 0;
  for (int i = 0; i < 4000; ++i) {
    std::vector<uint8_t> image = good;
    const size_t end = rng() % 2 == 0 ? 400 : image.size() - 16;
    for (size_t flips = 1 + rng() % 3; flips > 0; --flips) {
      image[rng() % end] ^= static_cast<uint8_t>(1 << rng() % 8);
    }
    ResealSnapshot(image);
    auto session = Decode(image);
    if (!session.ok()) {
      ++refused;
      continue;
    }
    ++taken;
    const std::vector<Token> more = {1, 2, 3};
    (*session)->BeforeFeed(3);
    if ((*session)->stream().Append(more).ok()) (*session)->AfterFeed(more);
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(taken, 100);
}

TEST(Snapshot, OneOfAnotherModelIsRefusedByName) {
  testing::TinySpec spec = ServerSpec(2);  // the same shape, other weights
  testing::GgufBuilder builder = TinyLlama(spec).Builder();
  builder.Remove("general.name");
  builder.Set("general.name", std::string("another network"));
  const std::string path = testing::TempPath("another.gguf");
  ASSERT_TRUE(builder.Write(path));
  Network other(path, Compute::kF32);
  const std::vector<uint8_t> image =
      Image(*MakeSession({Policy::kSinks, Evict::kToken, KvType::kF32}, 50, 1));
  const Status status = Decode(image, other).status();
  EXPECT_EQ(status.code(), Code::kInput);
  EXPECT_NE(status.message().find("snapshot of model tiny test network, this server runs another network"),
            std::string::npos)
      << status.message();
  // Only the weights differ.
  Network same_name(TinyLlama(spec).WriteTemp("other_weights"), Compute::kF32);
  EXPECT_EQ(Decode(image, same_name).status().code(), Code::kInput);
  // Computed another way.
  Network fast(TinyModelPath(), Compute::kFast);
  EXPECT_NE(Decode(image, fast).status().message().find("compute f32"), std::string::npos);
}

// kill -9 at random moments during saves: every file is a whole old or a whole new one, none is lost.
TEST(SessionStore, AKilledSaveLeavesTheOldOrTheNewSession) {
  const TempFolder folder("killed");
  std::filesystem::create_directory(folder.path());
  constexpr int kSessions = 3;
  std::vector<std::vector<uint8_t>> versions;
  for (uint32_t v = 0; v < 8; ++v) {
    versions.push_back(Image(*MakeSession({Policy::kSinks, Evict::kToken, KvType::kF32}, 30 + 10 * v, v)));
  }
  std::mt19937 rng(6);
  bool saved[kSessions] = {};
  for (int kill_round = 0; kill_round < 25; ++kill_round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const int dir = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
      for (uint32_t i = 0;; ++i) {
        const std::string name = SnapshotFileName("t", "s" + std::to_string(i % kSessions));
        if (!WriteFileDurably(dir, name, versions[(i + static_cast<uint32_t>(kill_round)) % 8]).ok())
          _exit(9);
      }
    }
    usleep(1000 + rng() % 30000);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a save failed";
    for (int s = 0; s < kSessions; ++s) {
      const std::string path = folder.path() + "/" + SnapshotFileName("t", "s" + std::to_string(s));
      std::ifstream file(path, std::ios::binary);
      if (!file) {
        ASSERT_FALSE(saved[s]) << "lost";
        continue;
      }
      saved[s] = true;
      const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)),
                                       std::istreambuf_iterator<char>());
      ASSERT_NE(std::find(versions.begin(), versions.end(), bytes), versions.end()) << "torn";
      ASSERT_TRUE(Decode(bytes).ok());
    }
  }
  EXPECT_TRUE(saved[0] && saved[1] && saved[2]);
  // What a killed save left behind is swept away; files of others are not.
  const std::string own = folder.path() + "/" + SnapshotFileName("t", "s9") + ".tmp";
  const std::vector<std::string> others = {"notes.tmp", "a.tmp.txt", "x.session", "x.session.tmp",
                                           std::string(32, 'G') + ".session.tmp"};
  std::ofstream(own) << "half";
  for (const std::string& name : others) std::ofstream(folder.path() + "/" + name) << "somebody's";
  std::ofstream(folder.path() + "/" + std::string(32, '0') + ".session") << "not a session";
  std::vector<SnapshotLabel> found;
  std::vector<std::string> notices;
  auto store = SessionStore::Open(folder.path(), 1 << 30, &found, &notices);
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_TRUE(found.empty()) << "they are not named as their labels say";
  EXPECT_EQ(notices.size(), 4u);
  EXPECT_EQ(folder.Files(".bad").size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(own));
  for (const std::string& name : others)
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/" + name)) << name;
}

// Opening one would wait for a writer, and with it the whole store.
TEST(SessionStore, AFifoInTheFolderIsSetAside) {
  const TempFolder folder("fifo");
  std::filesystem::create_directory(folder.path());
  const std::string name = SnapshotFileName("t", "s");
  ASSERT_EQ(mkfifo((folder.path() + "/" + name).c_str(), 0600), 0);
  std::vector<SnapshotLabel> found;
  std::vector<std::string> notices;
  auto store = SessionStore::Open(folder.path(), 1 << 30, &found, &notices);
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("regular file"), std::string::npos) << notices[0];
  // One that appears later is refused in words.
  ASSERT_EQ(mkfifo((folder.path() + "/" + name).c_str(), 0600), 0);
  std::promise<Status> loaded;
  (*store)->Load("t", "s", [&](Result<Arena> image) { loaded.set_value(image.status()); });
  EXPECT_NE(loaded.get_future().get().message().find("regular file"), std::string::npos);
}

TEST(SessionStore, AFolderHasOneOwner) {
  const TempFolder folder("owner");
  std::vector<SnapshotLabel> found;
  std::vector<std::string> notices;
  auto first = SessionStore::Open(folder.path(), 1 << 30, &found, &notices);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = SessionStore::Open(folder.path(), 1 << 30, &found, &notices);
  EXPECT_EQ(second.status().code(), Code::kUsage);
  EXPECT_NE(second.status().message().find("another process"), std::string::npos);
  first = Status(Code::kInternal, "closed");
  EXPECT_TRUE(SessionStore::Open(folder.path(), 1 << 30, &found, &notices).ok());
}

EngineServiceOptions OnDisk(const TempFolder& folder) {
  EngineServiceOptions o = TinyOptions();
  o.sessions_dir = folder.path();
  return o;
}
Request Named(const std::string& id, const std::string& text, int64_t n = 10) {
  Request r = Chat({{"user", text}}, n);
  r.session = id;
  return r;
}

// What an unbroken server would have said.
std::vector<std::string> Unbroken(const std::vector<std::string>& texts) {
  auto service = Serve(TinyOptions());
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(AskAndWait(*service, Named("s", text))->text);
  return out;
}

TEST(SessionStore, ARestartBringsAllSessionsBackAsTheyWere) {
  const TempFolder folder("restart");
  const std::vector<std::string> texts = {"one", std::string(120, 'x'), "two", "three"};
  const std::vector<std::string> expected = Unbroken(texts);
  Messages history;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto service = Serve(OnDisk(folder));
    if (i > 0) {
      ASSERT_TRUE(Find(*service, "s"));
      EXPECT_EQ(Find(*service, "s")->state, "spilled");
    }
    const CollectorPtr c = AskAndWait(*service, Named("s", texts[i]));
    ASSERT_FALSE(c->failed) << c->error.message;
    EXPECT_EQ(c->text, expected[i]) << "turn " << i;
    // An anonymous conversation is found by its history, and a stored response by its id.
    history.push_back({"user", "anon" + std::to_string(i)});
    const CollectorPtr anonymous = AskAndWait(*service, Chat(history, 6));
    ASSERT_FALSE(anonymous->failed) << anonymous->error.message;
    EXPECT_EQ(anonymous->usage.cached_tokens > 0, i > 0);
    history.push_back({"assistant", anonymous->text});
    Request stored = Chat({{"user", "r"}}, 4);
    stored.store = true;
    stored.id = "resp_" + std::to_string(i);
    if (i > 0) stored.previous = "resp_" + std::to_string(i - 1);
    const CollectorPtr response = AskAndWait(*service, stored);
    ASSERT_FALSE(response->failed) << response->error.message;
    DrainAndWait(*service);
  }
  EXPECT_EQ(folder.Files(".session").size(), 3u);
}

TEST(SessionStore, SessionsBeyondTheLimitSpillAndComeBackOnUse) {
  const TempFolder folder("spill");
  EngineServiceOptions o = OnDisk(folder);
  o.max_sessions = 2;
  auto service = Serve(o);
  std::vector<std::vector<std::string>> said(5);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < said.size(); ++i) {
      const CollectorPtr c =
          AskAndWait(*service, Named("s" + std::to_string(i), "m" + std::to_string(round)));
      ASSERT_FALSE(c->failed) << c->error.message;
      said[i].push_back(c->text);
    }
  }
  const std::vector<std::string> expected = Unbroken({"m0", "m1", "m2"});
  for (const auto& texts : said) EXPECT_EQ(texts, expected);
  int resident = 0;
  for (const SessionInfo& info : Sessions(*service)) resident += info.state != "spilled";
  EXPECT_EQ(Sessions(*service).size(), 5u);
  EXPECT_LE(resident, 2);
}

TEST(SessionStore, IdleSessionsSpillByThemselves) {
  const TempFolder folder("idle");
  EngineServiceOptions o = OnDisk(folder);
  o.idle_seconds = 0.05;
  auto service = Serve(o);
  AskAndWait(*service, Named("s", "one"));
  for (int i = 0; i < 200 && Find(*service, "s")->state != "spilled"; ++i) usleep(10000);
  EXPECT_EQ(Find(*service, "s")->state, "spilled");
  EXPECT_EQ(AskAndWait(*service, Named("s", "two"))->text, Unbroken({"one", "two"})[1]);
}

// A server that ends must not end well when a conversation is lost.
TEST(SessionStore, SessionsThatCannotBeSavedAreCountedAndALostFolderIsMadeAgain) {
  const TempFolder folder("lost");
  auto service = Serve(OnDisk(folder));
  AskAndWait(*service, Named("s", "one"));
  std::filesystem::remove_all(folder.path());
  EXPECT_TRUE(Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); }).first) << "made again";
  EXPECT_EQ(folder.Files(".session").size(), 1u);
  AskAndWait(*service, Named("s", "two"));
  std::filesystem::remove_all(folder.path());
  std::ofstream(folder.path()) << "in its place";
  EXPECT_EQ(DrainAndWait(*service), 1);
}

// It is there within milliseconds: a client that asks need not ask again.
TEST(SessionStore, ForkRestoreAndWatchWaitForRoomInMemory) {
  const TempFolder folder("room");
  EngineServiceOptions o = OnDisk(folder);
  o.max_sessions = 2;
  auto service = Serve(o);
  for (const char* id : {"a", "b", "c"}) AskAndWait(*service, Named(id, "hello"));
  for (int i = 0; i < 20; ++i) {
    const std::string id = i % 2 == 0 ? "a" : "b";
    const auto fork =
        Wait<SessionInfo>([&](auto d) { service->ForkSession("", id, "f" + std::to_string(i), d); });
    ASSERT_TRUE(fork.first) << fork.second.message;
    for (const char* other : {"a", "b"}) {
      Wait<SessionInfo>([&](auto d) { service->SaveSession("", other, d); });
      const auto restored = Wait<SessionInfo>([&](auto d) { service->RestoreSession("", other, d); });
      ASSERT_TRUE(restored.first) << restored.second.message;
    }
    std::promise<std::string> seen;
    std::atomic<bool> told{false};
    const auto tell = [&](const std::string& what) {
      if (!told.exchange(true)) seen.set_value(what);
    };
    const uint64_t watch = service->Watch(
        "", "c", [&](const CacheView&) { return tell("a view"), true; },
        [&](const ApiError& e) { tell(e.message); });
    EXPECT_EQ(seen.get_future().get(), "a view");
    service->Unwatch(watch);
    Sessions(*service);  // after that the watcher's callbacks are gone
  }
}

void Spoil(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1000, std::ios::end);
  file.put('\x55');
}

// llama.cpp #27068: a refused snapshot had already dirtied the live session.
TEST(SessionStore, ABadRestoreLeavesTheLiveSessionUntouched) {
  const TempFolder folder("bad");
  auto service = Serve(OnDisk(folder));
  AskAndWait(*service, Named("s", "one"));
  ASSERT_TRUE(Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); }).first);
  AskAndWait(*service, Named("s", "two"));
  const std::vector<std::string> files = folder.Files(".session");
  ASSERT_EQ(files.size(), 1u);
  Spoil(files[0]);
  const auto refused = Wait<SessionInfo>([&](auto d) { service->RestoreSession("", "s", d); });
  EXPECT_FALSE(refused.first);
  EXPECT_EQ(refused.second.status, 409);
  EXPECT_EQ(AskAndWait(*service, Named("s", "three"))->text, Unbroken({"one", "two", "three"})[2]);
}

// What is in memory is all there is when the file is known to be bad, or gone.
TEST(SessionStore, AGoodSessionInMemoryIsWrittenAgainWhenItsFileIsBadOrGone) {
  for (const bool gone : {false, true}) {
    const TempFolder folder("again");
    {
      auto service = Serve(OnDisk(folder));
      AskAndWait(*service, Named("s", "one"));
      ASSERT_TRUE(Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); }).first);
      if (gone) {
        std::filesystem::remove_all(folder.path());
      } else {
        Spoil(folder.Files(".session").at(0));
        EXPECT_FALSE(Wait<SessionInfo>([&](auto d) { service->RestoreSession("", "s", d); }).first);
      }
      EXPECT_EQ(DrainAndWait(*service), 0);
    }
    auto service = Serve(OnDisk(folder));
    EXPECT_EQ(AskAndWait(*service, Named("s", "two"))->text, Unbroken({"one", "two"})[1]) << gone;
  }
}

// The file of the deleted one goes before the new one's comes.
TEST(SessionStore, ASessionDeletedWhileItIsWrittenAndMadeAgainIsKept) {
  const TempFolder folder("remade");
  {
    auto service = Serve(OnDisk(folder));
    AskAndWait(*service, Named("s", "old"));
    service->SaveSession("", "s", [](const auto&, const auto&) {});
    service->DeleteSession("", "s", [](const auto&, const auto&) {});
    AskAndWait(*service, Named("s", "one"));
    ASSERT_TRUE(Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); }).first);
    EXPECT_EQ(folder.Files(".session").size(), 1u);
    EXPECT_EQ(DrainAndWait(*service), 0);
  }
  auto service = Serve(OnDisk(folder));
  EXPECT_EQ(AskAndWait(*service, Named("s", "two"))->text, Unbroken({"one", "two"})[1]);
}

TEST(SessionStore, WhatWasSetAsideBeforeIsKeptAndAFolderIsInNobodysWay) {
  const TempFolder folder("aside");
  std::filesystem::create_directory(folder.path());
  const std::string bad = folder.path() + "/" + std::string(32, '7') + ".session";
  std::ofstream(bad) << "junk";
  std::ofstream(bad + ".bad") << "kept earlier";
  std::filesystem::create_directory(folder.path() + "/" + SnapshotFileName("", "s") + ".tmp");
  auto service = Serve(OnDisk(folder));
  EXPECT_EQ(std::filesystem::file_size(bad + ".bad"), 12u);
  EXPECT_EQ(std::filesystem::file_size(bad + ".bad.1"), 4u);
  AskAndWait(*service, Named("s", "one"));
  EXPECT_TRUE(Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); }).first);
}

TEST(SessionStore, SaveAndRestoreGoBackAndForkGoesBothWays) {
  const TempFolder folder("fork");
  auto service = Serve(OnDisk(folder));
  AskAndWait(*service, Named("s", "one"));
  ASSERT_TRUE(Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); }).first);
  ASSERT_TRUE(Wait<SessionInfo>([&](auto d) { service->ForkSession("", "s", "copy", d); }).first);
  EXPECT_EQ(Wait<SessionInfo>([&](auto d) { service->ForkSession("", "s", "copy", d); }).second.status, 409);
  const std::string left = AskAndWait(*service, Named("s", "left"))->text;
  ASSERT_TRUE(Wait<SessionInfo>([&](auto d) { service->RestoreSession("", "s", d); }).first);
  EXPECT_EQ(AskAndWait(*service, Named("s", "left"))->text, left);
  EXPECT_EQ(AskAndWait(*service, Named("copy", "left"))->text, left);
  EXPECT_EQ(Wait<SessionInfo>([&](auto d) { service->RestoreSession("", "copy", d); }).second.code,
            "snapshot_not_found");
  // Deleted is deleted, also on disk.
  ASSERT_TRUE(Wait<bool>([&](auto d) { service->DeleteSession("", "s", d); }).first);
  EXPECT_FALSE(Find(*service, "s"));
  DrainAndWait(*service);
  EXPECT_EQ(folder.Files(".session").size(), 1u);
}

TEST(SessionStore, TheQuotaDeletesTheOldestAnonymousFirstAndNeverANamedOne) {
  const TempFolder folder("quota");
  std::vector<SnapshotLabel> found;
  std::vector<std::string> notices;
  auto session = MakeSession({Policy::kSinks, Evict::kToken, KvType::kF32}, 100, 1);
  const auto size = static_cast<int64_t>(Image(*session).size());
  auto store = SessionStore::Open(folder.path(), 4 * (size + 4096), &found, &notices);
  ASSERT_TRUE(store.ok());
  const auto save = [&](const std::string& id, bool named, int64_t at) {
    SnapshotLabel label = Label(id);
    label.named = named;
    label.saved_at = at;
    std::promise<std::pair<Status, SessionStore::Deleted>> done;
    (*store)->Save(label, EncodeSnapshot(*session, label, Tiny().identity).value(),
                   [&](const Status& s, const SessionStore::Deleted& d) {
                     done.set_value({s, d});
                   });
    return done.get_future().get();
  };
  std::vector<std::string> deleted;
  for (int i = 0; i < 8; ++i) {
    const auto [status, gone] = save("x" + std::to_string(i), i == 0, 100 + i);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const auto& [tenant, id] : gone) deleted.push_back(id);
  }
  ASSERT_GE(deleted.size(), 3u);
  EXPECT_EQ(deleted[0], "x1");
  EXPECT_EQ(deleted[1], "x2");
  // Only named ones left: the next is refused, and nothing is lost for it.
  std::vector<std::string> kept;
  for (int i = 0; i < 8; ++i) {
    const auto [status, gone] = save("n" + std::to_string(i), true, 200 + i);
    if (!status.ok()) {
      EXPECT_NE(status.message().find("sessions on disk"), std::string::npos);
      EXPECT_GT(i, 1);
      return;
    }
  }
  FAIL() << "the quota never refused";
}

TEST(SessionStore, AFailedSaveKeepsTheSessionAndIsReported) {
  const TempFolder folder("full");
  EngineServiceOptions o = OnDisk(folder);
  o.sessions_bytes = 1000;  // nothing fits
  auto service = Serve(o);
  AskAndWait(*service, Named("s", "one"));
  const auto refused = Wait<SessionInfo>([&](auto d) { service->SaveSession("", "s", d); });
  EXPECT_FALSE(refused.first);
  EXPECT_EQ(refused.second.status, 500);
  EXPECT_EQ(AskAndWait(*service, Named("s", "two"))->text, Unbroken({"one", "two"})[1]);
}

}  // namespace
}  // namespace ballast::server
