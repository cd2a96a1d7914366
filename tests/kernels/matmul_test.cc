// Matrix products of every weight type, on every instruction set this CPU has, against the definition in
// double; and the law that a row's result depends on that row and the weights only, bit for bit.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "kernels/isa.h"
#include "tensor/block_codes.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

constexpr Compute kModes[] = {Compute::kF32, Compute::kFast};

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (int t = 0; t < kDTypeCount; ++t) types.push_back(static_cast<DType>(t));
  return types;
}

// Runs a test body once per instruction set.
class MatMulOnEveryIsa : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceIsa(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(ForceIsa("").ok()); }
  ThreadPool one_{1};
  ThreadPool three_{3};
};

struct Matrix {
  DType type;
  int64_t rows;
  int64_t cols;
  std::vector<uint8_t> bytes;
  MatrixView view() const { return {type, rows, cols, bytes.data()}; }
};

// Byte offsets of the f16 fields of a block; -1 for none.
struct Halves {
  int first;
  int second;
};
Halves HalvesOf(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108, -1};
    case DType::kQ6_K:
      return {208, -1};
    default:
      return {0, -1};
  }
}

void PutHalf(uint8_t* p, uint16_t bits) { std::memcpy(p, &bits, sizeof(bits)); }

// Every block: random or constant codes, and scales from `half`.
template <typename CodeByte, typename HalfBits>
Matrix Fill(DType type, int64_t rows, int64_t cols, CodeByte code, HalfBits half) {
  Matrix m{type, rows, cols, std::vector<uint8_t>(static_cast<size_t>(rows * RowBytes(type, cols)))};
  for (uint8_t& b : m.bytes) b = code();
  const Halves at = HalvesOf(type);
  const int size = Info(type).block_bytes;
  for (size_t i = 0; i < m.bytes.size(); i += static_cast<size_t>(size)) {
    PutHalf(m.bytes.data() + i + at.first, half(false));
    if (at.second >= 0) PutHalf(m.bytes.data() + i + at.second, half(true));
  }
  return m;
}

Matrix RandomMatrix(DType type, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  if (IsQuantized(type)) {
    return Fill(
        type, rows, cols, [&] { return static_cast<uint8_t>(random()); },
        [&](bool) { return F32ToF16(0.02f * uniform(random)); });
  }
  Matrix m{type, rows, cols, std::vector<uint8_t>(static_cast<size_t>(rows * RowBytes(type, cols)))};
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float v = uniform(random);
    const uint16_t bits = type == DType::kF16 ? F32ToF16(v) : F32ToBF16(v);
    if (type == DType::kF32) {
      std::memcpy(m.bytes.data() + 4 * i, &v, 4);
    } else {
      std::memcpy(m.bytes.data() + 2 * i, &bits, 2);
    }
  }
  return m;
}

std::vector<float> RandomRows(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = normal(random);
  for (size_t i = 0; i < x.size(); i += 97) x[i] *= 30;  // outliers, as activations have
  return x;
}

// The stated quantisation of activations: int8 per block of 32 with scale max|x| / 127.
std::vector<double> AsSeen(const std::vector<float>& x, Compute mode, DType type) {
  std::vector<double> seen(x.begin(), x.end());
  if (mode == Compute::kF32 || !IsQuantized(type)) return seen;
  for (size_t b = 0; b < x.size(); b += 32) {
    float most = 0;
    for (size_t i = b; i < b + 32; ++i) most = std::max(most, std::abs(x[i]));
    const float inverse = most < 1e-35f ? 0 : 127.0f / most;
    for (size_t i = b; i < b + 32; ++i) {
      seen[i] = most < 1e-35f ? 0 : std::nearbyint(x[i] * inverse) * static_cast<double>(most / 127.0f);
    }
  }
  return seen;
}

