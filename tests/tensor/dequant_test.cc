// Every stored block format against an element-by-element reading of its bit layout, and against figures made
// with the public `gguf` Python package (tools/make_dequant_goldens.py).
#include "tensor/dequant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tensor/block_codes.h"

namespace ballast {
namespace {

// IEEE binary16 by its definition, in double.
double Half(const uint8_t* p) {
  const int bits = p[0] | p[1] << 8;
  const int exponent = bits >> 10 & 31;
  const double mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1 + mantissa / 1024, exponent - 15);
  return bits & 0x8000 ? -magnitude : magnitude;
}

int Nibble(const uint8_t* p, int low_or_high) { return low_or_high ? p[0] >> 4 : p[0] & 15; }

// The six-bit scale (which = 0) or minimum (1) of sub-block s in the 12 bytes of Q4_K and Q5_K.
int Six(const uint8_t* p, int s, int which) {
  if (s < 4) return p[which * 4 + s] % 64;
  return Nibble(p + 8 + (s - 4), which) + 16 * (p[which * 4 + (s - 4)] / 64);
}

// Element i of one block, straight from the layout.
double Element(DType type, const uint8_t* b, int i) {
  const int lane = i % 16, upper = i / 16 % 2;
  const int g = i / 32, j = i % 32, half = i / 128, quarter = i / 32 % 4;
  switch (type) {
    case DType::kQ4_0:
      return Half(b) * (Nibble(b + 2 + lane, upper) - 8);
    case DType::kQ4_1:
      return Half(b) * Nibble(b + 4 + lane, upper) + Half(b + 2);
    case DType::kQ5_0:
      return Half(b) * (Nibble(b + 6 + lane, upper) + 16 * (b[2 + i / 8] >> i % 8 & 1) - 16);
    case DType::kQ5_1:
      return Half(b) * (Nibble(b + 8 + lane, upper) + 16 * (b[4 + i / 8] >> i % 8 & 1)) + Half(b + 2);
    case DType::kQ8_0:
      return Half(b) * static_cast<int8_t>(b[2 + i]);
    case DType::kQ2_K: {
      const int q = b[16 + 32 * half + j] >> 2 * quarter & 3;
      return Half(b + 80) * Nibble(b + i / 16, 0) * q - Half(b + 82) * Nibble(b + i / 16, 1);
    }
    case DType::kQ3_K: {
      const int q = (b[32 + 32 * half + j] >> 2 * quarter & 3) - 4 * (1 - (b[j] >> g & 1));
      const int s = i / 16;
      const int scale = Nibble(b + 96 + s % 8, s / 8) + 16 * (b[104 + s % 4] >> 2 * (s / 4) & 3);
      return Half(b + 108) * (scale - 32) * q;
    }
    case DType::kQ4_K: {
      const int q = Nibble(b + 16 + 32 * (g / 2) + j, g % 2);
      return Half(b) * Six(b + 4, g, 0) * q - Half(b + 2) * Six(b + 4, g, 1);
    }
    case DType::kQ5_K: {
      const int q = Nibble(b + 48 + 32 * (g / 2) + j, g % 2) + 16 * (b[16 + j] >> g & 1);
      return Half(b) * Six(b + 4, g, 0) * q - Half(b + 2) * Six(b + 4, g, 1);
    }
    case DType::kQ6_K: {
      const int low = Nibble(b + 64 * half + 32 * (quarter % 2) + j, quarter / 2);
      const int q = low + 16 * (b[128 + 32 * half + j] >> 2 * quarter & 3);
      return Half(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * (q - 32);
    }
    default:
      return 0;
  }
}

std::vector<DType> QuantizedTypes() {
  std::vector<DType> types;
  for (int t = 0; t < kDTypeCount; ++t) {
    if (IsQuantized(static_cast<DType>(t))) types.push_back(static_cast<DType>(t));
  }
  return types;
}

// Random bytes whose f16 fields are finite: every exponent of all ones loses its top bit.
std::vector<uint8_t> RandomBlocks(DType type, int blocks, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks) * Info(type).block_bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  const int first = type == DType::kQ2_K ? 80 : type == DType::kQ3_K ? 108 : type == DType::kQ6_K ? 208 : 0;
  for (int block = 0; block < blocks; ++block) {
    uint8_t* p = bytes.data() + static_cast<size_t>(block) * Info(type).block_bytes + first;
    p[1] &= 0xbf;
    if (first + 3 < Info(type).block_bytes) p[3] &= 0xbf;
  }
  return bytes;
}

TEST(Dequantize, EveryQuantizedTypeFollowsItsBitLayout) {
  for (DType type : QuantizedTypes()) {
    const int blocks = 40, n = Info(type).block_elements;
    const std::vector<uint8_t> bytes = RandomBlocks(type, blocks, 7);
    std::vector<float> got(static_cast<size_t>(blocks) * n);
    Dequantize(type, bytes.data(), blocks * n, got.data());
    for (int i = 0; i < blocks * n; ++i) {
      const double want = Element(type, bytes.data() + i / n * Info(type).block_bytes, i % n);
      // The f16 scales here are below 2 and codes and sub-scales below 2^13: float rounding of the parts.
      ASSERT_NEAR(got[static_cast<size_t>(i)], want, 1e-7 * (std::abs(want) + 2 * 63))
          << Info(type).name << " element " << i;
    }
  }
}

TEST(Dequantize, SourceNeedsNoAlignment) {
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = static_cast<DType>(t);
    const int n = IsQuantized(type) ? Info(type).block_elements : 5;
    std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(type, n)) + 1, 0x31);
    std::vector<float> even(static_cast<size_t>(n)), odd(static_cast<size_t>(n));
    Dequantize(type, bytes.data(), n, even.data());
    Dequantize(type, bytes.data() + 1, n, odd.data());
    EXPECT_EQ(even, odd) << Info(type).name;
  }
}

