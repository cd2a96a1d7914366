#include "kernels/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/isa.h"
#include "kernels/logits.h"

namespace ballast {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Whole vectors of every width, and every kind of rest.
constexpr int64_t kSizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 100, 576, 1001};

std::vector<float> Normal(int64_t n, float scale, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(generator);
  return x;
}

class Ops : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceIsa(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(ForceIsa("").ok()); }
};

TEST_P(Ops, DotIsTheSumOfProducts) {
  for (int64_t n : kSizes) {
    const auto x = Normal(n, 1, 1), y = Normal(n, 1, 2);
    double sum = 0, size = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += double{x[i]} * y[i];
      size += std::abs(double{x[i]} * y[i]);
    }
    EXPECT_NEAR(Dot(x.data(), y.data(), n), sum, 1e-6 * size) << n;
  }
}

TEST_P(Ops, RmsNormInPlaceAndNot) {
  for (int64_t n : kSizes) {
    auto x = Normal(n, 3, 3);
    const auto w = Normal(n, 1, 4);
    double square = 0;
    for (float v : x) square += double{v} * v;
    const double scale = 1 / std::sqrt(square / static_cast<double>(n) + 1e-5);
    std::vector<float> out(n);
    RmsNorm(x.data(), w.data(), n, 1e-5f, out.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(out[i], x[i] * scale * w[i], 2e-6 * std::abs(x[i] * scale * w[i])) << n << " " << i;
    }
    RmsNorm(x.data(), w.data(), n, 1e-5f, x.data());
    EXPECT_EQ(x, out) << n;
  }
}

TEST_P(Ops, RmsNormOfZerosIsZeroAndOfHugeValuesIsFinite) {
  const std::vector<float> w(64, 2.0f);
  std::vector<float> zero(64), out(64), huge(64, 1e30f);
  RmsNorm(zero.data(), w.data(), 64, 1e-6f, out.data());
  EXPECT_EQ(out, zero);
  RmsNorm(huge.data(), w.data(), 64, 1e-6f, out.data());  // the squares overflow float
  for (float v : out) EXPECT_NEAR(v, 2.0f, 1e-5f);
}

TEST_P(Ops, SiluMulMatchesItsDefinitionAndAliases) {
  for (int64_t n : kSizes) {
    const auto gate = Normal(n, 8, 5), up = Normal(n, 1, 6);
    std::vector<float> out(n);
    ActivateMul(Activation::kSilu, gate.data(), up.data(), n, out.data());
    for (int64_t i = 0; i < n; ++i) {
      const double expected = double{gate[i]} / (1 + std::exp(-double{gate[i]})) * up[i];
      EXPECT_NEAR(out[i], expected, 1e-6 * std::abs(expected) + 1e-30) << n << " " << i;
    }
    auto in_gate = gate, in_up = up;
    ActivateMul(Activation::kSilu, in_gate.data(), up.data(), n, in_gate.data());
    ActivateMul(Activation::kSilu, gate.data(), in_up.data(), n, in_up.data());
    EXPECT_EQ(in_gate, out);
    EXPECT_EQ(in_up, out);
  }
}

TEST_P(Ops, SiluMulOfExtremesIsFinite) {
  const std::vector<float> gate = {-1e30f, -200, -90, -88, 0, 88, 200, 1e30f};
  std::vector<float> up(gate.size(), 1.0f), out(gate.size());
  ActivateMul(Activation::kSilu, gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    EXPECT_TRUE(std::isfinite(out[i])) << gate[i];
    EXPECT_NEAR(out[i], std::max(gate[i], 0.0f), 1e-30f);
  }
}