std::vector<float> Product(const Matrix& m, const std::vector<float>& x, Compute mode, ThreadPool& pool) {
  const int64_t rows = static_cast<int64_t>(x.size()) / m.cols;
  const Weights w = Weights::Pack(m.view(), mode, pool);
  Activations a;
  a.Set(x.data(), rows, m.cols, mode, pool);
  std::vector<float> y(static_cast<size_t>(rows * m.rows), NAN);
  MatMul(w, a, y.data(), m.rows, pool);
  return y;
}

// The weights as they are multiplied. kFast keeps the scales and offsets of K types as f16 in units of a
// power of two per row, the row's largest in [1/2, 1).
struct Multiplied {
  std::vector<float> w;       // (row, column)
  std::vector<double> parts;  // |scale * code| + |offset|: what float adds up
};

Multiplied AsMultiplied(const Matrix& m, Compute mode) {
  Multiplied out;
  out.w.resize(static_cast<size_t>(m.rows * m.cols));
  Dequantize(m.type, m.bytes.data(), m.rows * m.cols, out.w.data());
  for (float w : out.w) out.parts.push_back(std::abs(w));
  if (!IsQuantized(m.type)) return out;
  const int n = Info(m.type).block_elements, sub = CodesOf(m.type).sub;
  const bool rounds = mode == Compute::kFast && n == 256;
  for (int64_t r = 0; r < m.rows; ++r) {
    std::vector<BlockCodes> blocks(static_cast<size_t>(m.cols / n));
    float largest = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      UnpackBlock(m.type, m.view().row(r) + static_cast<int64_t>(b) * Info(m.type).block_bytes, blocks[b]);
      for (int s = 0; s < n / sub; ++s)
        largest = std::max({largest, std::abs(blocks[b].scale[s]), std::abs(blocks[b].offset[s])});
    }
    int exponent = 0;
    std::frexp(largest, &exponent);
    auto kept = [&](float v) {
      return rounds ? std::ldexp(F16ToF32(F32ToF16(std::ldexp(v, -exponent))), exponent) : v;
    };
    for (int64_t c = 0; c < m.cols; ++c) {
      const BlockCodes& block = blocks[static_cast<size_t>(c / n)];
      const int s = static_cast<int>(c % n) / sub;
      const float part = kept(block.scale[s]) * block.code[c % n], offset = kept(block.offset[s]);
      const size_t i = static_cast<size_t>(r * m.cols + c);
      if (rounds) out.w[i] = part + offset;
      out.parts[i] = std::abs(static_cast<double>(part)) + std::abs(offset);
    }
  }
  return out;
}

// Compares with the definition; tolerance relative to the sum of magnitudes of the terms that are added.
void ExpectDefinition(const Matrix& m, const std::vector<float>& x, Compute mode, ThreadPool& pool) {
  const std::vector<float> y = Product(m, x, mode, pool);
  const auto [w, parts] = AsMultiplied(m, mode);
  const std::vector<double> seen = AsSeen(x, mode, m.type);
  for (size_t r = 0; r < x.size() / static_cast<size_t>(m.cols); ++r) {
    for (size_t o = 0; o < static_cast<size_t>(m.rows); ++o) {
      double want = 0, size = 0;
      for (size_t c = 0; c < static_cast<size_t>(m.cols); ++c) {
        const double xv = seen[r * static_cast<size_t>(m.cols) + c];
        want += xv * w[o * static_cast<size_t>(m.cols) + c];
        size += std::abs(xv) * parts[o * static_cast<size_t>(m.cols) + c];
      }
      ASSERT_NEAR(y[r * static_cast<size_t>(m.rows) + o], want, 3e-6 * size + 1e-37)
          << Info(m.type).name << (mode == Compute::kF32 ? " f32 " : " fast ") << m.rows << "x" << m.cols
          << " activation row " << r << " output " << o;
    }
  }
}

