// GgufBuilder: writes small GGUF files for tests, good ones and broken ones.
//
// It is written apart from the reader (its own type numbers and block encoders), so that a shared mistake
// cannot hide. Thread safety: one thread. Invariant: without the knobs under "Breaking things", Build() is a
// valid GGUF v3 file whose tensors lie in the order they were added.
#ifndef BALLAST_TESTS_SUPPORT_GGUF_BUILDER_H_
#define BALLAST_TESTS_SUPPORT_GGUF_BUILDER_H_

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace ballast::testing {

class GgufBuilder {
 public:
  // Adds a metadata entry. The C++ type decides the stored type: int32_t -> i32, uint8_t -> u8, float -> f32,
  // bool -> bool, text -> string, std::vector<T> -> array of T.
  template <typename T>
  GgufBuilder& Set(std::string_view key, const T& value) {
    Bytes bytes;
    PutValue(value, &bytes);
    return SetRaw(key, TypeOf<T>(), std::move(bytes));
  }
  // A metadata entry whose value bytes are given as stored. `type` need not be a real one.
  GgufBuilder& SetRaw(std::string_view key, uint32_t type, std::vector<uint8_t> bytes);
  bool Has(std::string_view key) const;
  void Remove(std::string_view key);  // drops the entry, if there is one

  // Adds a tensor, encoding `data` (its length is the product of dims; dims[0] is contiguous) as F32, F16,
  // BF16, Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0. Other types: see AddRawTensor.
  // REQUIRES: dims[0] is a multiple of the block size.
  GgufBuilder& AddTensor(std::string_view name, DType dtype, std::vector<int64_t> dims,
                         const std::vector<float>& data);
  // The same, with the bytes given as stored; type number, dims and length need not fit together.
  GgufBuilder& AddRawTensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> dims,
                            std::vector<uint8_t> bytes);

  // Breaking things.
  GgufBuilder& Magic(std::string_view four_bytes);
  GgufBuilder& Version(uint32_t version);
  GgufBuilder& MetadataCount(uint64_t count);  // what the header claims
  GgufBuilder& TensorCount(uint64_t count);
  GgufBuilder& Alignment(uint64_t alignment);  // what padding uses; does not write general.alignment
  GgufBuilder& TensorOffset(std::string_view name, uint64_t offset);  // what the tensor's entry claims

  std::vector<uint8_t> Build() const;
  // Writes Build() to `path`; false when the file could not be written.
  bool Write(const std::string& path) const;
  // Bytes of header, metadata and tensor entries, before padding.
  size_t HeaderBytes() const;

 private:
  using Bytes = std::vector<uint8_t>;
  struct Entry {
    std::string key;
    uint32_t type;
    Bytes bytes;
  };
  struct Tensor {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> dims;
    Bytes bytes;
    bool offset_given = false;
    uint64_t offset = 0;
  };

  template <typename T>
  struct IsVector : std::false_type {};
  template <typename T>
  struct IsVector<std::vector<T>> : std::true_type {
    using Element = T;
  };

  // The value type numbers of the GGUF specification.
  template <typename T>
  static constexpr uint32_t TypeOf() {
    if constexpr (std::is_same_v<T, bool>) {
      return 7;
    } else if constexpr (std::integral<T>) {
      constexpr bool kSigned = std::is_signed_v<T>;
      return (sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 10) + (kSigned ? 1 : 0);
    } else if constexpr (std::is_same_v<T, float>) {
      return 6;
    } else if constexpr (std::is_same_v<T, double>) {
      return 12;
    } else if constexpr (std::convertible_to<T, std::string_view>) {
      return 8;
    } else {
      static_assert(IsVector<T>::value, "no such metadata type");
      return 9;
    }
  }

  template <typename T>
  static void PutValue(const T& value, Bytes* out) {
    if constexpr (std::is_arithmetic_v<T>) {
      Put(&value, sizeof(value), out);
    } else if constexpr (std::convertible_to<T, std::string_view>) {
      PutString(value, out);
    } else {
      using Element = typename IsVector<T>::Element;
      const uint32_t type = TypeOf<Element>();
      const uint64_t count = value.size();
      Put(&type, sizeof(type), out);
      Put(&count, sizeof(count), out);
      for (const Element& element : value) PutValue<Element>(element, out);
    }
  }

  static void Put(const void* src, size_t n, Bytes* out);
  static void PutString(std::string_view text, Bytes* out);
  Bytes BuildHeader() const;

  std::string magic_ = "GGUF";
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  bool metadata_count_given_ = false;
  uint64_t metadata_count_ = 0;
  bool tensor_count_given_ = false;
  uint64_t tensor_count_ = 0;
};

// `n` repeatable floats, spread evenly over [-scale, scale]; another seed gives others.
std::vector<float> TestFloats(int64_t n, uint32_t seed, float scale = 1.0f);

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_SUPPORT_GGUF_BUILDER_H_
