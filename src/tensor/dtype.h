// Element types of stored tensors and their block geometry.
// Source of the block layouts: the GGUF specification (facts of the file format).
#ifndef BALLAST_TENSOR_DTYPE_H_
#define BALLAST_TENSOR_DTYPE_H_

#include <cstdint>
#include <string_view>

namespace ballast {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K
};
inline constexpr int kDTypeCount = 13;

struct DTypeInfo {
  std::string_view name;  // "Q4_1"
  int block_elements;     // elements per block, 1 for plain types
  int block_bytes;
};

// By DType.
inline constexpr DTypeInfo kDTypeTable[kDTypeCount] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q4_0", 32, 18},  {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"Q8_0", 32, 34},   {"Q2_K", 256, 84}, {"Q3_K", 256, 110},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
};

constexpr DTypeInfo Info(DType type) { return kDTypeTable[static_cast<int>(type)]; }

// Bytes of `n` elements. REQUIRES: n is a multiple of the block size.
constexpr int64_t RowBytes(DType type, int64_t n) {
  const DTypeInfo info = Info(type);
  return n / info.block_elements * info.block_bytes;
}

}  // namespace ballast

#endif  // BALLAST_TENSOR_DTYPE_H_
