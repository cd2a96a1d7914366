// One kernel at a time, one thread, on the shapes of SmolLM2-135M (576 wide, 9/3 heads of 64, MLP 1536).
//
//   make bench-kernels          (BALLAST_ISA=avx2 ... to see another instruction set)
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "base/mmap.h"
#include "kernels/attention.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "kernels/rope.h"

namespace ballast {
namespace {

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(generator);
  return x;
}

// Weights of `type` with random bytes: what they are does not change how long they take.
std::vector<uint8_t> RandomWeights(DType type, int64_t rows, int64_t cols) {
  const DTypeInfo info = Info(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * cols / info.block_elements * info.block_bytes));
  std::mt19937 generator(1);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(generator() & 0x3f);  // no huge or infinite scales
  return bytes;
}

// y = x W^T, `rows` rows of activations; 1 is decode, 8 a batch, 512 a prompt.
void MatMulBench(benchmark::State& state, DType type) {
  const int64_t rows = state.range(0), outputs = 1536,
                cols = type == DType::kQ6_K || type == DType::kQ4_K ? 512 : 576;
  ThreadPool pool(1);
  const std::vector<uint8_t> bytes = RandomWeights(type, outputs, cols);
  const Weights w = Weights::Pack({type, outputs, cols, bytes.data()}, Compute::kFast, pool);
  const std::vector<float> x = Normal(rows * cols, 2);
  std::vector<float> y(static_cast<size_t>(rows * outputs));
  Activations activations;
  activations.Set(x.data(), rows, cols, Compute::kFast, pool);
  for (auto _ : state) {
    MatMul(w, activations, y.data(), outputs, pool);
    benchmark::ClobberMemory();
  }
  state.counters["GOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(rows * outputs * cols),
                                               benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(w.bytes()),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

// Queries of `rows` tokens over `keys` cached ones.
void AttentionBench(benchmark::State& state, KvType kv) {
  constexpr int kHeads = 9, kKvHeads = 3, kDim = 64;
  const int64_t rows = state.range(0), keys = state.range(1);
  const std::vector<float> source = Normal(keys * kDim, 3);
  const int64_t bytes = KvBufferBytes(kv, kKvHeads, kDim, keys);
  Result<Arena> memory = Arena::Allocate(static_cast<size_t>(2 * bytes));
  const KvBuffer k = MakeKvBuffer(kv, KvSide::kKeys, kKvHeads, kDim, keys, memory->data());
  const KvBuffer v = MakeKvBuffer(kv, KvSide::kValues, kKvHeads, kDim, keys, memory->data() + bytes);
  for (int h = 0; h < kKvHeads; ++h) {
    for (int64_t r = 0; r < keys; ++r) {
      EncodeKvRow(k, h, r, source.data() + r * kDim);
      EncodeKvRow(v, h, r, source.data() + r * kDim);
    }
  }
  KvSpan span;
  span.k = k.View(0);
  span.v = v.View(0);
  span.count = keys;
  const std::vector<float> q = Normal(rows * kHeads * kDim, 4);
  std::vector<float> out(q.size()), mass(static_cast<size_t>(rows * kHeads));
  std::vector<int64_t> position(static_cast<size_t>(rows), keys - 1), start(static_cast<size_t>(rows), 0);
  AttentionShape shape;
  shape.heads = kHeads;
  shape.kv_heads = kKvHeads;
  shape.head_dim = kDim;
  shape.scale = 0.125f;
  shape.kv = shape.pinned_kv = kv;
  shape.compute = Compute::kFast;
  AttentionQueries queries;
  queries.rows = rows;
  queries.window = queries.pinned = q.data();
  queries.position = position.data();
  queries.start = start.data();
  const AttentionJob job{shape, queries, {&span, 1}, out.data(), mass.data()};
  AttentionScratch scratch;
  ThreadPool pool(1);
  for (auto _ : state) {
    Attention({&job, 1}, scratch, pool);
    benchmark::ClobberMemory();
  }
  state.counters["ns/key"] =
      benchmark::Counter(1e-9 * static_cast<double>(rows * keys * kKvHeads),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void QuantiseBench(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = 576;
  const std::vector<float> x = Normal(rows * cols, 5);
  Activations activations;
  ThreadPool pool(1);
  for (auto _ : state) {
    activations.Set(x.data(), rows, cols, Compute::kFast, pool);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * rows * cols);
}

void RmsNormBench(benchmark::State& state) {
  std::vector<float> x = Normal(576, 6);
  const std::vector<float> w = Normal(576, 7);
  std::vector<float> out(576);
  for (auto _ : state) {
    RmsNorm(x.data(), w.data(), 576, 1e-5f, out.data());
    benchmark::ClobberMemory();
  }
}

void MixBench(benchmark::State& state) {
  std::vector<float> x = Normal(9 * 64, 8);
  for (auto _ : state) {
    Mix(x.data(), 9, 64);
    benchmark::ClobberMemory();
  }
}

void SiluMulBench(benchmark::State& state) {
  const std::vector<float> gate = Normal(1536, 9), up = Normal(1536, 10);
  std::vector<float> out(1536);
  for (auto _ : state) {
    ActivateMul(Activation::kSilu, gate.data(), up.data(), 1536, out.data());
    benchmark::ClobberMemory();
  }
}

BENCHMARK_CAPTURE(MatMulBench, Q4_1, DType::kQ4_1)->Arg(1)->Arg(4)->Arg(8)->Arg(16)->Arg(512);
BENCHMARK_CAPTURE(MatMulBench, Q4_0, DType::kQ4_0)->Arg(1)->Arg(512);
BENCHMARK_CAPTURE(MatMulBench, Q5_0, DType::kQ5_0)->Arg(1)->Arg(512);
BENCHMARK_CAPTURE(MatMulBench, Q8_0, DType::kQ8_0)->Arg(1)->Arg(512);
BENCHMARK_CAPTURE(MatMulBench, Q4_K, DType::kQ4_K)->Arg(1)->Arg(512);
BENCHMARK_CAPTURE(MatMulBench, Q6_K, DType::kQ6_K)->Arg(1)->Arg(512);
BENCHMARK_CAPTURE(AttentionBench, q8, KvType::kQ8)->Args({1, 1024})->Args({1, 8192})->Args({256, 1024});
BENCHMARK_CAPTURE(AttentionBench, f16, KvType::kF16)->Args({1, 1024})->Args({1, 8192})->Args({256, 1024});
BENCHMARK(QuantiseBench)->Arg(1)->Arg(512);
BENCHMARK(RmsNormBench);
BENCHMARK(MixBench);
BENCHMARK(SiluMulBench);

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  if (const char* isa = std::getenv("BALLAST_ISA"); isa != nullptr) {
    if (const ballast::Status status = ballast::ForceIsa(isa); !status.ok()) return 2;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("instruction set", ballast::CurrentIsa());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
