#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention_item.h"
#include "kernels/isa.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

// One span's keys and values with room around it, filled with bytes that read as NaN (f32, f16; in q8 the
// scales do) so that a kernel that looks too far is found out.
class SpanStore {
 public:
  SpanStore(KvType type, int kv_heads, int dim, int64_t count, std::mt19937& generator, float size) {
    std::normal_distribution<float> normal(0, size);
    const int64_t first = static_cast<int64_t>(generator() % 130), rows = first + count + 3;
    std::vector<float> row(dim);
    for (int side = 0; side < 2; ++side) {
      const size_t bytes = static_cast<size_t>(KvBufferBytes(type, kv_heads, dim, rows));
      memory_[side].resize(bytes / 64 + 1);
      std::memset(memory_[side].data(), 0xff, bytes);
      buffer_[side] = MakeKvBuffer(type, side == 0 ? KvSide::kKeys : KvSide::kValues, kv_heads, dim, rows,
                                   memory_[side].data()->bytes);
      for (int h = 0; h < kv_heads; ++h) {
        for (int64_t r = 0; r < count; ++r) {
          for (float& v : row) v = normal(generator);
          EncodeKvRow(buffer_[side], h, first + r, row.data());
        }
      }
    }
    span_.count = count;
    span_.k = buffer_[0].View(first);
    span_.v = buffer_[1].View(first);
  }
  SpanStore(const SpanStore&) = delete;
  KvSpan At(int64_t first_position, bool pinned) const {
    KvSpan span = span_;
    span.first_position = first_position;
    span.pinned = span.counted = pinned;
    return span;
  }
  const KvBuffer& keys() const { return buffer_[0]; }
  const KvBuffer& values() const { return buffer_[1]; }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> memory_[2];
  KvBuffer buffer_[2];
  KvSpan span_;
};

// Element i of row `row` of head `head`.
double Element(KvType type, KvSide side, const KvRows& rows, int head, int64_t row, int dim, int i) {
  const int64_t at = head * rows.head_stride + rows.first + row;
  if (type == KvType::kF32) {
    float value;
    std::memcpy(&value, rows.data + 4 * (at * dim + i), 4);
    return value;
  }
  if (type == KvType::kF16) {
    uint16_t bits;
    std::memcpy(&bits, rows.data + 2 * (at * dim + i), 2);
    return F16ToF32(bits);
  }
  // at / 64 * 64 rows of whole tiles, then the place in the tile.
  const int64_t width = (dim + 15) / 16 * 16, k = at % 64;
  const uint8_t* tile = rows.data + (at - k) * width;
  const int byte = side == KvSide::kKeys ? tile[(i / 4 * 64 + k) * 4 + i % 4] - 128
                                         : static_cast<int8_t>(tile[(k / 4 * width + i) * 4 + k % 4]);
  return double{rows.scale[at]} * byte;
}

// A call: its queries, spans and, after Run, its results.
struct Call {
  AttentionShape shape;
  std::vector<KvSpan> spans;
  std::vector<float> window, pinned;  // (row, head, dim)
  std::vector<int64_t> position, start, in_cache;
  std::vector<float> out, mass;

  int64_t rows() const { return static_cast<int64_t>(position.size()); }
  void RandomQueries(int64_t n, float size, std::mt19937& generator) {
    std::normal_distribution<float> normal(0, size);
    window.resize(n * shape.heads * shape.head_dim);
    pinned.resize(window.size());
    for (float& v : window) v = normal(generator);
    for (float& v : pinned) v = normal(generator);
  }
  void Run(int threads = 1) {
    ThreadPool pool(threads);
    AttentionScratch scratch;
    Run(scratch, pool, 0, rows());
  }
  // Only rows [begin, end).
  void Run(AttentionScratch& scratch, ThreadPool& pool, int64_t begin, int64_t end) {
    const int64_t row = int64_t{shape.heads} * shape.head_dim;
    out.resize(rows() * row, -7.0f);
    mass.resize(rows() * shape.heads, -7.0f);
    const AttentionQueries q{end - begin,
                             window.data() + begin * row,
                             pinned.data() + begin * row,
                             position.data() + begin,
                             start.data() + begin,
                             in_cache.empty() ? nullptr : in_cache.data() + begin};
    const AttentionJob job{shape, q, spans, out.data() + begin * row, mass.data() + begin * shape.heads};
    Attention({&job, 1}, scratch, pool);
  }
};

