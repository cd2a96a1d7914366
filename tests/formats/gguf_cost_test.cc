// What parsing costs: memory that hostile counts cannot inflate, and time that real vocabularies do not
// notice.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/tensor_file.h"
#include "support/counting_new.h"
#include "support/gguf_builder.h"
#include "support/sanitized.h"

namespace ballast {
namespace {

using Bytes = std::vector<uint8_t>;
using testing::GgufBuilder;

struct Cost {
  bool ok;
  size_t total;
  size_t largest;
};

Cost CostOf(const GgufBuilder& b) {
  Bytes bytes = b.Build();
  testing::g_new.Reset();
  const auto file = TensorFile::Parse("x.gguf", std::move(bytes));
  return {file.ok(), testing::g_new.bytes, testing::g_new.largest};
}

// CVE-2025-0315, CVE-2024-12055: a few bytes asked for all memory.
TEST(GgufCost, HugeCountsAllocateNothing) {
  constexpr uint64_t kHuge = uint64_t{1} << 36;
  std::vector<GgufBuilder> files(6);
  files[0].MetadataCount(kHuge);
  files[1].TensorCount(kHuge);
  for (uint32_t kind : {0u, 4u, 7u, 8u}) {
    Bytes raw(12);
    std::memcpy(raw.data(), &kind, 4);
    std::memcpy(raw.data() + 4, &kHuge, 8);
    files[2].SetRaw(std::to_string(kind), 9, raw);
  }
  Bytes length(8);
  std::memcpy(length.data(), &kHuge, 8);
  files[3].SetRaw("k", 8, length);
  files[4].AddRawTensor("w", 0, {kHuge}, {});
  files[5].AddRawTensor("w", 0, {kHuge, kHuge}, {});
  for (size_t i = 0; i < files.size(); ++i) {
    const Cost cost = CostOf(files[i]);
    EXPECT_FALSE(cost.ok) << i;
    EXPECT_LT(cost.total, 16384u) << i;
  }
}

// Counts that the file's size does allow: the densest metadata, arrays and tensors.
TEST(GgufCost, DenseFilesCostASmallMultipleOfTheirSize) {
  std::vector<GgufBuilder> files(4);
  files[0].Set("k", std::vector<uint8_t>(1 << 20));
  files[1].Set("k", std::vector<std::string>(1 << 17));
  for (int i = 0; i < 20000; ++i) files[2].Set(std::to_string(i), uint8_t{1});
  for (int i = 0; i < 20000; ++i) files[3].AddRawTensor(std::to_string(i), 24, {1}, {});
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t size = files[i].Build().size();
    const Cost cost = CostOf(files[i]);
    EXPECT_EQ(cost.ok, i != 3);
    EXPECT_LE(cost.largest, 10 * size) << i;
    EXPECT_LE(cost.total, 20 * size) << i;
  }
}

TEST(GgufCost, CountsAboveOurBoundsAreRefused) {
  GgufBuilder arrays;
  // Two arrays, together one element too many; each alone is fine.
  arrays.Set("a", std::vector<uint8_t>(kGgufMaxArrayElements));
  EXPECT_TRUE(CostOf(arrays).ok);
  arrays.Set("b", std::vector<uint8_t>(1));
  EXPECT_FALSE(CostOf(arrays).ok);
}

// llama.cpp issue 19856: the cure slowed loading. Far above what it takes, so that only a slip in order of
// growth fails here.
TEST(GgufCost, AVocabularyOf262144TokensLoadsQuickly) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 262144; ++i) tokens.push_back(std::to_string(1000000 + i));
  GgufBuilder b;
  b.Set("tokenizer.ggml.tokens", tokens).Set("tokenizer.ggml.scores", std::vector<float>(tokens.size()));
  b.Set("tokenizer.ggml.token_type", std::vector<int32_t>(tokens.size(), 1));
  const Bytes bytes = b.Build();
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(TensorFile::Parse("x.gguf", bytes).ok());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), testing::kSanitized ? 30.0 : 2.0);
}

TEST(GgufCost, RealModelsOpenQuickly) {
  int found = 0;
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"}) {
    const std::string path = std::string(BALLAST_MODELS_DIR) + "/" + name;
    if (!std::filesystem::exists(path)) continue;
    ++found;
    const auto start = std::chrono::steady_clock::now();
    const auto file = TensorFile::Open(path);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_LT(seconds.count(), testing::kSanitized ? 30.0 : 2.0);
    EXPECT_GT(file->tensors().size(), 200u);
  }
  if (found == 0) GTEST_SKIP() << "no model in " << BALLAST_MODELS_DIR;
}

}  // namespace
}  // namespace ballast
