#include "tensor/block_codes.h"

#include <cstring>

#include "base/status.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

float HalfAt(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return F16ToF32(bits);
}

// 16 bytes of two nibbles: the low ones are elements 0..15, the high ones elements 16..31.
// Worked on in local bytes, which alias nothing, so that it vectorises.
void Nibbles32(const uint8_t* qs, uint8_t bias, int8_t* code) {
  uint8_t q[16], out[32];
  std::memcpy(q, qs, sizeof(q));
  for (int j = 0; j < 16; ++j) out[j] = static_cast<uint8_t>((q[j] & 15) - bias);
  for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<uint8_t>((q[j] >> 4) - bias);
  std::memcpy(code, out, sizeof(out));
}

// As Nibbles32, with bit j of qh as the fifth bit of element j.
void Fives32(const uint8_t* qh, const uint8_t* qs, uint8_t bias, int8_t* code) {
  uint8_t q[16], spread[32], out[32];
  std::memcpy(q, qs, sizeof(q));
  constexpr uint8_t kBit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  for (int j = 0; j < 32; ++j) spread[j] = static_cast<uint8_t>(qh[j / 8] & kBit[j % 8]);
  for (int j = 0; j < 32; ++j) spread[j] = spread[j] != 0 ? 16 : 0;
  for (int j = 0; j < 16; ++j) out[j] = static_cast<uint8_t>(((q[j] & 15) | spread[j]) - bias);
  for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<uint8_t>(((q[j] >> 4) | spread[j + 16]) - bias);
  std::memcpy(code, out, sizeof(out));
}

void UnpackSimple(DType type, const uint8_t* src, BlockCodes& out) {
  out.scale[0] = HalfAt(src);
  out.offset[0] = 0;
  switch (type) {
    case DType::kQ4_0:  // f16 d, 16 nibble pairs: d * (q - 8)
      return Nibbles32(src + 2, 8, out.code);
    case DType::kQ4_1:  // f16 d, f16 m, 16 nibble pairs: d * q + m
      out.offset[0] = HalfAt(src + 2);
      return Nibbles32(src + 4, 0, out.code);
    case DType::kQ5_0:  // f16 d, 32 high bits, 16 nibble pairs: d * (q - 16)
      return Fives32(src + 2, src + 6, 16, out.code);
    case DType::kQ5_1:  // f16 d, f16 m, 32 high bits, 16 nibble pairs: d * q + m
      out.offset[0] = HalfAt(src + 2);
      return Fives32(src + 4, src + 8, 0, out.code);
    default:  // Q8_0: f16 d, 32 signed bytes: d * q
      BALLAST_CHECK(type == DType::kQ8_0);
      std::memcpy(out.code, src + 2, 32);
  }
}

// Q4_K and Q5_K: 12 bytes hold eight 6-bit scales and eight 6-bit minimums. Bytes 0..3 and 4..7 are the low
// six bits of the first four of each; their top two bits, with the nibbles of bytes 8..11, make the last
// four.
void ScalesOf32(const uint8_t* src, BlockCodes& out) {
  const float d = HalfAt(src);
  const float dmin = HalfAt(src + 2);
  const uint8_t* s = src + 4;
  for (int j = 0; j < 8; ++j) {
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    const int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    out.scale[j] = d * static_cast<float>(scale);
    out.offset[j] = -(dmin * static_cast<float>(min));
  }
}

// f16 d, f16 dmin, scales[12], qs[128]: each run of 32 bytes holds elements 0..31 (low) and 32..63 (high)
// of 64.
void UnpackQ4K(const uint8_t* src, BlockCodes& out) {
  ScalesOf32(src, out);
  const uint8_t* qs = src + 16;
  for (int chunk = 0; chunk < 4; ++chunk) {
    int8_t* code = out.code + chunk * 64;
    for (int j = 0; j < 32; ++j) {
      code[j] = static_cast<int8_t>(qs[chunk * 32 + j] & 15);
      code[j + 32] = static_cast<int8_t>(qs[chunk * 32 + j] >> 4);
    }
  }
}

// f16 d, f16 dmin, scales[12], qh[32], qs[128]: as Q4_K, with bit s of qh[j] the fifth bit of element 32 s +
// j.
void UnpackQ5K(const uint8_t* src, BlockCodes& out) {
  ScalesOf32(src, out);
  const uint8_t* qh = src + 16;
  const uint8_t* qs = src + 48;
  for (int chunk = 0; chunk < 4; ++chunk) {
    int8_t* code = out.code + chunk * 64;
    for (int j = 0; j < 32; ++j) {
      const int high = qh[j] >> (2 * chunk);
      code[j] = static_cast<int8_t>((qs[chunk * 32 + j] & 15) | (high & 1) << 4);
      code[j + 32] = static_cast<int8_t>((qs[chunk * 32 + j] >> 4) | (high & 2) << 3);
    }
  }
}