// The query as the kernel in use takes it: the integer kernel rounds it to 8 bits of its largest value.
std::vector<double> Rounded(const AttentionShape& shape, KvType kv, const float* x) {
  std::vector<double> q(x, x + shape.head_dim);
  if (!attention::UsesIntegers(shape, kv)) return q;
  float max = 0;
  for (int i = 0; i < shape.head_dim; ++i) max = std::max(max, std::abs(x[i]));
  if (max == 0) return q;
  for (int i = 0; i < shape.head_dim; ++i)
    q[i] = double{max / 127.0f} * std::nearbyint(x[i] * (127.0f / max));
  return q;
}

// The definition, in double.
void Define(const Call& call, int64_t row, int head, std::vector<double>& out, double& mass) {
  const AttentionShape& shape = call.shape;
  const int dim = shape.head_dim, kv_head = head / (shape.heads / shape.kv_heads);
  struct Key {
    double score;
    const KvSpan* span;
    int64_t row;
  };
  std::vector<Key> keys;
  double max = -std::numeric_limits<double>::infinity();
  for (const KvSpan& span : call.spans) {
    const std::vector<float>& queries = span.pinned ? call.pinned : call.window;
    const std::vector<double> q = Rounded(shape, span.pinned ? shape.pinned_kv : shape.kv,
                                          queries.data() + (row * shape.heads + head) * dim);
    for (int64_t k = 0; k < span.count; ++k) {
      const int64_t p = span.first_position + k;
      if (p > call.position[row] || (!span.pinned && p < call.start[row])) continue;
      double score = 0;
      for (int i = 0; i < dim; ++i)
        score += q[i] *
                 Element(span.pinned ? shape.pinned_kv : shape.kv, KvSide::kKeys, span.k, kv_head, k, dim, i);
      score *= shape.scale;
      if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
      if (shape.slopes != nullptr)
        score -= double{shape.slopes[head]} *
                 static_cast<double>((span.pinned ? call.in_cache[row] : call.position[row]) - p);
      keys.push_back({score, &span, k});
      max = std::max(max, keys.back().score);
    }
  }
  double sum = 0, pinned = 0;
  out.assign(dim, 0);
  for (const Key& key : keys) {
    const double w = std::exp(key.score - max);
    sum += w;
    pinned += key.span->pinned ? w : 0;
    for (int i = 0; i < dim; ++i)
      out[i] += w * Element(key.span->pinned ? shape.pinned_kv : shape.kv, KvSide::kValues, key.span->v,
                            kv_head, key.row, dim, i);
  }
  for (double& v : out) v /= keys.empty() ? 1 : sum;
  mass = keys.empty() ? 0 : pinned / sum;
}

// Of values, their root mean square, and of the sink mass.
struct Tolerance {
  double worst, rms, mass;
};
constexpr Tolerance Within(double all) { return {all, all, all}; }

void ExpectDefinition(const Call& call, const Tolerance& tolerance) {
  const AttentionShape& shape = call.shape;
  std::vector<double> expected;
  double mass = 0, worst = 0, worst_mass = 0, squares = 0;
  for (int64_t row = 0; row < call.rows(); ++row) {
    for (int head = 0; head < shape.heads; ++head) {
      Define(call, row, head, expected, mass);
      const int64_t at = row * shape.heads + head;
      for (int i = 0; i < shape.head_dim; ++i) {
        const double error = std::abs(call.out[at * shape.head_dim + i] - expected[i]);
        worst = std::max(worst, std::isnan(error) ? 1e9 : error);
        squares += error * error;
      }
      worst_mass = std::max(worst_mass, std::abs(call.mass[at] - mass));
      ASSERT_GE(call.mass[at], 0);
      ASSERT_LE(call.mass[at], 1);
    }
  }
  EXPECT_LT(worst, tolerance.worst);
  EXPECT_LT(std::sqrt(squares / static_cast<double>(call.out.size())), tolerance.rms);
  EXPECT_LT(worst_mass, tolerance.mass);
}