TEST_P(Ops, LayerNormMatchesItsDefinition) {
  for (int64_t n : kSizes) {
    auto x = Normal(n, 3, 13);
    for (float& v : x) v += 100;  // a mean far from zero must not cost digits
    const auto w = Normal(n, 1, 14), b = Normal(n, 1, 15);
    double mean = 0, variance = 0;
    for (float v : x) mean += v;
    mean /= static_cast<double>(n);
    for (float v : x) variance += (v - mean) * (v - mean);
    const double scale = 1 / std::sqrt(variance / static_cast<double>(n) + 1e-5);
    std::vector<float> out(n), plain(n);
    LayerNorm(x.data(), w.data(), b.data(), n, 1e-5f, out.data());
    LayerNorm(x.data(), nullptr, nullptr, n, 1e-5f, plain.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(plain[i], (x[i] - mean) * scale, 2e-5) << n << " " << i;
      EXPECT_NEAR(out[i], (x[i] - mean) * scale * w[i] + b[i], 1e-4) << n << " " << i;
    }
    LayerNorm(x.data(), w.data(), b.data(), n, 1e-5f, x.data());
    EXPECT_EQ(x, out);
  }
}

TEST_P(Ops, ActivationsMatchTheirDefinitions) {
  std::vector<float> x = Normal(1000, 3, 16);
  for (float v = -12; v < 12; v += 0.01f) x.push_back(v);
  for (float v : {-1e30f, -200.0f, 0.0f, 1e-20f, 200.0f, 1e30f}) x.push_back(v);
  const int64_t n = static_cast<int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> out(x.size());
  for (Activation a : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    ActivateMul(a, x.data(), ones.data(), n, out.data());
    auto alone = x;
    Activate(a, alone.data(), n);
    EXPECT_EQ(alone, out);
    for (int64_t i = 0; i < n; ++i) {
      const double z = x[i];
      const double tanh_arg = std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z);
      const double expected = a == Activation::kSilu   ? z / (1 + std::exp(-z))
                              : a == Activation::kGelu ? 0.5 * z * std::erfc(-z / std::sqrt(2.0))
                                                       : 0.5 * z * (1 + std::tanh(tanh_arg));
      ASSERT_NEAR(out[i], expected, 3e-7 + 1e-6 * std::abs(expected)) << static_cast<int>(a) << " " << z;
    }
  }
}

