#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/isa.h"

namespace ballast {
namespace {

using Kind = RopeScaling::Kind;

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(n);
  for (float& v : x) v = normal(generator);
  return x;
}

RopeTable Plain(int dims, RopeForm form, double base = 10000) {
  return RopeTable::Make(dims, base, form, RopeScaling{}, {});
}

std::vector<float> Rotate(const RopeTable& table, int64_t position, const std::vector<float>& x,
                          int head_dim) {
  std::vector<float> cos(table.dims / 2), sin(table.dims / 2), out(x.size());
  table.Angles(position, cos.data(), sin.data());
  ApplyRope(table, cos.data(), sin.data(), x.data(), static_cast<int64_t>(x.size()) / head_dim, head_dim,
            out.data());
  return out;
}

class Rope : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceIsa(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(ForceIsa("").ok()); }
};

// float32 angles are off by 0.47 rad at position 1e7; double products alone by 1e-4 at 2^40.
TEST(RopeAngles, ExactAtAnyPosition) {
  for (double base : {10000.0, 100000.0, 1e6}) {
    const RopeTable table = Plain(64, RopeForm::kInterleaved, base);
    std::vector<float> cos(32), sin(32);
    for (int64_t position :
         {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1000000}, int64_t{1000000000}, int64_t{1} << 40}) {
      table.Angles(position, cos.data(), sin.data());
      for (int i = 0; i < 32; ++i) {
        const long double angle = static_cast<long double>(position) * table.inv_freq[i];
        EXPECT_NEAR(cos[i], static_cast<double>(std::cos(angle)), 1.5e-7) << position << " " << i;
        EXPECT_NEAR(sin[i], static_cast<double>(std::sin(angle)), 1.5e-7) << position << " " << i;
      }
    }
  }
}

// Figures by 60-digit decimal arithmetic (position * inv_freq as stored, mod 2 pi).
TEST(RopeAngles, ExactToTheLastPosition) {
  RopeTable table = Plain(4, RopeForm::kInterleaved, 10000);
  table.inv_freq = {0.1, 1e-7};  // the nearest doubles
  float cos[2], sin[2];
  table.Angles((int64_t{1} << 53) - 1, cos, sin);
  EXPECT_NEAR(cos[0], -0.9656756422140442, 1e-7);
  EXPECT_NEAR(sin[0], 0.2597509461666951, 1e-7);
  EXPECT_NEAR(cos[1], -0.9925544866988628, 1e-7);
  EXPECT_NEAR(sin[1], 0.12180144060706703, 1e-7);
}

TEST_P(Rope, BothFormsAndPartialDimensionsMatchTheDefinition) {
  for (auto [head_dim, dims] : {std::pair{64, 64}, {64, 32}, {80, 20}, {96, 96}, {256, 64}, {8, 6}}) {
    for (RopeForm form : {RopeForm::kInterleaved, RopeForm::kHalfSplit}) {
      const RopeTable table = Plain(dims, form);
      const auto x = Normal(3 * head_dim, 7);
      for (int64_t position : {int64_t{0}, int64_t{1}, int64_t{12345}}) {
        const auto y = Rotate(table, position, x, head_dim);
        for (int h = 0; h < 3; ++h) {
          for (int i = 0; i < dims / 2; ++i) {
            const int a = h * head_dim + (form == RopeForm::kInterleaved ? 2 * i : i);
            const int b = a + (form == RopeForm::kInterleaved ? 1 : dims / 2);
            const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * i / dims);
            EXPECT_NEAR(y[a], x[a] * std::cos(angle) - x[b] * std::sin(angle), 2e-6);
            EXPECT_NEAR(y[b], x[a] * std::sin(angle) + x[b] * std::cos(angle), 2e-6);
          }
          for (int i = dims; i < head_dim; ++i) EXPECT_EQ(y[h * head_dim + i], x[h * head_dim + i]);
        }
      }
    }
  }
}

TEST_P(Rope, InPlaceEqualsOutOfPlace) {
  for (RopeForm form : {RopeForm::kInterleaved, RopeForm::kHalfSplit}) {
    const RopeTable table = Plain(48, form);
    auto x = Normal(5 * 64, 8);
    const auto expected = Rotate(table, 77, x, 64);
    std::vector<float> cos(24), sin(24);
    table.Angles(77, cos.data(), sin.data());
    ApplyRope(table, cos.data(), sin.data(), x.data(), 5, 64, x.data());
    EXPECT_EQ(x, expected);
  }
}