// Values are of size 1. kF32 errs by float rounding; kFast with q8 rounds weights to 8 bits, without VNNI to
// 15; its rounded queries are part of the definition.
bool HasVnni() { return CurrentIsa().ends_with("-vnni"); }
Tolerance ToleranceOf(const AttentionShape& shape) {
  if (shape.compute != Compute::kFast || shape.kv != KvType::kQ8) return Within(5e-6);
  return HasVnni() ? Tolerance{0.04, 0.008, 2e-4} : Within(4e-4);
}

// A stream somewhere past its roll-over: pinned rows, a ring in one or two spans, and the chunk of the
// queries' own keys. Some windows start inside the chunk, some before everything that is left.
Call RandomCall(AttentionShape shape, int64_t rows, int64_t ring, std::deque<SpanStore>& stores,
                std::mt19937& generator) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(n)); };
  Call call;
  shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  call.shape = shape;
  const auto add = [&](int64_t count, int64_t position, bool pinned) {
    stores.emplace_back(pinned ? shape.pinned_kv : shape.kv, shape.kv_heads, shape.head_dim, count, generator,
                        1.0f);
    call.spans.push_back(stores.back().At(position, pinned));
  };
  const int64_t base = 1000000000000, sinks = below(3) == 0 ? 0 : 1 + below(70);
  if (sinks > 0) add(sinks, 0, true);
  const int64_t first = below(ring + 1);
  if (first > 0) add(first, base, false);
  if (ring > first) add(ring - first, base + first, false);
  add(rows, base + ring, false);
  call.RandomQueries(rows, 2.0f, generator);
  for (int64_t r = 0; r < rows; ++r) {
    call.position.push_back(base + ring + r);
    call.start.push_back(below(4) == 0 ? base - 5 : base + below(ring + r + 1));
  }
  return call;
}

class AttentionTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceIsa(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(ForceIsa("").ok()); }
};

struct Sizes {
  int heads, kv_heads, dim;
  int64_t rows, ring;
};

TEST_P(AttentionTest, MatchesTheDefinition) {
  const Sizes kSizes[] = {{9, 3, 64, 1, 300},  {9, 3, 64, 70, 100}, {1, 1, 8, 5, 40},   {4, 1, 256, 1, 130},
                          {4, 4, 80, 3, 90},   {6, 2, 96, 9, 70},   {8, 1, 128, 2, 65}, {16, 2, 24, 3, 64},
                          {14, 2, 64, 1, 128}, {5, 5, 72, 1, 1},    {2, 1, 16, 130, 0}, {64, 64, 16, 1, 33}};
  std::mt19937 generator(1);
  AttentionScratch scratch;  // shared by all: what one call leaves must not matter to the next
  ThreadPool pool(2);
  // The cache keeps pinned rows finer than q8 ones.
  const std::pair<KvType, KvType> kTypes[] = {{KvType::kF32, KvType::kF32},
                                              {KvType::kF16, KvType::kF16},
                                              {KvType::kQ8, KvType::kQ8},
                                              {KvType::kQ8, KvType::kF16}};
  for (const auto& [kv, pinned_kv] : kTypes) {
    for (Compute compute : {Compute::kF32, Compute::kFast}) {
      for (const Sizes& s : kSizes) {
        std::deque<SpanStore> stores;
        Call call = RandomCall({s.heads, s.kv_heads, s.dim, 0, kv, compute, pinned_kv}, s.rows, s.ring,
                               stores, generator);
        call.Run(scratch, pool, 0, call.rows());
        SCOPED_TRACE(testing::Message()
                     << KvTypeName(kv) << " " << static_cast<int>(compute) << " heads " << s.heads << "/"
                     << s.kv_heads << " dim " << s.dim << " rows " << s.rows);
        ExpectDefinition(call, ToleranceOf(call.shape));
        // Windows that begin before everything: whole blocks of keys that all rows see.
        std::fill(call.start.begin(), call.start.end(), 0);
        call.Run(scratch, pool, 0, call.rows());
        ExpectDefinition(call, ToleranceOf(call.shape));
      }
    }
  }
}

