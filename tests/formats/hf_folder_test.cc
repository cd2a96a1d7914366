// Hugging Face folders: the metadata and names they present, and folders that lie.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/hf_config.h"
#include "formats/hf_tables.h"
#include "formats/json.h"
#include "formats/tensor_file.h"
#include "support/safetensors_builder.h"
#include "support/temp_path.h"

namespace ballast {
namespace {

using testing::SafetensorsBuilder;
using Files = std::map<std::string, std::vector<uint8_t>>;
using Json = nlohmann::json;

Json LlamaConfig() {
  return {{"model_type", "llama"},       {"num_hidden_layers", 1},         {"hidden_size", 32},
          {"num_attention_heads", 4},    {"num_key_value_heads", 2},       {"intermediate_size", 64},
          {"rms_norm_eps", 1e-5},        {"max_position_embeddings", 256}, {"vocab_size", 16},
          {"tie_word_embeddings", true}, {"rope_theta", 50000.0},          {"hidden_act", "silu"}};
}

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

SafetensorsBuilder FirstShard() {
  SafetensorsBuilder b;
  b.Add("model.embed_tokens.weight", DType::kBF16, {16, 32}).Add("model.norm.weight", DType::kF32, {32});
  return b;
}
SafetensorsBuilder SecondShard() {
  SafetensorsBuilder b;
  b.Add("model.layers.0.self_attn.q_proj.weight", DType::kF16, {32, 32});
  b.Add("model.layers.0.mlp.down_proj.weight", DType::kF16, {32, 64});
  return b;
}

Files Sharded() {
  const Json map = {{"model.embed_tokens.weight", "a.safetensors"},
                    {"model.norm.weight", "a.safetensors"},
                    {"model.layers.0.self_attn.q_proj.weight", "b.safetensors"},
                    {"model.layers.0.mlp.down_proj.weight", "b.safetensors"}};
  return {
      {"config.json", Bytes(LlamaConfig().dump())},
      {"model.safetensors.index.json", Bytes(Json{{"metadata", Json::object()}, {"weight_map", map}}.dump())},
      {"a.safetensors", FirstShard().Build()},
      {"b.safetensors", SecondShard().Build()}};
}

std::string Refusal(Files files) {
  const auto file = TensorFile::ParseFolder("folder", std::move(files));
  if (file.ok()) return "accepted";
  EXPECT_EQ(file.status().code(), Code::kModel);
  for (const char c : file.status().message()) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
  EXPECT_TRUE(file.status().message().starts_with("folder")) << file.status().message();
  return file.status().message();
}

TEST(HfFolder, ShardsBecomeOneFileUnderGgufNames) {
  const auto file = TensorFile::ParseFolder("some/folder", Sharded());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->format(), "safetensors, 2 files");
  EXPECT_EQ(**file->String("general.architecture"), "llama");
  EXPECT_EQ(**file->String("general.name"), "folder");
  EXPECT_EQ(**file->Int("llama.block_count"), 1);
  EXPECT_EQ(**file->Int("llama.attention.head_count_kv"), 2);
  EXPECT_EQ(**file->Float("llama.rope.freq_base"), 50000);
  EXPECT_TRUE(**file->Bool("ballast.rope.half_split"));
  ASSERT_EQ(file->tensors().size(), 4u);
  const TensorInfo* down = file->FindTensor("blk.0.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->dims, (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(file->Matrix(*down).rows, 32);
  EXPECT_EQ(file->Matrix(*down).row(0)[1], 0x38);  // 0.5 in binary16
}

TEST(HfFolder, OpenedFromDiskItIsTheSameByFolderOrByFile) {
  const std::filesystem::path folder = testing::TempPath("folder");
  std::filesystem::create_directories(folder);
  for (const auto& [name, bytes] : Sharded()) {
    std::ofstream out(folder / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  const auto memory = TensorFile::ParseFolder("x", Sharded());
  for (const std::string& path : {folder.string() + "/", (folder / "b.safetensors").string()}) {
    const auto file = TensorFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->path(), folder.string());
    const auto go_on = [] { return true; };
    EXPECT_EQ(*file->ContentHash(go_on), *memory->ContentHash(go_on));
    EXPECT_EQ(file->file_bytes(), memory->file_bytes());
    file->DontNeed(file->tensors()[0]);
    file->Touch(file->tensors()[3]);
  }
}

TEST(HfFolder, LongRopesDivisorsAreTensorsAsInGguf) {
  Files files = Sharded();
  Json json = LlamaConfig();
  json["model_type"] = "phi3";
  json["original_max_position_embeddings"] = 64;
  json["rope_scaling"] = {{"type", "longrope"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 4.0}}};
  files["config.json"] = Bytes(json.dump());
  const auto file = TensorFile::ParseFolder("folder", std::move(files));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TensorInfo* factors = file->FindTensor("rope_factors_short.weight");
  ASSERT_NE(factors, nullptr);
  float second = 0;
  std::memcpy(&second, file->Data(*factors) + sizeof(float), sizeof(second));
  EXPECT_EQ(second, 1.5f);
  EXPECT_EQ(**file->Int("phi3.rope.scaling.original_context_length"), 64);
  EXPECT_NEAR(**file->Float("phi3.rope.scaling.attn_factor"), std::sqrt(1 + std::log(4) / std::log(64)),
              1e-9);
  EXPECT_EQ(file->Find("phi3.rope.scaling.type"), nullptr);
}

TEST(HfFolder, EveryBadFolderIsOneClearLine) {
  struct Case {
    std::string what;
    std::function<void(Files&)> spoil;
    std::string says;
  };
  const auto config = [](const std::function<void(Json&)>& change) {
    return [change](Files& f) {
      Json json = LlamaConfig();
      change(json);
      f["config.json"] = Bytes(json.dump());
    };
  };
  const auto index = [](const std::function<void(Json&)>& change) {
    return [change](Files& f) {
      auto& bytes = f["model.safetensors.index.json"];
      Json json = Json::parse(bytes);
      change(json["weight_map"]);
      bytes = Bytes(json.dump());
    };
  };
  const std::vector<Case> cases = {
      {"no config", [](Files& f) { f.erase("config.json"); }, "with config.json, found none"},
      {"html config", [](Files& f) { f["config.json"] = Bytes("<!DOCTYPE html><html>"); },
       "folder/config.json: expected a JSON object, found an HTML page"},
      {"lfs config",
       [](Files& f) { f["config.json"] = Bytes("version https://git-lfs.github.com/spec/v1\n"); },
       "git-lfs pointer"},
      {"config cut", [](Files& f) { f["config.json"].resize(40); }, "a syntax error near byte"},
      {"config of parentheses",
       [](Files& f) { f["config.json"] = Bytes("{\"a\":" + std::string(60000, '[')); }, "at most 64 levels"},
      {"key twice", [](Files& f) { f["config.json"] = Bytes(R"({"a": 1, "a": 2})"); }, "'a' twice"},
      {"no model_type", config([](Json& j) { j.erase("model_type"); }), "model_type: expected one of llama"},
      {"unknown model_type", config([](Json& j) { j["model_type"] = "zeta"; }), "found 'zeta'"},
      {"no layers", config([](Json& j) { j.erase("num_hidden_layers"); }),
       "config.json: num_hidden_layers: expected a number, found no such key"},
      {"layers a text", config([](Json& j) { j["num_hidden_layers"] = "1"; }), "found the text '1'"},
      {"no layer at all", config([](Json& j) { j["num_hidden_layers"] = 0; }), "expected 1 to 4096, found 0"},
      {"eps a list", config([](Json& j) { j["rms_norm_eps"] = {1}; }), "rms_norm_eps: expected a number"},
      {"no weights", [](Files& f) { f.erase("model.safetensors.index.json"); }, "found neither"},
      {"pickled",
       [](Files& f) {
         f.erase("model.safetensors.index.json");
         f["pytorch_model.bin"] = Bytes("x");
       },
       "pickled weights, which can run code"},
      {"missing shard", [](Files& f) { f.erase("b.safetensors"); },
       "folder/'b.safetensors': expected a shard"},
      {"shard outside", index([](Json& m) { m["model.norm.weight"] = "../secret"; }), "found '../secret'"},
      {"shard a number", index([](Json& m) { m["model.norm.weight"] = 3; }), "another kind"},
      {"not in the index", index([](Json& m) { m.erase("model.norm.weight"); }),
       "'model.norm.weight': expected an entry of the index that names this file, found none"},
      {"in another shard", index([](Json& m) { m["model.norm.weight"] = "b.safetensors"; }),
       "one that names 'b.safetensors'"},
      {"not in its shard", index([](Json& m) { m["lm_head.weight"] = "a.safetensors"; }),
       "'lm_head.weight': expected data, as the index says, found no such tensor"},
      {"wrong dtype",
       [](Files& f) {
         f["a.safetensors"] =
             SafetensorsBuilder()
                 .Add("model.embed_tokens.weight", DType::kBF16, {16, 32})
                 .AddRaw("model.norm.weight",
                         R"({"dtype": "I64", "shape": [2], "data_offsets": [1024, 1040]})", 16)
                 .Build();
       },
       "expected F32, F16 or BF16, found I64"},
      {"a shard of html", [](Files& f) { f["b.safetensors"] = Bytes("<html><body>not found</body></html>"); },
       "found an HTML page"},
      {"unknown tensor",
       [](Files& f) {
         f["model.safetensors"] =
             SafetensorsBuilder().Add("model.layers.0.lora_A.weight", DType::kF32, {2}).Build();
       },
       "'model.layers.0.lora_A.weight': expected a tensor that llama has"},
      {"a layer too many",
       [](Files& f) {
         f["model.safetensors"] =
             SafetensorsBuilder().Add("model.layers.1.mlp.up_proj.weight", DType::kF32, {2}).Build();
       },
       "expected a tensor that llama has"},
      {"one tensor under two names",
       [](Files& f) {
         f["model.safetensors"] = SafetensorsBuilder()
                                      .Add("model.norm.weight", DType::kF32, {2})
                                      .Add("norm.weight", DType::kF32, {2})
                                      .Build();
       },
       "each tensor once"},
      {"no output matrix", config([](Json& j) { j["tie_word_embeddings"] = false; }), "lm_head.weight"},
      {"template a number", [](Files& f) { f["tokenizer_config.json"] = Bytes(R"({"chat_template": 5})"); },
       "chat_template: expected a text"},
  };
  EXPECT_EQ(Refusal(Sharded()), "accepted");
  for (const Case& c : cases) {
    Files files = Sharded();
    c.spoil(files);
    const std::string text = Refusal(std::move(files));
    EXPECT_NE(text.find(c.says), std::string::npos) << c.what << ": " << text;
  }
}

TEST(HfFolder, TheChatTemplateIsFoundWhereverItIsKept) {
  const auto found = [](const std::string& name, const std::string& text) {
    Files files = Sharded();
    files[name] = Bytes(text);
    const auto file = TensorFile::ParseFolder("folder", std::move(files));
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? (*file->String("tokenizer.chat_template")).value_or("none") : "refused";
  };
  EXPECT_EQ(found("tokenizer_config.json", R"({"chat_template": "A"})"), "A");
  EXPECT_EQ(found("tokenizer_config.json", R"({"chat_template": [{"name": "tool", "template": "T"},
      {"name": "default", "template": "D"}]})"),
            "D");
  EXPECT_EQ(found("chat_template.jinja", "J"), "J");
  EXPECT_EQ(found("tokenizer_config.json", "{}"), "none");
}

