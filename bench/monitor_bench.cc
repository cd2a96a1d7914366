// The collapse monitor beside the step that it watches: time per token of both, on the models given.
//
//   build/release/bench/monitor_bench models/*.gguf
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/monitor.h"
#include "engine/stream.h"

namespace ballast {
namespace {

struct Subject {
  std::string name;
  std::unique_ptr<TensorFile> file;
  std::unique_ptr<const Model> model;
  std::unique_ptr<Stream> stream;
};

// A stream in its steady state: past roll-over, one token per step.
bool Prepare(const char* path, ThreadPool& pool, Subject& subject) {
  Result<TensorFile> file = TensorFile::Open(path);
  if (!file.ok()) return false;
  subject.file = std::make_unique<TensorFile>(std::move(*file));
  Result<std::unique_ptr<const Model>> model = Model::Load(*subject.file, LoadOptions(), pool);
  if (!model.ok()) return false;
  subject.model = std::move(*model);
  StreamOptions options;
  options.context = 1024;
  Result<std::unique_ptr<Stream>> stream = Stream::Create(*subject.model, pool, options);
  if (!stream.ok()) return false;
  subject.stream = std::move(*stream);
  subject.name = subject.model->config().name;
  return subject.stream->Append(std::vector<Token>(1100, 5)).ok();
}

void Step(benchmark::State& state, Subject& subject) {
  const Token token = 7;
  for (auto _ : state) benchmark::DoNotOptimize(subject.stream->Append({&token, 1}).ok());
}

void Watch(benchmark::State& state, Subject& subject) {
  Monitor monitor(*subject.model);
  const ModelConfig& config = subject.model->config();
  const std::vector<float> mass(static_cast<size_t>(config.layers) * config.heads, 0.1F);
  int64_t t = 0;
  for (auto _ : state) {
    monitor.Drawn(subject.stream->logits(), static_cast<Token>(t * 31 % 1000));
    monitor.Fed(++t, 1, mass.data(), config.heads);
  }
  state.counters["looks_at_every"] = static_cast<double>(monitor.stride());
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ballast::ThreadPool pool(ballast::UsableCores());
  std::vector<std::unique_ptr<ballast::Subject>> subjects;
  for (int i = 1; i < argc; ++i) {
    auto subject = std::make_unique<ballast::Subject>();
    if (!ballast::Prepare(argv[i], pool, *subject)) {
      std::fprintf(stderr, "%s: expected a model\n", argv[i]);
      return 3;
    }
    ballast::Subject* s = subject.get();
    benchmark::RegisterBenchmark(("step/" + s->name).c_str(), [s](benchmark::State& b) {
      ballast::Step(b, *s);
    })->UseRealTime();
    benchmark::RegisterBenchmark(("monitor/" + s->name).c_str(),
                                 [s](benchmark::State& b) { ballast::Watch(b, *s); });
    subjects.push_back(std::move(subject));
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