// Soft-capped scores (Gemma 2), and ALiBi (MPT), whose distances to pinned keys are those inside the cache.
TEST_P(AttentionTest, SoftCapsAndAlibiMatchTheirDefinition) {
  std::mt19937 generator(9);
  const std::vector<float> slopes = {0.5f, 0.25f, 0.0625f, 0.01f, 0.003f, 1.0f};
  for (KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (Compute compute : {Compute::kF32, Compute::kFast}) {
      for (int64_t rows : {1, 40}) {
        for (int mode = 0; mode < 3; ++mode) {
          std::deque<SpanStore> stores;
          Call call = RandomCall({6, 2, 64, 0, kv, compute}, rows, 200, stores, generator);
          if (mode != 1) call.shape.softcap = 5;
          if (mode != 0) call.shape.slopes = slopes.data();
          for (int64_t r = 0; r < rows; ++r) call.in_cache.push_back(270 + r);
          call.Run();
          SCOPED_TRACE(testing::Message() << KvTypeName(kv) << " rows " << rows << " mode " << mode);
          // Distances up to some hundreds times a slope of 1: float keeps them to 3e-5.
          Tolerance tolerance = ToleranceOf(call.shape);
          tolerance.worst += 2e-4, tolerance.rms += 2e-4, tolerance.mass += 2e-4;
          ExpectDefinition(call, tolerance);
        }
      }
    }
  }
}

// A prompt larger than the window, fed at once, must equal feeding it token by token.
TEST_P(AttentionTest, ManyRowsEqualOneRowAtATime) {
  std::mt19937 generator(2);
  ThreadPool pool(1);
  AttentionScratch scratch;
  for (KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (Compute compute : {Compute::kF32, Compute::kFast}) {
      std::deque<SpanStore> stores;
      Call call = RandomCall({6, 2, 64, 0, kv, compute}, 40, 200, stores, generator);
      Call single = call;
      call.Run();
      for (int64_t r = 0; r < call.rows(); ++r) single.Run(scratch, pool, r, r + 1);
      const bool rounds = compute == Compute::kFast && kv == KvType::kQ8;
      // A weight of bytes may be rounded the other way: a step of 255, of values up to 4.
      const double rounding = HasVnni() ? 4.0 / 255 : 4e-4;
      for (size_t i = 0; i < call.out.size(); ++i) {
        // Another order of the float sums: 1e-6 of the largest values, which are about 4.
        ASSERT_NEAR(call.out[i], single.out[i], rounds ? rounding : 4e-6) << i;
      }
      for (size_t i = 0; i < call.mass.size(); ++i)
        ASSERT_NEAR(call.mass[i], single.mass[i], rounds ? (HasVnni() ? 1e-4 : 4e-4) : 2e-6) << i;
    }
  }
}

TEST_P(AttentionTest, ThreadsDoNotChangeOneBit) {
  std::mt19937 generator(3);
  for (KvType kv : {KvType::kF16, KvType::kQ8}) {
    for (int64_t rows : {1, 2, 100}) {
      std::deque<SpanStore> stores;
      Call call = RandomCall({9, 3, 64, 0, kv, Compute::kFast}, rows, 700, stores, generator);
      call.Run(1);
      for (int threads : {2, 3}) {
        Call other = call;
        other.Run(threads);
        EXPECT_EQ(other.out, call.out) << rows << " rows, " << threads << " threads";
        EXPECT_EQ(other.mass, call.mass);
      }
    }
  }
}

