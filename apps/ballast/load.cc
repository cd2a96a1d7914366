#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <fstream>

#include "app.h"
#include "engine/load_tokenizer.h"
#include "kernels/isa.h"
#include "terminal.h"

namespace ballast::app {
namespace {

constexpr const char* kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

// The folder of this program; empty when the system will not say.
std::string ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0 || n == static_cast<ssize_t>(sizeof(path))) return "";
  const std::string text(path, static_cast<size_t>(n));
  return text.substr(0, text.rfind('/'));
}

}  // namespace

Result<std::string> FindModel(const CommonFlags& flags) {
  if (!flags.model.empty()) return flags.model;
  std::vector<std::string> places = {kDefaultModel};
  if (const std::string folder = ProgramFolder(); !folder.empty()) {
    places.push_back(folder + "/../../" + kDefaultModel);  // build/release/ballast
    places.push_back(folder + "/../share/ballast/" + kDefaultModel);
  }
  for (const std::string& place : places) {
    if (access(place.c_str(), R_OK) == 0) return place;
  }
  return Status::Expected(Code::kModel, "model", std::string("a file at ") + kDefaultModel, "none",
                          "run `make build` in the source folder, or name one with -m PATH or BALLAST_MODEL");
}

LoadOptions MakeLoadOptions(const CommonFlags& flags) {
  LoadOptions options;
  options.compute = flags.compute == "f32" ? Compute::kF32 : Compute::kFast;
  if (flags.weights == "q8") options.weights = DType::kQ8_0;
  if (flags.weights == "q4") options.weights = DType::kQ4_1;
  return options;
}

Result<std::string> HashModel(const TensorFile& file) {
  return file.ContentHash([] { return !Interrupted(); });
}

Result<Loaded> LoadModel(const CommonFlags& flags, bool hash) {
  const auto began = std::chrono::steady_clock::now();
  BALLAST_ASSIGN_OR_RETURN(const std::string path, FindModel(flags));
  if (access(path.c_str(), F_OK) != 0) {
    return Status::Expected(Code::kModel, path, "a model file", "none",
                            "name one with -m PATH or BALLAST_MODEL; `make build` fetches the default");
  }
  Loaded loaded;
  BALLAST_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
  loaded.file = std::make_unique<TensorFile>(std::move(file));
  BALLAST_ASSIGN_OR_RETURN(loaded.tokenizer, LoadTokenizer(*loaded.file));
  const int cores = UsableCores();
  if (flags.threads > cores) {  // more would only wait for each other
    Note(fmt::format("[--threads {}: using the {} there {}]", flags.threads,
                     cores == 1 ? "1 core" : fmt::format("{} cores", cores), cores == 1 ? "is" : "are"));
  }
  loaded.pool = std::make_unique<ThreadPool>(flags.threads > 0 ? std::min(flags.threads, cores) : cores);
  Progress progress("loading " + path.substr(path.rfind('/') + 1));
  LoadOptions options = MakeLoadOptions(flags);
  options.progress = [&progress](double share) { progress.Update(share); };
  BALLAST_ASSIGN_OR_RETURN(loaded.model, Model::Load(*loaded.file, options, *loaded.pool));
  progress.Done();
  if (Interrupted()) return Status(Code::kInterrupted, "interrupted while loading");
  if (loaded.tokenizer->size() > loaded.model->config().vocab) {
    return Status::Expected(
        Code::kModel, path + ": vocabulary",
        fmt::format("at most {} tokens, as the network has", loaded.model->config().vocab),
        fmt::format("{}", loaded.tokenizer->size()));
  }
  if (hash) {
    BALLAST_ASSIGN_OR_RETURN(loaded.sha256, HashModel(*loaded.file));
  }
  if (flags.verbose) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    Note(fmt::format("{}: {}, {}, {} threads, {}, loaded in {:.2f} s", path, loaded.file->format(),
                     Bytes(static_cast<double>(loaded.file->file_bytes())), loaded.pool->threads(),
                     CurrentIsa(), took.count()));
  }
  return loaded;
}

void WarnBeyondTraining(const Stream& stream) {
  const int64_t trained = stream.model().config().trained_context;
  if (trained <= 0 || stream.context() <= trained) return;
  Warn(fmt::format("a context of {} tokens is beyond the {} this model was trained on", stream.context(),
                   trained));
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      return ValidUtf8(line.substr(line.find(": ") + 2));
    }
  }
  return "unknown";
}

nlohmann::json ModelJson(const Loaded& loaded) {
  BALLAST_CHECK(!loaded.sha256.empty());
  return {{"name", loaded.model->config().name},
          {"sha256", loaded.sha256},
          {"architecture", loaded.model->config().architecture}};
}

}  // namespace ballast::app
