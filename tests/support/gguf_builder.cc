#include "support/gguf_builder.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/status.h"
#include "tensor/dequant.h"

namespace ballast::testing {
namespace {

using Bytes = std::vector<uint8_t>;

// The tensor type numbers of the GGUF specification.
uint32_t GgmlType(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kBF16:
      return 30;
  }
  return 0;
}

void PutHalf(float value, Bytes* out) {
  const uint16_t bits = F32ToF16(value);
  out->push_back(static_cast<uint8_t>(bits & 0xff));
  out->push_back(static_cast<uint8_t>(bits >> 8));
}

// Packs 32 codes of 4 or 5 bits: element j's low nibble in the low half of byte j (j < 16) or the high half
// of byte j - 16; the fifth bits first, bit j of a little-endian word being element j's.
void PutCodes(const uint8_t* q, bool five_bits, Bytes* out) {
  if (five_bits) {
    uint32_t high = 0;
    for (int j = 0; j < 32; ++j) high |= static_cast<uint32_t>(q[j] >> 4) << j;
    for (int b = 0; b < 4; ++b) out->push_back(static_cast<uint8_t>(high >> (8 * b)));
  }
  for (int j = 0; j < 16; ++j) {
    out->push_back(static_cast<uint8_t>((q[j] & 15) | ((q[j + 16] & 15) << 4)));
  }
}

// Q4_0, Q5_0: value = d * (code - half), half = 8 or 16.
void PutSymmetric(const float* x, bool five_bits, Bytes* out) {
  const int half = five_bits ? 16 : 8;
  float extreme = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
  }
  // The value furthest from zero takes code 0, the only end that reaches `half` steps.
  PutHalf(extreme / static_cast<float>(-half), out);
  const float d = F16ToF32(F32ToF16(extreme / static_cast<float>(-half)));
  uint8_t q[32];
  for (int j = 0; j < 32; ++j) {
    const int code = d == 0 ? half : static_cast<int>(std::lround(x[j] / d)) + half;
    q[j] = static_cast<uint8_t>(std::clamp(code, 0, 2 * half - 1));
  }
  PutCodes(q, five_bits, out);
}

// Q4_1, Q5_1: value = d * code + m.
void PutOffset(const float* x, bool five_bits, Bytes* out) {
  const int top = five_bits ? 31 : 15;
  const float low = *std::min_element(x, x + 32);
  const float high = *std::max_element(x, x + 32);
  PutHalf((high - low) / static_cast<float>(top), out);
  PutHalf(low, out);
  const float d = F16ToF32(F32ToF16((high - low) / static_cast<float>(top)));
  const float m = F16ToF32(F32ToF16(low));
  uint8_t q[32];
  for (int j = 0; j < 32; ++j) {
    const int code = d == 0 ? 0 : static_cast<int>(std::lround((x[j] - m) / d));
    q[j] = static_cast<uint8_t>(std::clamp(code, 0, top));
  }
  PutCodes(q, five_bits, out);
}

// Q8_0: value = d * int8.
void PutQ8(const float* x, Bytes* out) {
  float peak = 0;
  for (int j = 0; j < 32; ++j) peak = std::max(peak, std::fabs(x[j]));
  PutHalf(peak / 127, out);
  const float d = F16ToF32(F32ToF16(peak / 127));
  for (int j = 0; j < 32; ++j) {
    const int code = d == 0 ? 0 : static_cast<int>(std::lround(x[j] / d));
    out->push_back(static_cast<uint8_t>(static_cast<int8_t>(std::clamp(code, -127, 127))));
  }
}

// Appends one block (one element for the plain types).
void PutBlock(DType type, const float* x, Bytes* out) {
  switch (type) {
    case DType::kF32: {
      uint8_t raw[4];
      std::memcpy(raw, x, 4);
      out->insert(out->end(), raw, raw + 4);
      return;
    }
    case DType::kF16:
      return PutHalf(*x, out);
    case DType::kBF16: {
      const uint16_t bits = F32ToBF16(*x);
      out->push_back(static_cast<uint8_t>(bits & 0xff));
      out->push_back(static_cast<uint8_t>(bits >> 8));
      return;
    }
    case DType::kQ4_0:
    case DType::kQ5_0:
      return PutSymmetric(x, type == DType::kQ5_0, out);
    case DType::kQ4_1:
    case DType::kQ5_1:
      return PutOffset(x, type == DType::kQ5_1, out);
    case DType::kQ8_0:
      return PutQ8(x, out);
    default:
      BALLAST_CHECK(false && "GgufBuilder has no encoder for this type");
  }
}

}  // namespace

void GgufBuilder::Put(const void* src, size_t n, Bytes* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(src);
  out->insert(out->end(), bytes, bytes + n);
}

