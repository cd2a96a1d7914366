// A stream that has warmed up asks for no memory: what runs for ever must not depend on the allocator.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/batch.h"
#include "engine/monitor.h"
#include "support/tiny_llama.h"

namespace {
std::atomic<bool> g_counting{false};
std::atomic<long> g_requests{0};

void* Count(size_t n) {
  if (g_counting) ++g_requests;
  return std::malloc(n == 0 ? 1 : n);
}
void* CountOrThrow(size_t n) {
  void* p = Count(n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// GCC sees malloc in one inlined half and operator delete in the other, and takes them for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t n) { return CountOrThrow(n); }
void* operator new[](size_t n) { return CountOrThrow(n); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return Count(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace ballast {
namespace {

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
  g_counting = true;
  for (size_t i = 100; i < 200; ++i) step(i);
  g_counting = false;
  EXPECT_EQ(g_requests, 0);
}

}  // namespace
}  // namespace ballast