// scales[16] (low nibble scale, high nibble minimum), qs[64], f16 d, f16 dmin. Each half of 128 elements has
// 32 bytes: bit pair k of byte j is element 32 k + j.
void UnpackQ2K(const uint8_t* src, BlockCodes& out) {
  const float d = HalfAt(src + 80);
  const float dmin = HalfAt(src + 82);
  for (int j = 0; j < 16; ++j) {
    out.scale[j] = d * static_cast<float>(src[j] & 15);
    out.offset[j] = -(dmin * static_cast<float>(src[j] >> 4));
  }
  uint8_t q[64];
  std::memcpy(q, src + 16, sizeof(q));
  for (int half = 0; half < 2; ++half) {
    for (int pair = 0; pair < 4; ++pair) {
      int8_t* code = out.code + half * 128 + pair * 32;
      for (int j = 0; j < 32; ++j) code[j] = static_cast<int8_t>(q[half * 32 + j] >> (2 * pair) & 3);
    }
  }
}

// hmask[32], qs[64], scales[12], f16 d. Low two bits as in Q2_K; bit s of hmask[j] clear takes 4 from element
// 32 s + j. Scale j: low nibble from byte j % 8 (high half for j >= 8), two bits from byte 8 + j % 4,
// less 32.
void UnpackQ3K(const uint8_t* src, BlockCodes& out) {
  const uint8_t* s = src + 96;
  const float d = HalfAt(src + 108);
  for (int j = 0; j < 16; ++j) {
    const int low = s[j % 8] >> (j < 8 ? 0 : 4) & 15;
    const int high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
    out.scale[j] = d * static_cast<float>((low | high << 4) - 32);
    out.offset[j] = 0;
  }
  uint8_t q[64], high[32];
  std::memcpy(q, src + 32, sizeof(q));
  std::memcpy(high, src, sizeof(high));
  for (int run = 0; run < 8; ++run) {
    const uint8_t* low = q + run / 4 * 32;
    int8_t* code = out.code + run * 32;
    for (int j = 0; j < 32; ++j) {
      code[j] = static_cast<int8_t>((low[j] >> (2 * (run % 4)) & 3) + 4 * (high[j] >> run & 1) - 4);
    }
  }
}

// ql[128], qh[64], int8 scales[16], f16 d: d * scale * (q - 32). In each half of 128 elements, four runs of
// 32 take their low nibble from ql (runs 0, 1: low; 2, 3: high) and bit pair `run` of qh[j].
void UnpackQ6K(const uint8_t* src, BlockCodes& out) {
  const float d = HalfAt(src + 208);
  for (int j = 0; j < 16; ++j) {
    out.scale[j] = d * static_cast<float>(static_cast<int8_t>(src[192 + j]));
    out.offset[j] = 0;
  }
  for (int half = 0; half < 2; ++half) {
    const uint8_t* ql = src + half * 64;
    const uint8_t* qh = src + 128 + half * 32;
    int8_t* code = out.code + half * 128;
    for (int j = 0; j < 32; ++j) {
      code[j] = static_cast<int8_t>(((ql[j] & 15) | (qh[j] & 3) << 4) - 32);
      code[j + 32] = static_cast<int8_t>(((ql[j + 32] & 15) | (qh[j] >> 2 & 3) << 4) - 32);
      code[j + 64] = static_cast<int8_t>(((ql[j] >> 4) | (qh[j] >> 4 & 3) << 4) - 32);
      code[j + 96] = static_cast<int8_t>(((ql[j + 32] >> 4) | (qh[j] >> 6) << 4) - 32);
    }
  }
}

}  // namespace

void UnpackBlock(DType type, const uint8_t* src, BlockCodes& out) {
  switch (type) {
    case DType::kQ2_K:
      return UnpackQ2K(src, out);
    case DType::kQ3_K:
      return UnpackQ3K(src, out);
    case DType::kQ4_K:
      return UnpackQ4K(src, out);
    case DType::kQ5_K:
      return UnpackQ5K(src, out);
    case DType::kQ6_K:
      return UnpackQ6K(src, out);
    default:
      return UnpackSimple(type, src, out);
  }
}

}  // namespace ballast
