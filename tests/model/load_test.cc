// Models that must be refused, each with one clear line; and what inspect says of families.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "model/families.h"
#include "model/model.h"
#include "support/temp_path.h"
#include "support/tiny_llama.h"

namespace ballast {
namespace {

using testing::GgufBuilder;
using testing::TinyLlama;
using testing::TinySpec;

// Writes a changed tiny model and loads it.
Status LoadChanged(const std::function<void(GgufBuilder&)>& change, const TinySpec& spec = TinySpec{}) {
  const TinyLlama tiny(spec);
  GgufBuilder builder = tiny.Builder();
  change(builder);
  const std::string path = testing::TempPath("changed.gguf");
  EXPECT_TRUE(builder.Write(path));
  ThreadPool pool(1);
  const Result<TensorFile> file = TensorFile::Open(path);
  if (!file.ok()) return file.status();
  const auto model = Model::Load(*file, {Compute::kFast, nullptr}, pool);
  return model.ok() ? Status() : model.status();
}

void ExpectRefused(const Status& status, const std::string& fragment) {
  EXPECT_EQ(status.code(), Code::kModel) << fragment;
  EXPECT_NE(status.message().find(fragment), std::string::npos) << "found: " << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

template <typename T>
std::function<void(GgufBuilder&)> Replace(const std::string& key, T value) {
  return [=](GgufBuilder& b) {
    b.Remove(key);
    b.Set(key, value);
  };
}

TEST(Load, TheTinyModelItselfLoads) {
  EXPECT_TRUE(LoadChanged([](GgufBuilder&) {}).ok());
}

// CVE-2025-0317 and kin: every hyper-parameter set to zero must be refused, not divided by.
TEST(Load, EveryHyperParameterAtZeroIsRefused) {
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.head_count_kv", "llama.attention.key_length",
        "llama.rope.dimension_count"}) {
    ExpectRefused(LoadChanged(Replace(key, uint32_t{0})), key);
    if (key != std::string("llama.context_length"))
      ExpectRefused(LoadChanged(Replace(key, uint32_t{4000000000})), key);
    ExpectRefused(LoadChanged(Replace(key, int32_t{-1})), key);
    ExpectRefused(LoadChanged(Replace(key, std::string("many"))), key);
  }
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
    ExpectRefused(LoadChanged(Replace(key, 0.0f)), key);
    ExpectRefused(LoadChanged(Replace(key, std::numeric_limits<float>::quiet_NaN())), key);
    ExpectRefused(LoadChanged(Replace(key, std::numeric_limits<float>::infinity())), key);
  }
}

TEST(Load, MissingKeysAreNamed) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.embedding_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    ExpectRefused(LoadChanged([&](GgufBuilder& b) { b.Remove(key); }), key);
  }
}

TEST(Load, SizesThatContradictTheTensorsAreRefused) {
  ExpectRefused(LoadChanged(Replace("llama.block_count", uint32_t{4})), "blk.3.");
  ExpectRefused(LoadChanged(Replace("llama.feed_forward_length", uint32_t{65})), "ffn_gate.weight");
  ExpectRefused(LoadChanged(Replace("llama.embedding_length", uint32_t{48})), "expected [48");
  ExpectRefused(LoadChanged(Replace("llama.attention.head_count_kv", uint32_t{3})),
                "a divisor of head_count 4");
  ExpectRefused(LoadChanged(Replace("llama.attention.value_length", uint32_t{8})), "value_length");
  ExpectRefused(LoadChanged(Replace("llama.rope.dimension_count", uint32_t{7})), "an even number");
}

TEST(Load, UnknownArchitecturesAndScalingsAreNamed) {
  ExpectRefused(LoadChanged(Replace("general.architecture", std::string("mystery"))), "found mystery");
  ExpectRefused(LoadChanged(Replace("general.architecture", std::string("gpt2"))), "found gpt2");
  ExpectRefused(
      LoadChanged([](GgufBuilder& b) { b.Set("llama.rope.scaling.type", std::string("longrope")); }),
      "longrope");
  ExpectRefused(LoadChanged([](GgufBuilder& b) { b.Set("llama.expert_count", uint32_t{8}); }),
                "expert_count");
}

// config.json's hidden_act, which a family must not pass over.
TEST(Load, TheActivationIsTheOneThatIsNamed) {
  const auto with = [](const std::string& architecture, const std::string& name) {
    GgufBuilder b = TinyLlama(TinySpec{.architecture = architecture}).Builder();
    b.Set("ballast.hidden_act", name);
    const std::string path = testing::TempPath("act.gguf");
    EXPECT_TRUE(b.Write(path));
    const Result<TensorFile> file = TensorFile::Open(path);
    EXPECT_TRUE(file.ok());
    const Result<ModelPlan> plan = ReadModelPlan(*file);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? plan->plan.activation : Activation::kSilu;
  };
  EXPECT_EQ(with("llama", "silu"), Activation::kSilu);
  EXPECT_EQ(with("llama", "gelu"), Activation::kGelu);
  EXPECT_EQ(with("qwen2", "gelu_pytorch_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(with("gemma", "gelu"), Activation::kGeluTanh) << "as transformers reads Gemma's configs";
  EXPECT_EQ(with("gemma", "gelu_pytorch_tanh"), Activation::kGeluTanh);
  ExpectRefused(LoadChanged([](GgufBuilder& b) { b.Set("ballast.hidden_act", std::string("relu2")); }),
                "relu2");
}

TEST(Load, FrequencyFactorsMustBeAboveZero) {
  ExpectRefused(LoadChanged([](GgufBuilder& b) {
                  b.AddTensor("rope_freqs.weight", DType::kF32, {8}, {1, 1, 0, 1, 1, 1, 1, 1});
                }),
                "rope_freqs.weight");
}

TEST(Families, InspectSaysWhyAModelCannotBeStreamed) {
  const TinyLlama tiny{TinySpec{}};
  const auto check = [&](const std::string& architecture) {
    GgufBuilder b = tiny.Builder();
    b.Remove("general.architecture");
    b.Set("general.architecture", architecture);
    const std::string path = testing::TempPath("family.gguf");
    EXPECT_TRUE(b.Write(path));
    const Result<TensorFile> file = TensorFile::Open(path);
    EXPECT_TRUE(file.ok());
    return CheckStreamable(*file);
  };
  EXPECT_TRUE(check("llama").loadable);
  EXPECT_TRUE(check("llama").streamable);
  EXPECT_EQ(check("llama").positions, "RoPE, full (16 dimensions), base 10000");
  EXPECT_FALSE(check("gpt2").streamable);
  EXPECT_NE(check("gpt2").reason.find("learned absolute positions"), std::string::npos);
  EXPECT_TRUE(check("deepseek2").streamable);
  EXPECT_FALSE(check("deepseek2").loadable);
  EXPECT_FALSE(check("mystery").streamable);
  EXPECT_NE(check("mystery").reason.find("mystery"), std::string::npos);
}

}  // namespace
}  // namespace ballast
