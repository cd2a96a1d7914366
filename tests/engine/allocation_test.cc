// A stream that has warmed up asks for no memory: what runs for ever must not depend on the allocator.
#include <gtest/gtest.h>

#include "engine/batch.h"
#include "engine/monitor.h"
#include "support/counting_new.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::g_new;
using testing::RandomTokens;
using testing::TinyLlama;
using testing::TinySpec;

TEST(Allocation, ATokenOfAWarmStreamAsksForNoMemory) {
  TinySpec spec;
  spec.weights = DType::kQ4_1;
  const TinyLlama tiny(spec);
  ThreadPool pool(2);
  const Result<TensorFile> file = TensorFile::Open(tiny.WriteTemp("allocation"));
  ASSERT_TRUE(file.ok());
  LoadOptions load;
  const Result<std::unique_ptr<const Model>> model = Model::Load(*file, load, pool);
  ASSERT_TRUE(model.ok()) << model.status().message();
  StreamOptions options;
  options.context = 24;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) {
    Result<std::unique_ptr<Stream>> stream = Stream::Create(**model, pool, options);
    ASSERT_TRUE(stream.ok());
    streams.push_back(std::move(*stream));
  }
  const std::vector<Token> tokens = RandomTokens(200, 64, 1);
  Batch batch(**model, pool);
  std::vector<Batch::Entry> entries(2);
  Monitor monitor(**model);
  const auto step = [&](size_t i) {
    ASSERT_TRUE(streams[0]->Append(std::span(tokens).subspan(i, 1)).ok());
    for (size_t e = 0; e < 2; ++e) {
      entries[e].stream = streams[1 + e].get();
      entries[e].tokens = std::span(tokens).subspan(i, 1);
      entries[e].logits = true;
    }
    batch.Step(entries);
    monitor.Drawn(streams[1]->logits(), tokens[i]);
    monitor.Fed(streams[1]->position(), 1, entries[0].sink_mass, entries[0].layer_stride);
  };
  for (size_t i = 0; i < 100; ++i) step(i);  // past roll-over several times
  g_new.Reset();
  for (size_t i = 100; i < 200; ++i) step(i);
  EXPECT_EQ(g_new.requests, 0u);
}

}  // namespace
}  // namespace ballast