// ---- config.json, family by family ----

std::map<std::string, MetaValue> Meta(const Json& config) {
  std::map<std::string, MetaValue> out;
  const auto read = ReadHfConfig("config.json", config.dump());
  EXPECT_TRUE(read.ok()) << read.status().message();
  if (!read.ok()) return out;
  for (const auto& [key, value] : read->metadata) out[key] = value;
  return out;
}

TEST(HfConfig, LocalLayersFollowTheFamilysRule) {
  Json gemma2 = {
      {"model_type", "gemma2"},   {"num_hidden_layers", 4},  {"hidden_size", 32},          {"head_dim", 16},
      {"num_attention_heads", 2}, {"intermediate_size", 64}, {"query_pre_attn_scalar", 16}};
  auto meta = Meta(gemma2);
  EXPECT_EQ(std::get<std::vector<bool>>(meta["gemma2.attention.sliding_window_pattern"]),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(std::get<double>(meta["gemma2.attention.scale"]), 0.25);
  EXPECT_EQ(std::get<double>(meta["gemma2.attn_logit_softcapping"]), 50);
  EXPECT_TRUE(std::get<bool>(meta["ballast.norm.plus_one"]));

  // As gemma-3-4b ships it: a language model inside, five keys, the rest the class's defaults.
  const Json gemma3 = {{"model_type", "gemma3"},
                       {"text_config",
                        {{"model_type", "gemma3_text"},
                         {"num_hidden_layers", 7},
                         {"hidden_size", 64},
                         {"intermediate_size", 128},
                         {"sliding_window", 1024},
                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}}};
  meta = Meta(gemma3);
  EXPECT_EQ(std::get<int64_t>(meta["gemma3.attention.head_count"]), 8);
  EXPECT_EQ(std::get<int64_t>(meta["gemma3.attention.sliding_window"]), 1024);
  EXPECT_EQ(std::get<double>(meta["gemma3.rope.freq_base"]), 1e6);
  EXPECT_EQ(std::get<double>(meta["gemma3.rope.freq_base_swa"]), 1e4);
  EXPECT_EQ(std::get<std::string>(meta["gemma3.rope.scaling.type"]), "linear");
  EXPECT_EQ(std::get<std::vector<bool>>(meta["gemma3.attention.sliding_window_pattern"]),
            (std::vector<bool>{true, true, true, true, true, false, true}));

  Json qwen = LlamaConfig();
  qwen["model_type"] = "qwen2";
  qwen["sliding_window"] = 128;
  qwen["use_sliding_window"] = false;
  EXPECT_FALSE(Meta(qwen).contains("qwen2.attention.sliding_window"));
  Json mistral = LlamaConfig();
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 128;
  EXPECT_EQ(std::get<int64_t>(Meta(mistral)["llama.attention.sliding_window"]), 128);
  mistral["sliding_window"] = nullptr;
  EXPECT_FALSE(Meta(mistral).contains("llama.attention.sliding_window"));
}

TEST(HfConfig, RopeIsReadAsEitherVersionOfTransformersWritesIt) {
  Json old = LlamaConfig();
  old["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
  Json young = LlamaConfig();
  young.erase("rope_theta");
  young["rope_parameters"] = old["rope_scaling"];
  young["rope_parameters"]["rope_theta"] = 50000.0;
  EXPECT_EQ(Meta(old), Meta(young));
  EXPECT_EQ(std::get<int64_t>(Meta(old)["llama.rope.scaling.original_context_length"]), 8192);
  Json yarn = LlamaConfig();
  yarn["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.0}};
  EXPECT_NEAR(std::get<double>(Meta(yarn)["llama.rope.scaling.attn_factor"]) * (0.1 * std::log(4.0) + 1), 1.0,
              1e-12);
  Json neox = {{"model_type", "gpt_neox"}, {"num_hidden_layers", 1},  {"hidden_size", 64},
               {"num_attention_heads", 2}, {"intermediate_size", 64}, {"max_position_embeddings", 128},
               {"rotary_pct", 0.25},       {"rotary_emb_base", 10000}};
  auto meta = Meta(neox);
  EXPECT_EQ(std::get<int64_t>(meta["gptneox.rope.dimension_count"]), 8);
  EXPECT_TRUE(std::get<bool>(meta["ballast.qkv.per_head"]));
  EXPECT_TRUE(std::get<bool>(meta["gptneox.use_parallel_residual"]));
}

TEST(HfConfig, FalconsSwitchesSayHowItsHeadsLie) {
  Json falcon = {{"model_type", "falcon"},   {"num_hidden_layers", 1}, {"hidden_size", 64},
                 {"num_attention_heads", 4}, {"multi_query", true},    {"parallel_attn", true}};
  auto meta = Meta(falcon);
  EXPECT_EQ(std::get<int64_t>(meta["falcon.attention.head_count_kv"]), 1);
  EXPECT_FALSE(meta.contains("ballast.qkv.per_head"));
  falcon["new_decoder_architecture"] = true;
  falcon["num_kv_heads"] = 2;
  meta = Meta(falcon);
  EXPECT_EQ(std::get<int64_t>(meta["falcon.attention.head_count_kv"]), 2);
  EXPECT_TRUE(std::get<bool>(meta["ballast.qkv.per_head"]));
  const Json mpt = {{"model_type", "mpt"}, {"n_layers", 1},
                    {"d_model", 32},       {"n_heads", 4},
                    {"max_seq_len", 64},   {"attn_config", {{"clip_qkv", 6.0}, {"alibi", true}}}};
  meta = Meta(mpt);
  EXPECT_EQ(std::get<double>(meta["mpt.attention.clamp_kqv"]), 6);
  EXPECT_EQ(std::get<double>(meta["mpt.attention.max_alibi_bias"]), 8);
  EXPECT_EQ(std::get<int64_t>(meta["mpt.feed_forward_length"]), 128);
  EXPECT_FALSE(meta.contains("ballast.rope.half_split"));
}

// stablelm-2-12b: a norm for each head, in tensors of their own.
TEST(HfConfig, NormsOfSingleHeadsAreRefusedByName) {
  Json stable = LlamaConfig();
  stable["model_type"] = "stablelm";
  stable["qk_layernorm"] = false;
  EXPECT_TRUE(ReadHfConfig("config.json", stable.dump()).ok());
  stable["qk_layernorm"] = true;
  const auto refused = ReadHfConfig("config.json", stable.dump());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("qk_layernorm"), std::string::npos) << refused.status().message();
}

TEST(HfConfig, NopeLayersAreSaidByLayer) {
  Json smol = LlamaConfig();
  smol["model_type"] = "smollm3";
  smol["num_hidden_layers"] = 4;
  smol["no_rope_layers"] = {1, 1, 1, 0};
  const std::vector<bool> expected = {true, true, true, false};
  EXPECT_EQ(std::get<std::vector<bool>>(Meta(smol)["ballast.rope.layers"]), expected);
  smol.erase("no_rope_layers");
  EXPECT_EQ(std::get<std::vector<bool>>(Meta(smol)["ballast.rope.layers"]), expected);
}

TEST(HfTables, NamesOfEveryShapeOfPrefixAreTranslated) {
  const auto name = [](const char* family, const char* tensor) {
    return TranslateTensorName(*FindHfFamily(family), tensor, 4).gguf;
  };
  EXPECT_EQ(name("llama", "model.layers.3.self_attn.q_proj.weight"), "blk.3.attn_q.weight");
  EXPECT_EQ(name("llama", "lm_head.weight"), "output.weight");
  EXPECT_EQ(name("llama", "model.layers.03.self_attn.q_proj.weight"), "");
  EXPECT_EQ(name("llama", "model.layers.#.self_attn.q_proj.weight"), "");
  EXPECT_EQ(name("llama", "model.layers.4.self_attn.q_proj.weight"), "");
  EXPECT_EQ(name("gemma3", "language_model.model.layers.1.post_attention_layernorm.weight"),
            "blk.1.post_attention_norm.weight");
  EXPECT_EQ(name("gemma3", "model.language_model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_TRUE(TranslateTensorName(*FindHfFamily("gemma3"), "vision_tower.x.weight", 4).skip);
  EXPECT_EQ(name("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.bias"), "blk.0.attn_qkv.bias");
  EXPECT_TRUE(TranslateTensorName(*FindHfFamily("gpt_neox"), "gpt_neox.layers.0.attention.bias", 4).skip);
  EXPECT_EQ(name("falcon", "transformer.h.2.ln_attn.weight"), "blk.2.attn_norm_2.weight");
  EXPECT_EQ(name("mpt", "transformer.blocks.0.attn.Wqkv.weight"), "blk.0.attn_qkv.weight");
  EXPECT_EQ(name("phi3", "model.layers.0.mlp.gate_up_proj.weight"), "blk.0.ffn_up.weight");
}

}  // namespace
}  // namespace ballast