// What positions inside the cache rest on: only the distance matters, however long the stream.
TEST_P(Rope, OnlyTheDistanceMattersAfterABillionTokens) {
  for (RopeForm form : {RopeForm::kInterleaved, RopeForm::kHalfSplit}) {
    const RopeTable table = Plain(64, form, 100000);
    const auto q = Normal(64, 9), k = Normal(64, 10);
    const auto dot = [&](int64_t t, int64_t s) {
      const auto a = Rotate(table, t, q, 64), b = Rotate(table, s, k, 64);
      double sum = 0;
      for (int i = 0; i < 64; ++i) sum += double{a[i]} * b[i];
      return sum;
    };
    for (auto [t, s] : {std::pair<int64_t, int64_t>{0, 0}, {5, 2}, {1023, 4}, {8000, 1}}) {
      EXPECT_NEAR(dot(t, s), dot(t + 1000000000, s + 1000000000), 1e-5) << t << " " << s;
    }
    EXPECT_GT(std::abs(dot(1023, 4) - dot(1023, 5)), 1e-3);  // and it does matter
  }
}

void ExpectFrequencies(const RopeTable& table, const std::vector<std::pair<int, double>>& expected) {
  for (auto [i, f] : expected) EXPECT_NEAR(table.inv_freq[i] / f, 1, 1e-12) << i;
}

TEST(RopeScalings, Linear) {
  RopeScaling scaling;
  scaling.kind = Kind::kLinear;
  scaling.factor = 8;
  const RopeTable table = RopeTable::Make(64, 10000, RopeForm::kHalfSplit, scaling, {});
  ExpectFrequencies(table, {{0, 1.0 / 8}, {16, 0.01 / 8}});
  EXPECT_EQ(table.magnitude, 1);
}

// Figures: the published formulas of Hugging Face transformers, evaluated in numpy.
TEST(RopeScalings, Llama3) {
  RopeScaling scaling;
  scaling.kind = Kind::kLlama3;
  scaling.factor = 8;
  scaling.original_context = 8192;
  ExpectFrequencies(RopeTable::Make(128, 500000, RopeForm::kHalfSplit, scaling, {}),
                    {{0, 1.0},
                     {15, 0.04616405026546052},
                     {28, 0.0032114459947525913},
                     {30, 0.0013718935677611381},
                     {32, 0.0005248461609929547},
                     {34, 0.00017850781276799638},
                     {36, 7.78465527393245e-05},
                     {63, 3.068925988914511e-07}});
  scaling.factor = 32;
  ExpectFrequencies(RopeTable::Make(64, 500000, RopeForm::kInterleaved, scaling, {}),
                    {{14, 0.0032114459947525913},
                     {15, 0.001290547928209264},
                     {16, 0.00042955679655936815},
                     {17, 9.70828780262767e-05},
                     {18, 1.9461638184831125e-05},
                     {31, 9.418306725434911e-08}});
}

TEST(RopeScalings, Yarn) {
  RopeScaling scaling;
  scaling.kind = Kind::kYarn;
  scaling.factor = 4;
  scaling.original_context = 32768;
  const RopeTable table = RopeTable::Make(128, 1000000, RopeForm::kHalfSplit, scaling, {});
  ExpectFrequencies(table, {{0, 1.0},
                            {23, 0.006978305848598663},
                            {24, 0.005375321490790102},
                            {32, 0.0006029411764705882},
                            {39, 6.490394320837029e-05},
                            {40, 4.445698525097307e-05},
                            {63, 3.102344401879299e-07}});
  EXPECT_FLOAT_EQ(table.magnitude, 1.138629436111989f);
  scaling.factor = 32;
  scaling.original_context = 4096;
  const RopeTable other = RopeTable::Make(64, 150000, RopeForm::kHalfSplit, scaling, {});
  ExpectFrequencies(other, {{8, 0.050813274815461475},
                            {9, 0.031620752275346484},
                            {12, 0.007015713910504388},
                            {17, 0.0002279477957951252},
                            {18, 3.8308812373753384e-05},
                            {31, 3.0235114281192144e-07}});
  EXPECT_FLOAT_EQ(other.magnitude, 1.3465735902799727f);
  // The magnitude multiplies cos and sin; a stated one replaces the formula.
  scaling.attention_factor = 0.5;
  const RopeTable stated = RopeTable::Make(64, 150000, RopeForm::kHalfSplit, scaling, {});
  std::vector<float> cos(32), sin(32);
  stated.Angles(0, cos.data(), sin.data());
  EXPECT_EQ(cos, std::vector<float>(32, 0.5f));
}

// ik_llama.cpp loaded rope_freqs and never used it.
TEST(RopeScalings, FrequencyFactorsDivide) {
  std::vector<float> factors(32, 1.0f);
  factors[5] = 2;
  factors[31] = 8;
  const RopeTable plain = Plain(64, RopeForm::kInterleaved);
  const RopeTable table = RopeTable::Make(64, 10000, RopeForm::kInterleaved, RopeScaling{}, factors);
  for (int i = 0; i < 32; ++i) EXPECT_DOUBLE_EQ(table.inv_freq[i] * factors[i], plain.inv_freq[i]);
  EXPECT_NE(table.inv_freq, plain.inv_freq);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Rope, testing::ValuesIn(SupportedIsas()), [](const auto& param_info) {
  std::string name = param_info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace ballast