// A fully masked row must not spread inf or NaN.
TEST_P(AttentionTest, AQueryThatSeesNothingGivesZeros) {
  std::mt19937 generator(4);
  for (KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (Compute compute : {Compute::kF32, Compute::kFast}) {
      std::deque<SpanStore> stores;
      Call call = RandomCall({4, 2, 64, 0, kv, compute}, 30, 100, stores, generator);
      if (call.spans.front().pinned) call.spans.erase(call.spans.begin());
      call.start[7] = call.position[7] + 1;                   // its window is empty
      call.position[12] = call.start[12] = 5;                 // before all keys
      call.position[20] = call.start[20] = int64_t{1} << 50;  // after all keys
      call.Run();
      for (int64_t row : {7, 12, 20}) {
        for (int i = 0; i < 4 * 64; ++i) ASSERT_EQ(call.out[row * 4 * 64 + i], 0);
        for (int h = 0; h < 4; ++h) ASSERT_EQ(call.mass[row * 4 + h], 0);
      }
      ExpectDefinition(call, ToleranceOf(call.shape));
      call.spans.clear();
      call.Run();
      EXPECT_EQ(call.out, std::vector<float>(call.out.size(), 0.0f));
      EXPECT_EQ(call.mass, std::vector<float>(call.mass.size(), 0.0f));
    }
  }
}

TEST_P(AttentionTest, HugeScoresStayFinite) {
  std::mt19937 generator(5);
  for (KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (Compute compute : {Compute::kF32, Compute::kFast}) {
      // Scores of +-1e3 (a peaked softmax), 1e20, and past float (inf).
      for (float size : {1e3f, 1e20f, 1e37f}) {
        std::deque<SpanStore> stores;
        Call call = RandomCall({3, 1, 64, 0, kv, compute}, 12, 300, stores, generator);
        call.RandomQueries(call.rows(), size, generator);
        if (size > 1e36f) call.shape.scale = 1e3f;
        for (bool all : {false, true}) {  // in the end, rows that see whole blocks
          if (all) std::fill(call.start.begin(), call.start.end(), 0);
          call.Run();
          for (float v : call.out) {
            ASSERT_TRUE(std::isfinite(v));
            ASSERT_LT(std::abs(v), 8);
          }
          for (float m : call.mass) ASSERT_TRUE(m >= 0 && m <= 1);
        }
      }
    }
  }
}

// A lone key has all the weight, however low it scores.
TEST_P(AttentionTest, ALoneKeyIsTheAnswerWhateverItsScore) {
  std::mt19937 generator(8);
  for (KvType kv : {KvType::kF32, KvType::kQ8}) {
    std::deque<SpanStore> stores;
    Call call;
    call.shape = {1, 1, 64, 1.0f, kv, Compute::kFast};
    stores.emplace_back(kv, 1, 64, 1, generator, 1.0f);
    call.spans = {stores.back().At(9, true)};
    for (float size : {-1e2f, -1e20f, -1e30f, -1e36f, 1e36f}) {
      call.pinned.clear();
      for (int i = 0; i < 64; ++i) {
        const double key = Element(kv, KvSide::kKeys, call.spans[0].k, 0, 0, 64, i);
        call.pinned.push_back(key < 0 ? -size : size);
      }
      call.window = call.pinned;
      call.position = {10};
      call.start = {10};
      call.Run();
      ExpectDefinition(call, Within(1e-4));
      EXPECT_FLOAT_EQ(call.mass[0], 1);
    }
  }
}

// 8 bits of weight, each rounded to the nearest, would lose a tail like this: one key takes half, four
// thousand share the rest.
TEST_P(AttentionTest, AFlatTailBehindASinkKeepsItsMass) {
  constexpr int kDim = 64;
  constexpr int64_t kTail = 4000;
  for (KvType kv : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    std::mt19937 generator(10);
    const SpanStore store(kv, 1, kDim, kTail + 1, generator, 1.0f);
    const KvSpan all = store.At(0, false);
    for (int64_t r = 0; r <= kTail; ++r) {
      std::vector<float> key(kDim), value(kDim, r == 0 ? 0.0f : 1.0f);
      key[0] = r == 0 ? std::log(static_cast<float>(kTail)) : 0.0f;
      EncodeKvRow(store.keys(), 0, all.k.first + r, key.data());
      EncodeKvRow(store.values(), 0, all.v.first + r, value.data());
    }
    Call call;
    call.shape = {1, 1, kDim, 1.0f, kv, Compute::kFast};
    call.window.assign(kDim, 1.0f);
    call.pinned = call.window;
    call.position = {kTail};
    call.start = {0};
    // In one span, so that sink and tail share a block of keys.
    call.spans = {all};
    call.Run();
    for (float x : call.out) EXPECT_NEAR(x, 0.5f, kv == KvType::kF16 ? 2e-3 : 1e-3);
    // And apart: the sink mass is the sink's share.
    KvSpan sink = call.spans[0], tail = call.spans[0];
    sink.count = 1;
    sink.pinned = sink.counted = true;
    tail.count = kTail;
    tail.first_position = 1;
    tail.k.first += 1;
    tail.v.first += 1;
    call.spans = {sink, tail};
    call.Run();
    EXPECT_NEAR(call.mass[0], 0.5f, 1e-3);
  }
}