TEST_P(MatMulOnEveryIsa, EveryTypeAndRaggedShapeFollowsTheDefinition) {
  for (DType type : AllTypes()) {
    const int block = Info(type).block_elements;
    const std::vector<int64_t> cols = block == 1    ? std::vector<int64_t>{1, 3, 16, 33, 70, 128}
                                      : block == 32 ? std::vector<int64_t>{32, 64, 96, 288}
                                                    : std::vector<int64_t>{256, 512};
    for (int64_t c : cols) {
      for (int64_t rows : {1, 8, 16, 37}) {
        for (int64_t n : {1, 3, 15}) {
          const Matrix m = RandomMatrix(type, rows, c, static_cast<uint32_t>(rows * 1000 + c));
          for (Compute mode : kModes) ExpectDefinition(m, RandomRows(n, c, 5), mode, n == 3 ? three_ : one_);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(MatMulOnEveryIsa, LargestAndSmallestCodesNeverSaturate) {
  for (DType type : AllTypes()) {
    if (!IsQuantized(type)) continue;
    const int64_t cols = 2 * Info(type).block_elements;
    for (int code : {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0}) {
      const Matrix m = Fill(
          type, 19, cols, [&] { return static_cast<uint8_t>(code); },
          [](bool second) { return F32ToF16(second ? -0.75f : 1.5f); });
      for (float sign : {1.0f, -1.0f}) {
        // Every activation quantises to +-127: in two rows of one sign, and one of alternating sign.
        std::vector<float> x(static_cast<size_t>(3 * cols), sign * 2.0f);
        for (size_t i = 1; i < static_cast<size_t>(cols); i += 2) x[i] = -x[i];
        ExpectDefinition(m, x, Compute::kFast, one_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MatMulOnEveryIsa, SubnormalAndLargestHalfScalesAreExact) {
  for (DType type : AllTypes()) {
    if (!IsQuantized(type)) continue;
    for (uint16_t bits : {uint16_t{0x0001}, uint16_t{0x03ff}, uint16_t{0x8001}, uint16_t{0x7bff}}) {
      std::mt19937 random(11);
      const Matrix m = Fill(
          type, 18, Info(type).block_elements, [&] { return static_cast<uint8_t>(random()); },
          [&](bool) { return bits; });
      for (Compute mode : kModes) ExpectDefinition(m, RandomRows(9, m.cols, 2), mode, one_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(MatMulOnEveryIsa, ZeroActivationsAndZeroScalesGiveExactZeros) {
  for (DType type : AllTypes()) {
    const int64_t cols = IsQuantized(type) ? Info(type).block_elements : 40;
    for (Compute mode : kModes) {
      const Matrix random = RandomMatrix(type, 17, cols, 1);
      Matrix zero = random;
      std::fill(zero.bytes.begin(), zero.bytes.end(), uint8_t{0});
      const std::vector<float> nothing(static_cast<size_t>(5 * cols), 0.0f);
      for (float y : Product(random, nothing, mode, one_)) ASSERT_EQ(y, 0.0f) << Info(type).name;
      for (float y : Product(zero, RandomRows(5, cols, 3), mode, one_)) ASSERT_EQ(y, 0.0f) << Info(type).name;
    }
  }
}

TEST_P(MatMulOnEveryIsa, HugeAndTinyActivationsStayFiniteAndRight) {
  for (DType type : AllTypes()) {
    if (!IsQuantized(type)) continue;
    const int64_t cols = Info(type).block_elements;
    std::mt19937 random(4);
    const Matrix m = Fill(
        type, 16, cols, [&] { return static_cast<uint8_t>(random()); },
        [](bool) { return uint16_t{0x0010}; });  // about 1e-6
    for (float size : {3e38f, 1e30f, 1e-30f, 1e-36f, 1e-44f, 0.0f}) {
      std::vector<float> x = RandomRows(2, cols, 8);
      const float most =
          *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
      for (float& v : x) v = v / std::abs(most) * size;
      // Products of 1e38 with K-type scales may overflow in the exact sum too: keep to those that cannot.
      if (size > 1e35f && cols == 256) continue;
      for (Compute mode : kModes) {
        for (float y : Product(m, x, mode, one_)) ASSERT_TRUE(std::isfinite(y)) << Info(type).name << size;
        if (size >= 1e-30f) ExpectDefinition(m, x, mode, one_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MatMulOnEveryIsa, RowsAloneEqualRowsInAnyBatchBitForBit) {
  for (DType type : AllTypes()) {
    const int64_t cols = IsQuantized(type) ? std::max(96, Info(type).block_elements) / 32 * 32 : 83;
    const Matrix m = RandomMatrix(type, 35, cols, 21);
    const std::vector<float> x = RandomRows(70, cols, 22);
    for (Compute mode : kModes) {
      const Weights w = Weights::Pack(m.view(), mode, one_);
      Activations a;
      std::vector<float> alone(static_cast<size_t>(70 * m.rows));
      for (int64_t r = 0; r < 70; ++r) {
        a.Set(x.data() + r * cols, 1, cols, mode, one_);
        MatMul(w, a, alone.data() + r * m.rows, m.rows, one_);
      }
      for (int64_t n = 1; n <= 70; ++n) {
        std::vector<float> y(static_cast<size_t>(n * m.rows), NAN);
        ThreadPool& pool = n % 10 == 0 ? three_ : one_;
        a.Set(x.data() + (70 - n) * cols, n, cols, mode, pool);
        MatMul(w, a, y.data(), m.rows, pool);
        ASSERT_EQ(0, std::memcmp(y.data(), alone.data() + (70 - n) * m.rows, y.size() * sizeof(float)))
            << Info(type).name << (mode == Compute::kF32 ? " f32" : " fast") << " batch of " << n;
      }
    }
  }
}

// Rows with 16 bits of activations are far closer to the exact product than with 8 (1e-3), and the same in
// any batch; the others do not notice.
TEST_P(MatMulOnEveryIsa, FineRowsAreExactAndOthersAsBefore) {
  for (DType type : {DType::kQ4_1, DType::kQ8_0, DType::kQ6_K}) {
    const Matrix m = RandomMatrix(type, 35, 1024, 41);
    const auto [weights, parts] = AsMultiplied(m, Compute::kFast);
    const Weights w = Weights::Pack(m.view(), Compute::kFast, one_);
    std::vector<float> alone;
    for (int64_t rows : {int64_t{1}, int64_t{11}, int64_t{GetParam() == "scalar" ? 20 : 270}}) {
      const std::vector<float> x = RandomRows(rows, m.cols, 42);
      const std::vector<float> plain = Product(m, x, Compute::kFast, one_);
      const std::vector<int64_t> fine =
          rows == 1 ? std::vector<int64_t>{0} : std::vector<int64_t>{0, rows / 2};
      Activations a;
      a.Set(x.data(), rows, m.cols, Compute::kFast, three_, fine);
      std::vector<float> y(plain.size(), NAN);
      MatMul(w, a, y.data(), m.rows, three_);
      if (rows == 1) alone = y;
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin()));
      for (size_t i = 0; i < y.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) / m.rows, o = static_cast<int64_t>(i) % m.rows;
        if (std::find(fine.begin(), fine.end(), row) == fine.end()) {
          ASSERT_EQ(y[i], plain[i]);
          continue;
        }
        double want = 0, size = 0;
        for (int64_t c = 0; c < m.cols; ++c) {
          const double v = x[static_cast<size_t>(row * m.cols + c)];
          const size_t at = static_cast<size_t>(o * m.cols + c);
          want += v * weights[at];
          size += std::abs(v) * parts[at];
        }
        ASSERT_NEAR(y[i], want, 5e-5 * size) << Info(type).name << " row " << row << " output " << o;
      }
    }
  }
}

TEST_P(MatMulOnEveryIsa, ThreadsNeverChangeABit) {
  // Large enough that three threads get many pieces, and that activations come in more than one chunk.
  for (DType type : {DType::kQ4_1, DType::kQ8_0, DType::kF32}) {
    const Matrix m = RandomMatrix(type, 203, 1024, 31);
    const std::vector<float> x = RandomRows(GetParam() == "scalar" ? 20 : 270, 1024, 32);
    for (Compute mode : kModes) EXPECT_EQ(Product(m, x, mode, one_), Product(m, x, mode, three_));
  }
}

TEST_P(MatMulOnEveryIsa, WritesOnlyItsOutputs) {
  for (DType type : {DType::kQ4_0, DType::kQ6_K, DType::kF16}) {
    const Matrix m = RandomMatrix(type, 21, 256, 41);
    const std::vector<float> x = RandomRows(11, 256, 42);
    for (Compute mode : kModes) {
      const std::vector<float> dense = Product(m, x, mode, one_);
      const Weights w = Weights::Pack(m.view(), mode, one_);
      Activations a;
      a.Set(x.data(), 11, 256, mode, one_);
      std::vector<float> y(11 * 29, -7.0f);
      MatMul(w, a, y.data(), 29, one_);
      for (size_t r = 0; r < 11; ++r) {
        for (size_t o = 0; o < 29; ++o) ASSERT_EQ(y[r * 29 + o], o < 21 ? dense[r * 21 + o] : -7.0f);
      }
    }
  }
}

TEST_P(MatMulOnEveryIsa, StoredBytesNeedNoAlignment) {
  // safetensors promises none.
  for (DType type : AllTypes()) {
    Matrix m = RandomMatrix(type, 9, 256, 81);
    for (int64_t n : {1, 6}) {
      const std::vector<float> x = RandomRows(n, 256, 82);
      for (Compute mode : kModes) {
        const std::vector<float> want = Product(m, x, mode, one_);
        std::vector<uint8_t> moved(m.bytes.size() + 1);
        std::copy(m.bytes.begin(), m.bytes.end(), moved.begin() + 1);
        const Weights w = Weights::Pack({type, 9, 256, moved.data() + 1}, mode, one_);
        Activations a;
        a.Set(x.data(), n, 256, mode, one_);
        std::vector<float> y(static_cast<size_t>(n * 9));
        MatMul(w, a, y.data(), 9, one_);
        EXPECT_EQ(y, want) << Info(type).name;
      }
    }
  }
}

std::string IsaTestName(const ::testing::TestParamInfo<std::string>& isa) {
  std::string name = isa.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Isa, MatMulOnEveryIsa, ::testing::ValuesIn(SupportedIsas()), IsaTestName);

TEST(Weights, FastWeightsOutliveTheStoredBytes) {
  ThreadPool pool(1);
  for (DType type : AllTypes()) {
    Matrix m = RandomMatrix(type, 20, 256, 51);
    const std::vector<float> x = RandomRows(2, 256, 52);
    const std::vector<float> want = Product(m, x, Compute::kFast, pool);
    const Weights w = Weights::Pack(m.view(), Compute::kFast, pool);
    std::vector<uint8_t>().swap(m.bytes);
    Activations a;
    a.Set(x.data(), 2, 256, Compute::kFast, pool);
    std::vector<float> y(40);
    MatMul(w, a, y.data(), 20, pool);
    EXPECT_EQ(y, want) << Info(type).name;
    EXPECT_EQ(w.rows(), 20);
    EXPECT_EQ(w.cols(), 256);
  }
}

TEST(Weights, RowsComeBackAsTheyWereStored) {
  ThreadPool pool(1);
  for (DType type : AllTypes()) {
    const Matrix m = RandomMatrix(type, 20, 512, 53);
    for (Compute mode : kModes) {
      const Weights w = Weights::Pack(m.view(), mode, pool);
      const std::vector<float> all = AsMultiplied(m, mode).w;
      EXPECT_EQ(w.dtype(), type);
      for (int64_t r : {0, 1, 15, 16, 19}) {
        const std::vector<float> want(all.begin() + r * 512, all.begin() + (r + 1) * 512);
        std::vector<float> row(512, NAN);
        w.Row(r, row.data());
        float most = 0;
        for (float v : want) most = std::max(most, std::abs(v));
        // Some formats multiply their scales in another order.
        for (int i = 0; i < 512; ++i)
          ASSERT_NEAR(row[i], want[i], 1e-6f * most) << Info(type).name << " row " << r;
        if (type == DType::kQ8_0 || type == DType::kQ4_1) {
          EXPECT_EQ(row, want);
        }
      }
    }
  }
}

// Bits per weight: what decode reads.
TEST(Weights, FewBitsStayFewInMemory) {
  ThreadPool pool(1);
  const std::pair<DType, double> bits[] = {
      {DType::kQ4_0, 4.5}, {DType::kQ4_1, 5}, {DType::kQ4_K, 5},   {DType::kQ5_0, 5.5}, {DType::kQ5_1, 6},
      {DType::kQ5_K, 6},   {DType::kQ6_K, 7}, {DType::kQ8_0, 8.5}, {DType::kQ3_K, 5},   {DType::kQ2_K, 6}};
  for (const auto& [type, per_weight] : bits) {
    const Matrix m = RandomMatrix(type, 64, 1024, 1);
    const double units = Info(type).block_elements == 256 ? 64 * 4 : 0;
    EXPECT_EQ(static_cast<double>(Weights::Pack(m.view(), Compute::kFast, pool).bytes()),
              64 * 1024 * per_weight / 8 + units)
        << Info(type).name;
    EXPECT_EQ(Weights::Pack(m.view(), Compute::kF32, pool).bytes(), 64 * RowBytes(type, 1024));
  }
}

TEST(Activations, AreReusedForSmallerAndLargerBatchesAndOtherWidths) {
  ThreadPool pool(1);
  Activations a;
  for (int64_t n : {3, 9, 1, 20}) {
    for (int64_t cols : {64, 32, 320}) {
      const Matrix m = RandomMatrix(DType::kQ5_0, 16, cols, 61);
      const std::vector<float> x = RandomRows(n, cols, 62);
      const Weights w = Weights::Pack(m.view(), Compute::kFast, pool);
      a.Set(x.data(), n, cols, Compute::kFast, pool);
      std::vector<float> y(static_cast<size_t>(n * 16));
      MatMul(w, a, y.data(), 16, pool);
      EXPECT_EQ(y, Product(m, x, Compute::kFast, pool));
    }
  }
}

TEST(Activations, QuantisingOneWeightMatrixKeepsQualityOfTheProduct) {
  // int8 activations cost about one percent of the product's size on Gaussian data with outliers of 30 sigma.
  ThreadPool pool(1);
  const Matrix m = RandomMatrix(DType::kQ4_1, 64, 1024, 71);
  const std::vector<float> x = RandomRows(8, 1024, 72);
  const std::vector<float> exact = Product(m, x, Compute::kF32, pool),
                           fast = Product(m, x, Compute::kFast, pool);
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(exact[i] - fast[i], 2);
    size += std::pow(exact[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.02);
  EXPECT_GT(error, 0);  // else kFast is not what ran
}

TEST(Isa, ForcingOneTakesEffectAndEmptyRestoresTheBest) {
  const std::vector<std::string> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(CurrentIsa(), isas.front());
  for (const std::string& isa : isas) {
    ASSERT_TRUE(ForceIsa(isa).ok());
    EXPECT_EQ(CurrentIsa(), isa);
    EXPECT_EQ(SupportedIsas(), isas);
  }
  ASSERT_TRUE(ForceIsa("").ok());
  EXPECT_EQ(CurrentIsa(), isas.front());
}

TEST(Isa, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Status status = ForceIsa("mmx");
  EXPECT_EQ(status.code(), Code::kUsage);
  EXPECT_NE(status.message().find(SupportedIsas().back()), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("found mmx"), std::string::npos) << status.message();
  EXPECT_EQ(CurrentIsa(), SupportedIsas().front());
}

}  // namespace
}  // namespace ballast
