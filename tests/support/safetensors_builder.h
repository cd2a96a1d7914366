// Writes safetensors bytes, right or wrong on purpose, for tests.
#ifndef BALLAST_TESTS_SUPPORT_SAFETENSORS_BUILDER_H_
#define BALLAST_TESTS_SUPPORT_SAFETENSORS_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace ballast::testing {

class SafetensorsBuilder {
 public:
  // Values are repeated or cut to the shape, outermost dimension first.
  SafetensorsBuilder& Add(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                          const std::vector<float>& values = {0.5f, -0.25f, 1.0f});
  // A tensor whose entry is this text, with `bytes` bytes of data.
  SafetensorsBuilder& AddRaw(const std::string& name, const std::string& entry, size_t bytes);
  SafetensorsBuilder& SetHeader(const std::string& text);  // instead of the header that Add made
  SafetensorsBuilder& SetTail(const std::string& bytes);
  std::vector<uint8_t> Build() const;

 private:
  std::string entries_;
  std::string header_;
  std::string tail_;
  std::vector<uint8_t> data_;
};

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_SUPPORT_SAFETENSORS_BUILDER_H_
