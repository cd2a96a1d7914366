// The real model and the reference values that the eval tests measure it against.
#ifndef BALLAST_TESTS_EVAL_FIXTURE_H_
#define BALLAST_TESTS_EVAL_FIXTURE_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "engine/load_tokenizer.h"
#include "eval/tokens.h"
#include "formats/tensor_file.h"
#include "model/model.h"
#include "support/sanitized.h"

namespace ballast::testing {

struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<TensorFile> file;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const Model> model;
};

// The file at `path` with everything a stream needs; fails the test when it cannot be loaded.
inline std::unique_ptr<LoadedModel> LoadFile(const std::string& path, Compute compute, int threads) {
  auto loaded = std::make_unique<LoadedModel>();
  Result<TensorFile> file = TensorFile::Open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status().message() << " (make models fetches the models)";
    return nullptr;
  }
  loaded->file = std::make_unique<TensorFile>(std::move(file).value());
  loaded->pool = std::make_unique<ThreadPool>(threads);
  auto tokenizer = LoadTokenizer(*loaded->file);
  if (tokenizer.ok()) loaded->tokenizer = std::move(tokenizer).value();
  LoadOptions options;
  options.compute = compute;
  auto model = Model::Load(*loaded->file, options, *loaded->pool);
  if (!model.ok()) {
    ADD_FAILURE() << model.status().message();
    return nullptr;
  }
  loaded->model = std::move(model).value();
  return loaded;
}

// SmolLM2, loaded once per process and compute mode.
inline const LoadedModel* SmolLm2(Compute compute) {
  static std::unique_ptr<LoadedModel> models[2];
  std::unique_ptr<LoadedModel>& slot = models[compute == Compute::kF32 ? 0 : 1];
  if (slot == nullptr) {
    slot = LoadFile(BALLAST_MODELS_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf", compute, UsableCores());
  }
  return slot.get();
}

inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream in(path);
  nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  if (json.is_discarded()) ADD_FAILURE() << path << ": no JSON";
  return json;
}

inline nlohmann::json ReadGolden(const std::string& name) {
  return ReadJson(std::string(BALLAST_TEST_DATA) + "/goldens/" + name);
}

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_EVAL_FIXTURE_H_