void GgufBuilder::PutString(std::string_view text, Bytes* out) {
  const uint64_t length = text.size();
  Put(&length, sizeof(length), out);
  Put(text.data(), text.size(), out);
}

GgufBuilder& GgufBuilder::SetRaw(std::string_view key, uint32_t type, Bytes bytes) {
  entries_.push_back({std::string(key), type, std::move(bytes)});
  return *this;
}

bool GgufBuilder::Has(std::string_view key) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
}

void GgufBuilder::Remove(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& e) { return e.key == key; });
}

GgufBuilder& GgufBuilder::AddTensor(std::string_view name, DType dtype, std::vector<int64_t> dims,
                                    const std::vector<float>& data) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  const int block = Info(dtype).block_elements;
  BALLAST_CHECK(count == static_cast<int64_t>(data.size()));
  BALLAST_CHECK(dims[0] % block == 0);
  Bytes bytes;
  bytes.reserve(static_cast<size_t>(RowBytes(dtype, count)));
  for (int64_t i = 0; i < count; i += block) PutBlock(dtype, data.data() + i, &bytes);
  return AddRawTensor(name, GgmlType(dtype), {dims.begin(), dims.end()}, std::move(bytes));
}

GgufBuilder& GgufBuilder::AddRawTensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> dims,
                                       Bytes bytes) {
  tensors_.push_back({std::string(name), ggml_type, std::move(dims), std::move(bytes)});
  return *this;
}

GgufBuilder& GgufBuilder::Magic(std::string_view four_bytes) {
  magic_ = four_bytes;
  return *this;
}

GgufBuilder& GgufBuilder::Version(uint32_t version) {
  version_ = version;
  return *this;
}

GgufBuilder& GgufBuilder::MetadataCount(uint64_t count) {
  metadata_count_given_ = true;
  metadata_count_ = count;
  return *this;
}

GgufBuilder& GgufBuilder::TensorCount(uint64_t count) {
  tensor_count_given_ = true;
  tensor_count_ = count;
  return *this;
}

GgufBuilder& GgufBuilder::Alignment(uint64_t alignment) {
  alignment_ = alignment;
  return *this;
}

GgufBuilder& GgufBuilder::TensorOffset(std::string_view name, uint64_t offset) {
  for (Tensor& t : tensors_) {
    if (t.name != name) continue;
    t.offset_given = true;
    t.offset = offset;
  }
  return *this;
}

Bytes GgufBuilder::BuildHeader() const {
  Bytes out;
  Put(magic_.data(), magic_.size(), &out);
  Put(&version_, sizeof(version_), &out);
  const uint64_t tensor_count = tensor_count_given_ ? tensor_count_ : tensors_.size();
  const uint64_t metadata_count = metadata_count_given_ ? metadata_count_ : entries_.size();
  Put(&tensor_count, sizeof(tensor_count), &out);
  Put(&metadata_count, sizeof(metadata_count), &out);
  for (const Entry& e : entries_) {
    PutString(e.key, &out);
    Put(&e.type, sizeof(e.type), &out);
    Put(e.bytes.data(), e.bytes.size(), &out);
  }
  uint64_t place = 0;
  for (const Tensor& t : tensors_) {
    PutString(t.name, &out);
    const uint32_t dim_count = static_cast<uint32_t>(t.dims.size());
    Put(&dim_count, sizeof(dim_count), &out);
    for (uint64_t d : t.dims) Put(&d, sizeof(d), &out);
    Put(&t.type, sizeof(t.type), &out);
    const uint64_t offset = t.offset_given ? t.offset : place;
    Put(&offset, sizeof(offset), &out);
    place = (place + t.bytes.size() + alignment_ - 1) / alignment_ * alignment_;
  }
  return out;
}

size_t GgufBuilder::HeaderBytes() const { return BuildHeader().size(); }

Bytes GgufBuilder::Build() const {
  Bytes out = BuildHeader();
  const auto pad = [&] { out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_); };
  for (const Tensor& t : tensors_) {
    pad();
    out.insert(out.end(), t.bytes.begin(), t.bytes.end());
  }
  return out;
}

bool GgufBuilder::Write(const std::string& path) const {
  const Bytes bytes = Build();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file.good();
}

std::vector<float> TestFloats(int64_t n, uint32_t seed, float scale) {
  std::vector<float> out(static_cast<size_t>(n));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x853c49e6748fea9bu;
  for (float& x : out) {
    // splitmix64 (Steele, Lea, Flood 2014).
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    x = scale * (static_cast<float>(z >> 40) * 0x1p-23f - 1.0f);
  }
  return out;
}

}  // namespace ballast::testing