TEST_P(Ops, MixKeepsDotProductsAndSpreadsWhatStandsOut) {
  for (int64_t dim : {1, 2, 4, 8, 16, 24, 64, 80, 96, 128, 256}) {
    auto x = Normal(3 * dim, 1, 17), y = Normal(3 * dim, 1, 18);
    const auto before_x = x, before_y = y;
    Mix(x.data(), 3, dim);
    Mix(y.data(), 3, dim);
    for (int64_t v = 0; v < 3; ++v) {
      double before = 0, after = 0;
      for (int64_t i = v * dim; i < (v + 1) * dim; ++i) {
        before += double{before_x[i]} * before_y[i];
        after += double{x[i]} * y[i];
      }
      EXPECT_NEAR(before, after, 2e-6 * static_cast<double>(dim)) << dim;
    }
    std::vector<float> spike(dim);
    spike[dim / 2] = 1;
    Mix(spike.data(), 1, dim);
    const int64_t block = dim & -dim;
    double sum = 0;
    for (float v : spike) {
      EXPECT_LE(std::abs(v), 1.0001 / std::sqrt(static_cast<double>(block)));
      sum += double{v} * v;
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_P(Ops, SoftCapBoundsAndKeepsSmallValues) {
  std::vector<float> x = {-1e30f, -100, -30, -1, 0, 1e-3f, 1, 30, 100, 1e30f};
  const auto before = x;
  SoftCap(30, x.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], 30 * std::tanh(double{before[i]} / 30), 1e-5);
}

TEST_P(Ops, AddInPlaceScales) {
  auto x = Normal(100, 1, 7);
  const auto before = x, y = Normal(100, 1, 8);
  AddInPlace(x.data(), y.data(), 100, 0.25f);
  for (int64_t i = 0; i < 100; ++i) EXPECT_NEAR(x[i], before[i] + 0.25 * y[i], 1e-6);
}

TEST_P(Ops, AddInPlaceAdds) {
  for (int64_t n : kSizes) {
    auto x = Normal(n, 1, 7);
    const auto before = x, y = Normal(n, 1, 8);
    AddInPlace(x.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(x[i], before[i] + y[i]);
  }
}

TEST_P(Ops, LogSumExpIsStable) {
  for (int64_t n : kSizes) {
    for (float shift : {0.0f, 1000.0f, -1000.0f}) {
      auto x = Normal(n, 4, 9);
      for (float& v : x) v += shift;
      const double max = *std::max_element(x.begin(), x.end());
      double sum = 0;
      for (float v : x) sum += std::exp(v - max);
      EXPECT_NEAR(LogSumExp(x.data(), n), max + std::log(sum), 1e-6 * std::abs(max) + 2e-6)
          << n << " " << shift;
    }
  }
  std::vector<float> x = {-kInf, 2.0f, -kInf};
  EXPECT_FLOAT_EQ(LogSumExp(x.data(), 3), 2.0f);
  x = std::vector<float>(40, -kInf);
  EXPECT_EQ(LogSumExp(x.data(), 40), -kInf);
}

// Float sums over a vocabulary lose the tail: 2^18 equal entries must give log(2^18).
TEST_P(Ops, LogSumExpOfAWholeVocabularyKeepsItsTail) {
  const std::vector<float> x(1 << 18, 1.5f);
  EXPECT_NEAR(LogSumExp(x.data(), 1 << 18), 1.5 + 18 * std::log(2.0), 2e-6);
}

TEST_P(Ops, LogitStatsAreThoseOfTheDefinition) {
  for (int64_t n : kSizes) {
    auto x = Normal(n, 4, 12);
    if (n > 3) x[n / 2] = -kInf;  // absent: a model may bar a token of its own
    double largest = -kInf, weights = 0, sum = 0, squares = 0, count = 0, entropy = 0;
    for (float v : x) largest = std::max<double>(largest, v);
    for (float v : x) weights += std::exp(v - largest);
    for (float v : x) {
      if (std::isinf(v)) continue;
      const double p = std::exp(v - largest) / weights;
      if (p > 0) entropy -= p * std::log(p);
      sum += v;
      squares += static_cast<double>(v) * v;
      count += 1;
    }
    const LogitStats got = DescribeLogits(x.data(), n);
    ASSERT_TRUE(got.finite) << n;
    EXPECT_FLOAT_EQ(got.largest, static_cast<float>(largest)) << n;
    EXPECT_NEAR(got.log_sum_exp, largest + std::log(weights), 1e-4) << n;
    EXPECT_NEAR(got.entropy, entropy, 1e-4) << n;
    EXPECT_NEAR(got.mean, sum / count, 1e-3) << n;
    EXPECT_NEAR(got.deviation, std::sqrt(std::max(0.0, squares / count - sum * sum / count / count)), 2e-3)
        << n;
  }
}

TEST_P(Ops, LogitStatsNoticeAnyBrokenLogit) {
  for (int64_t n : kSizes) {
    for (int64_t at = 0; at < n; at += std::max<int64_t>(1, n / 9)) {
      for (float broken : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
        auto x = Normal(n, 4, 13);
        x[at] = broken;
        EXPECT_FALSE(DescribeLogits(x.data(), n).finite) << n << " " << at << " " << broken;
      }
    }
    const std::vector<float> none(n, -kInf);
    EXPECT_FALSE(DescribeLogits(none.data(), n).finite) << n;
  }
}

TEST_P(Ops, ArgMaxTakesTheLowestOfEquals) {
  for (int64_t n : kSizes) {
    auto x = Normal(n, 1, 10);
    for (int64_t at = 0; at < n; at += std::max<int64_t>(1, n / 9)) {
      auto y = x;
      y[at] = 50;
      y[n - 1] = 50;
      EXPECT_EQ(ArgMax(y.data(), n), at);
    }
  }
  const std::vector<float> lowest(33, -kInf);
  EXPECT_EQ(ArgMax(lowest.data(), 33), 0);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Ops, testing::ValuesIn(SupportedIsas()), [](const auto& param_info) {
  std::string name = param_info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace ballast