TEST(Dequantize, AgreesWithTheGgufPackage) {
  std::ifstream file(std::string(BALLAST_TEST_DATA) + "/goldens/dequant.json");
  ASSERT_TRUE(file.good());
  const nlohmann::json cases = nlohmann::json::parse(file);
  int seen = 0;
  for (int t = 0; t < kDTypeCount; ++t) {
    const DType type = static_cast<DType>(t);
    for (const auto& c : cases) {
      if (c["type"].get<std::string>() != Info(type).name) continue;
      ++seen;
      const std::string hex = c["bytes"];
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < hex.size(); i += 2) {
        bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      }
      const std::vector<double> want = c["values"];
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), RowBytes(type, static_cast<int64_t>(want.size())));
      std::vector<float> got(want.size());
      Dequantize(type, bytes.data(), static_cast<int64_t>(want.size()), got.data());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i]) + 1e-9) << Info(type).name << " " << i;
      }
    }
  }
  EXPECT_EQ(seen, kDTypeCount);
}

TEST(UnpackBlock, CodesStayInTheirStatedRangeAndReachItsEnds) {
  for (DType type : QuantizedTypes()) {
    const CodeInfo info = CodesOf(type);
    const int blocks = 64;
    const std::vector<uint8_t> bytes = RandomBlocks(type, blocks, 3);
    int low = 1000, high = -1000;
    for (int b = 0; b < blocks; ++b) {
      BlockCodes codes;
      UnpackBlock(type, bytes.data() + b * Info(type).block_bytes, codes);
      for (int i = 0; i < Info(type).block_elements; ++i) {
        low = std::min<int>(low, codes.code[i]);
        high = std::max<int>(high, codes.code[i]);
        if (!info.has_offset) {
          ASSERT_EQ(codes.offset[i / info.sub], 0) << Info(type).name;
        }
      }
    }
    EXPECT_EQ(low, info.min_code) << Info(type).name;
    EXPECT_EQ(high, info.max_code) << Info(type).name;
  }
}

TEST(F16, EveryBitPatternWidensByDefinitionAndReturns) {
  for (int bits = 0; bits < 65536; ++bits) {
    const uint16_t h = static_cast<uint16_t>(bits);
    const float value = F16ToF32(h);
    if ((h >> 10 & 31) == 31) {
      if (h & 1023) {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
        continue;
      }
      EXPECT_EQ(value, h & 0x8000 ? -INFINITY : INFINITY);
    } else {
      const uint8_t bytes[2] = {static_cast<uint8_t>(h), static_cast<uint8_t>(h >> 8)};
      ASSERT_EQ(value, Half(bytes)) << bits;
    }
    ASSERT_EQ(F32ToF16(value), h) << bits;
  }
}

TEST(F16, RoundsToNearestEvenBetweenEveryPairOfNeighbours) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const float low = F16ToF32(static_cast<uint16_t>(bits)), high = F16ToF32(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact in float
    ASSERT_EQ(F32ToF16(middle), bits + (bits & 1)) << bits;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, INFINITY)), bits + 1) << bits;
    ASSERT_EQ(F32ToF16(-middle), (bits + (bits & 1)) | 0x8000) << bits;
  }
  EXPECT_EQ(F32ToF16(65519.99f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(BF16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(BF16ToF32(0x3f80), 1.0f);
  EXPECT_EQ(F32ToBF16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie goes to the even one
  EXPECT_EQ(F32ToBF16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(F32ToBF16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(F32ToBF16(-1.0f), 0xbf80);
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::bit_cast<float>(0x7f800001u)))));
  for (int bits = 0; bits < 0x7f80; ++bits) {
    ASSERT_EQ(F32ToBF16(BF16ToF32(static_cast<uint16_t>(bits))), bits);
  }
}

}  // namespace
}  // namespace ballast
