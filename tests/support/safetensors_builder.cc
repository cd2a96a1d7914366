#include "support/safetensors_builder.h"

#include <cstring>

#include "tensor/dequant.h"

namespace ballast::testing {

SafetensorsBuilder& SafetensorsBuilder::Add(const std::string& name, DType dtype,
                                            const std::vector<int64_t>& shape,
                                            const std::vector<float>& values) {
  int64_t n = 1;
  std::string dims;
  for (const int64_t dim : shape) {
    n *= dim;
    dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
  }
  const size_t begin = data_.size();
  for (int64_t i = 0; i < n; ++i) {
    const float value = values[static_cast<size_t>(i) % values.size()];
    uint8_t bytes[4];
    size_t width = 2;
    if (dtype == DType::kF32) {
      std::memcpy(bytes, &value, width = 4);
    } else {
      const uint16_t half = dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      std::memcpy(bytes, &half, sizeof(half));
    }
    data_.insert(data_.end(), bytes, bytes + width);
  }
  entries_ += (entries_.empty() ? "" : ", ") + ("\"" + name) + "\": {\"dtype\": \"" +
              std::string(Info(dtype).name) + "\", \"shape\": [" + dims + "], \"data_offsets\": [" +
              std::to_string(begin) + ", " + std::to_string(data_.size()) + "]}";
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::AddRaw(const std::string& name, const std::string& entry,
                                               size_t bytes) {
  entries_ += (entries_.empty() ? "" : ", ") + ("\"" + name) + "\": " + entry;
  data_.resize(data_.size() + bytes, 7);
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::SetHeader(const std::string& text) {
  header_ = text;
  return *this;
}

SafetensorsBuilder& SafetensorsBuilder::SetTail(const std::string& bytes) {
  tail_ = bytes;
  return *this;
}

std::vector<uint8_t> SafetensorsBuilder::Build() const {
  std::string header = header_.empty() ? "{" + entries_ + "}" : header_;
  if (header_.empty()) header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string all(reinterpret_cast<const char*>(&length), sizeof(length));
  all += header;
  all.append(data_.begin(), data_.end());
  all += tail_;
  return {all.begin(), all.end()};
}

}  // namespace ballast::testing
