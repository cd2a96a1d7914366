// Quantising at load: what comes back is close to what went in, and what cannot be held is refused.
#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/dequant.h"

namespace ballast {
namespace {

std::vector<float> RoundTrip(DType type, const std::vector<float>& x) {
  std::vector<uint8_t> blocks(static_cast<size_t>(RowBytes(type, static_cast<int64_t>(x.size()))));
  EXPECT_TRUE(Quantize(type, x.data(), static_cast<int64_t>(x.size()), blocks.data()));
  std::vector<float> back(x.size());
  Dequantize(type, blocks.data(), static_cast<int64_t>(x.size()), back.data());
  return back;
}

// Half a step, and what rounding the scale and offset to f16 adds at the block's ends: 11 bits, or half of
// its smallest step.
TEST(Quantize, EveryValueComesBackWithinHalfAStepOfItsBlock) {
  std::mt19937 random(7);
  for (const float width : {1e-3f, 0.02f, 1.0f, 300.0f}) {
    std::normal_distribution<float> normal(0, width);
    std::vector<float> x(32 * 64);
    for (float& v : x) v = normal(random);
    const std::vector<float> q8 = RoundTrip(DType::kQ8_0, x);
    double square = 0, q4_square = 0, power = 0;
    const std::vector<float> q4 = RoundTrip(DType::kQ4_1, x);
    for (size_t block = 0; block < x.size(); block += 32) {
      float most = 0, low = x[block], high = x[block];
      for (size_t i = block; i < block + 32; ++i) {
        most = std::max(most, std::fabs(x[i]));
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
      }
      for (size_t i = block; i < block + 32; ++i) {
        EXPECT_LE(std::fabs(q8[i] - x[i]), most * (0.5f / 127 + 1.0f / 1024) + 127 * 0x1p-25f);
        EXPECT_LE(std::fabs(q4[i] - x[i]), (high - low) / 15 * 0.8f + most / 1024 + 16 * 0x1p-25f);
        square += (q8[i] - x[i]) * (q8[i] - x[i]);
        q4_square += (q4[i] - x[i]) * (q4[i] - x[i]);
        power += x[i] * x[i];
      }
    }
    EXPECT_LT(std::sqrt(square / power), 0.007) << width;
    EXPECT_LT(std::sqrt(q4_square / power), 0.085) << width;
  }
}

TEST(Quantize, ZerosAndConstantsAreExact) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_1}) {
    EXPECT_EQ(RoundTrip(type, std::vector<float>(64, 0.0f)), std::vector<float>(64, 0.0f));
  }
  EXPECT_EQ(RoundTrip(DType::kQ4_1, std::vector<float>(32, 0.25f)), std::vector<float>(32, 0.25f));
}

TEST(Quantize, WhatBlocksCannotHoldIsRefused) {
  uint8_t out[64];
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e38f}) {
    std::vector<float> x(32, 0.5f);
    x[31] = bad;
    EXPECT_FALSE(Quantize(DType::kQ8_0, x.data(), 32, out)) << bad;
    EXPECT_FALSE(Quantize(DType::kQ4_1, x.data(), 32, out)) << bad;
  }
}

}  // namespace
}  // namespace ballast