TEST_P(AttentionTest, SinkMassIsOneWithPinnedKeysOnly) {
  std::mt19937 generator(6);
  std::deque<SpanStore> stores;
  Call call;
  call.shape = {6, 2, 64, 0.125f, KvType::kQ8, Compute::kFast};
  stores.emplace_back(KvType::kQ8, 2, 64, 4, generator, 1.0f);
  call.spans = {stores.back().At(0, true)};
  call.RandomQueries(3, 2.0f, generator);
  call.position = {1, 3, 900};  // the first sees two of the four
  call.start = {0, 4, 800};
  call.Run();
  for (float m : call.mass) EXPECT_NEAR(m, 1, 1e-6);
  ExpectDefinition(call, HasVnni() ? ToleranceOf(call.shape) : Within(2e-4));
}

TEST_P(AttentionTest, EncodeF16RoundsToNearestEven) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = F16ToF32(static_cast<uint16_t>(bits));
    const float high = bits == 0x7bff ? 65536.0f : F16ToF32(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    for (float v : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      if (v < 65520.0f) x.push_back(bits % 2 ? v : -v);
    }
  }
  x.resize(x.size() / 8 * 8);
  std::vector<uint16_t> out(x.size());
  EncodeKvRows(KvType::kF16, x.data(), static_cast<int64_t>(x.size()) / 8, 8,
               reinterpret_cast<uint8_t*>(out.data()), nullptr);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], F32ToF16(x[i])) << x[i];
  // An infinite key would turn every score into NaN: too large saturates.
  const float large[8] = {65520.0f, -65520.0f, 1e30f, -1e30f, 65504.0f, 70000.0f, 0, 1};
  EncodeKvRows(KvType::kF16, large, 1, 8, reinterpret_cast<uint8_t*>(out.data()), nullptr);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(std::abs(F16ToF32(out[i])), 65504.0f);
}

TEST_P(AttentionTest, EncodeQ8ScalesByTheLargestOfTheRow) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0, 1);
  for (int dim : {8, 24, 64, 80, 256}) {
    std::vector<float> x(4 * dim);
    for (float& v : x) v = normal(generator);
    std::fill(x.begin() + dim, x.begin() + 2 * dim, 0.0f);  // row of zeros
    for (int i = 0; i < dim; ++i) x[2 * dim + i] *= 1e-20f;
    for (int i = 0; i < dim; ++i) x[3 * dim + i] *= 1e20f;
    std::vector<int8_t> data(x.size());
    std::vector<float> scale(4, -1.0f);
    EncodeKvRows(KvType::kQ8, x.data(), 4, dim, reinterpret_cast<uint8_t*>(data.data()), scale.data());
    EXPECT_EQ(scale[1], 0);
    for (int r = 0; r < 4; ++r) {
      float max = 0;
      int largest = 0;
      for (int i = 0; i < dim; ++i) {
        max = std::max(max, std::abs(x[r * dim + i]));
        largest = std::max(largest, std::abs(int{data[r * dim + i]}));
        EXPECT_NEAR(double{scale[r]} * data[r * dim + i], x[r * dim + i], 0.50001 * scale[r]);
      }
      EXPECT_FLOAT_EQ(scale[r], max / 127);
      EXPECT_EQ(largest, max > 0 ? 127 : 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttentionTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ballast
