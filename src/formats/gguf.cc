#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "formats/text.h"

namespace ballast {
namespace {

static_assert(std::endian::native == std::endian::little, "stored numbers are copied as they are");

constexpr std::string_view kTypeNames[kGgufTypeCount] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
constexpr char kCutShort[] = "the file seems cut short: download it again";

std::string Number(uint64_t n) { return std::to_string(n); }

// The element types Ballast computes with, for messages.
std::string KnownDTypes() {
  std::string out;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (i > 0) out += i + 1 == kDTypeCount ? " or " : ", ";
    out += Info(static_cast<DType>(i)).name;
  }
  return out;
}

// "[64, 2]"
std::string DimsText(const std::vector<int64_t>& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return out + "]";
}

// Calls read<Stored, Wide>() for a number type: how it is stored, and how MetaValue holds it.
template <typename Reader>
Status WithNumberType(GgufType type, const Reader& read) {
  switch (type) {
    case GgufType::kU8:
      return read.template operator()<uint8_t, uint64_t>();
    case GgufType::kI8:
      return read.template operator()<int8_t, int64_t>();
    case GgufType::kU16:
      return read.template operator()<uint16_t, uint64_t>();
    case GgufType::kI16:
      return read.template operator()<int16_t, int64_t>();
    case GgufType::kU32:
      return read.template operator()<uint32_t, uint64_t>();
    case GgufType::kI32:
      return read.template operator()<int32_t, int64_t>();
    case GgufType::kU64:
      return read.template operator()<uint64_t, uint64_t>();
    case GgufType::kI64:
      return read.template operator()<int64_t, int64_t>();
    case GgufType::kF32:
      return read.template operator()<float, double>();
    case GgufType::kF64:
      return read.template operator()<double, double>();
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  BALLAST_CHECK(false && "not a number type");
}

}  // namespace

Status GgufReader::Refuse(std::string_view what, std::string_view expected, std::string_view found,
                          std::string hint) const {
  std::string where = file_.path_ + ": " + std::string(section_);
  if (!name_.empty()) {
    where += " " + QuoteName(name_);
  } else if (section_ != "header") {
    where += " " + Number(index_);
  }
  where += " (byte " + Number(pos_) + "): " + std::string(what);
  return Status::Expected(Code::kModel, where, expected, found, std::move(hint));
}

Status GgufReader::RefuseTensor(const TensorInfo& tensor, std::string_view what, std::string_view expected,
                                std::string_view found, std::string hint) const {
  const std::string where = file_.path_ + ": tensor " + QuoteName(tensor.name) + ": " + std::string(what);
  return Status::Expected(Code::kModel, where, expected, found, std::move(hint));
}

Status GgufReader::Truncated(std::string_view what, std::string_view expected) const {
  return Refuse(what, expected, "the end of the file after " + Number(left()), kCutShort);
}

template <typename T>
Status GgufReader::Take(std::string_view what, T* out) {
  if (left() < sizeof(T)) return Truncated(what, Number(sizeof(T)) + " bytes");
  std::memcpy(out, bytes_.data() + pos_, sizeof(T));
  pos_ += sizeof(T);
  return {};
}

Status GgufReader::TakeString(std::string_view what, uint64_t max_bytes, std::string_view* out) {
  uint64_t length = 0;
  BALLAST_RETURN_IF_ERROR(Take(what, &length));
  if (length > max_bytes) {
    return Refuse(what, "at most " + Number(max_bytes) + " bytes of text", "a length of " + Number(length));
  }
  if (length > left()) return Truncated(what, Number(length) + " bytes of text");
  *out = {reinterpret_cast<const char*>(bytes_.data() + pos_), length};
  pos_ += length;
  return {};
}

Status GgufReader::TakeName(uint64_t max_bytes) {
  name_ = {};
  std::string_view name;
  BALLAST_RETURN_IF_ERROR(TakeString("name", max_bytes, &name));
  if (name.empty()) return Refuse("name", "at least one byte", "none");
  name_ = name;
  return {};
}

Status GgufReader::ReadHeader() {
  if (bytes_.size() < kGgufMagic.size() ||
      std::memcmp(bytes_.data(), kGgufMagic.data(), kGgufMagic.size()) != 0) {
    return Status::Expected(Code::kModel, file_.path_ + ": file format", "a GGUF model",
                            DescribeForeignFile(bytes_));
  }
  pos_ = kGgufMagic.size();
  BALLAST_RETURN_IF_ERROR(Take("version", &version_));
  if (version_ < kGgufMinVersion || version_ > kGgufMaxVersion) {
    pos_ -= sizeof(version_);
    const uint32_t swapped = __builtin_bswap32(version_);
    const bool big_endian = swapped >= 1 && swapped <= 0xffff;
    const std::string found =
        big_endian ? "a big-endian file of version " + Number(swapped) : "version " + Number(version_);
    return Refuse("version", "2 or 3, little-endian", found, "convert the model again with current tools");
  }
  BALLAST_RETURN_IF_ERROR(Take("tensor count", &tensor_count_));
  BALLAST_RETURN_IF_ERROR(Take("metadata count", &metadata_count_));
  const uint64_t most_metadata = std::min(kGgufMaxMetadata, left() / kGgufMinMetadataBytes);
  if (metadata_count_ > most_metadata) {
    return Refuse("metadata count", "at most " + Number(most_metadata) + " in a file of this size",
                  Number(metadata_count_));
  }
  const uint64_t most_tensors = std::min(kGgufMaxTensors, left() / kGgufMinTensorBytes);
  if (tensor_count_ > most_tensors) {
    return Refuse("tensor count", "at most " + Number(most_tensors) + " in a file of this size",
                  Number(tensor_count_));
  }
  file_.format_ = "GGUF v" + Number(version_);
  return {};
}

Status GgufReader::ReadMetadata() {
  section_ = "metadata";
  file_.metadata_.reserve(metadata_count_);
  for (index_ = 0; index_ < metadata_count_; ++index_) BALLAST_RETURN_IF_ERROR(ReadMetadataEntry());
  return {};
}

Status GgufReader::ReadMetadataEntry() {
  BALLAST_RETURN_IF_ERROR(TakeName(kGgufMaxKeyBytes));
  TensorFile::Meta meta;
  meta.key = name_;
  if (!file_.meta_index_.emplace(meta.key, file_.metadata_.size()).second) {
    return Refuse("key", "each key once", "it a second time");
  }
  uint32_t type = 0;
  BALLAST_RETURN_IF_ERROR(Take("value type", &type));
  if (type >= kGgufTypeCount) return Refuse("value type", "0 to 12", Number(type));
  BALLAST_RETURN_IF_ERROR(ReadValue(static_cast<GgufType>(type), &meta.value));
  file_.metadata_.push_back(std::move(meta));
  return {};
}

Status GgufReader::ReadValue(GgufType type, MetaValue* out) {
  if (type == GgufType::kArray) return ReadArray(out);
  if (type == GgufType::kString) {
    std::string_view text;
    BALLAST_RETURN_IF_ERROR(TakeString("string", std::numeric_limits<uint64_t>::max(), &text));
    *out = std::string(text);
    return {};
  }
  if (type == GgufType::kBool) {
    uint8_t byte = 0;
    BALLAST_RETURN_IF_ERROR(Take("value", &byte));
    if (byte > 1) return Refuse("bool", "0 or 1", Number(byte));
    *out = byte == 1;
    return {};
  }
  return WithNumberType(type, [&]<typename Stored, typename Wide>() -> Status {
    Stored stored{};
    BALLAST_RETURN_IF_ERROR(Take("value", &stored));
    *out = static_cast<Wide>(stored);
    return {};
  });
}

Status GgufReader::ReadArray(MetaValue* out) {
  uint32_t number = 0;
  uint64_t count = 0;
  BALLAST_RETURN_IF_ERROR(Take("array element type", &number));
  BALLAST_RETURN_IF_ERROR(Take("array count", &count));
  if (number >= kGgufTypeCount) return Refuse("array element type", "0 to 12", Number(number));
  const GgufType type = static_cast<GgufType>(number);
  if (type == GgufType::kArray) return Refuse("array element type", "numbers, bools or strings", "arrays");
  const uint64_t most = left() / GgufTypeBytes(type);
  if (count > most) {
    return Refuse("array count",
                  "at most " + Number(most) + " elements of " + std::string(kTypeNames[number]) + " in the " +
                      Number(left()) + " bytes left",
                  Number(count), kCutShort);
  }
  if (count > kGgufMaxArrayElements - array_elements_) {
    return Refuse("array count", "at most " + Number(kGgufMaxArrayElements) + " elements over all arrays",
                  Number(count) + " after " + Number(array_elements_));
  }
  array_elements_ += count;
  if (type == GgufType::kString) return ReadStrings(count, out);
  if (type == GgufType::kBool) return ReadBools(count, out);
  return WithNumberType(type, [&]<typename Stored, typename Wide>() -> Status {
    ReadNumbers<Stored, Wide>(count, out);
    return {};
  });
}

// REQUIRES: count elements are left in the file.
template <typename Stored, typename Wide>
void GgufReader::ReadNumbers(uint64_t count, MetaValue* out) {
  std::vector<Wide> values(count);
  const uint8_t* src = bytes_.data() + pos_;
  for (uint64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, src + i * sizeof(Stored), sizeof(Stored));
    values[i] = Wide{stored};
  }
  pos_ += count * sizeof(Stored);
  *out = std::move(values);
}

Status GgufReader::ReadStrings(uint64_t count, MetaValue* out) {
  std::vector<std::string> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    // The same as TakeString, but says nothing until something is wrong: a vocabulary has 10^5 of these.
    uint64_t length = 0;
    if (left() < sizeof(length)) return Truncated("string " + Number(i), "8 bytes");
    std::memcpy(&length, bytes_.data() + pos_, sizeof(length));
    if (length > left() - sizeof(length)) {
      pos_ += sizeof(length);
      return Truncated("string " + Number(i), Number(length) + " bytes of text");
    }
    values.emplace_back(reinterpret_cast<const char*>(bytes_.data() + pos_ + sizeof(length)), length);
    pos_ += sizeof(length) + length;
  }
  *out = std::move(values);
  return {};
}

Status GgufReader::ReadBools(uint64_t count, MetaValue* out) {
  std::vector<bool> values(count);
  for (uint64_t i = 0; i < count; ++i, ++pos_) {
    const uint8_t byte = bytes_[pos_];
    if (byte > 1) return Refuse("bool " + Number(i), "0 or 1", Number(byte));
    values[i] = byte == 1;
  }
  *out = std::move(values);
  return {};
}

Status GgufReader::CheckSplit() const {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> count, file_.Int(kGgufSplitCountKey));
  if (count.value_or(1) <= 1) return {};
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> index, file_.Int(kGgufSplitNumberKey));
  std::string found = "one of " + std::to_string(*count) + " parts";
  if (index && *index >= 0 && *index < *count) {
    found = "part " + std::to_string(*index + 1) + " of " + std::to_string(*count);
  }
  return Status::Expected(Code::kModel, file_.path_ + ": split.count", "a whole model in one file", found,
                          "join the parts: llama-gguf-split --merge FIRST_PART OUTPUT");
}

Status GgufReader::ReadAlignment() {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> given, file_.Int(kGgufAlignmentKey));
  if (!given) return {};
  const uint64_t alignment = *given < 0 ? 0 : static_cast<uint64_t>(*given);
  if (alignment < kGgufMinAlignment || alignment > kGgufMaxAlignment || !std::has_single_bit(alignment)) {
    return Status::Expected(
        Code::kModel, file_.path_ + ": metadata " + QuoteName(kGgufAlignmentKey),
        "a power of two from " + Number(kGgufMinAlignment) + " to " + Number(kGgufMaxAlignment),
        std::to_string(*given));
  }
  alignment_ = alignment;
  return {};
}

Status GgufReader::ReadTensors() {
  section_ = "tensor";
  name_ = {};
  file_.tensors_.reserve(tensor_count_);
  for (index_ = 0; index_ < tensor_count_; ++index_) BALLAST_RETURN_IF_ERROR(ReadTensorEntry());
  return {};
}

Status GgufReader::ReadTensorEntry() {
  BALLAST_RETURN_IF_ERROR(TakeName(kGgufMaxNameBytes));
  TensorInfo tensor;
  tensor.name = name_;
  if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
    return Refuse("name", "each tensor once", "it a second time");
  }
  BALLAST_RETURN_IF_ERROR(ReadDims(&tensor));
  uint32_t type_number = 0;
  BALLAST_RETURN_IF_ERROR(Take("type", &type_number));
  BALLAST_RETURN_IF_ERROR(Take("offset", &tensor.offset));
  BALLAST_RETURN_IF_ERROR(MeasureTensor(type_number, &tensor));
  file_.tensors_.push_back(std::move(tensor));
  return {};
}

Status GgufReader::ReadDims(TensorInfo* tensor) {
  uint32_t count = 0;
  BALLAST_RETURN_IF_ERROR(Take("dimension count", &count));
  if (count < 1 || count > kGgufMaxDims) return Refuse("dimension count", "1 to 4", Number(count));
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t dim = 0;
    const std::string what = "dimension " + Number(i);
    BALLAST_RETURN_IF_ERROR(Take(what, &dim));
    if (dim < 1 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Refuse(what, "1 to 2^63 - 1", Number(dim));
    }
    tensor->dims.push_back(static_cast<int64_t>(dim));
  }
  return {};
}

// Fills dtype and bytes from the stored type and dims.
Status GgufReader::MeasureTensor(uint32_t type_number, TensorInfo* tensor) const {
  const GgufTensorType type = LookUpGgufTensorType(type_number);
  if (!type.dtype) {
    const std::string name = type.name.empty() ? "an unknown type" : std::string(type.name);
    return RefuseTensor(*tensor, "type", KnownDTypes(), name + " (type " + Number(type_number) + ")",
                        "use another quantisation of this model, such as Q4_K or Q8_0");
  }
  tensor->dtype = *type.dtype;
  const DTypeInfo info = Info(tensor->dtype);
  if (tensor->dims[0] % info.block_elements != 0) {
    return RefuseTensor(
        *tensor, "row length",
        "a multiple of " + std::to_string(info.block_elements) + " for " + std::string(info.name),
        std::to_string(tensor->dims[0]));
  }
  int64_t elements = tensor->dims[0];
  int64_t bytes = 0;
  bool wraps = __builtin_mul_overflow(tensor->dims[0] / info.block_elements,
                                      static_cast<int64_t>(info.block_bytes), &bytes);
  for (size_t i = 1; i < tensor->dims.size(); ++i) {
    wraps |= __builtin_mul_overflow(elements, tensor->dims[i], &elements);
    wraps |= __builtin_mul_overflow(bytes, tensor->dims[i], &bytes);
  }
  if (wraps) {
    return RefuseTensor(*tensor, "shape", "a size below 2^63", DimsText(tensor->dims));
  }
  tensor->bytes = static_cast<uint64_t>(bytes);
  return {};
}

// Turns offsets within the data into offsets within the file, each checked against its end.
Status GgufReader::PlaceTensors() {
  // No sum below can wrap: the file's size, and so pos_, is below 2^63, and the alignment is small.
  const uint64_t data_start = (pos_ + alignment_ - 1) & ~(alignment_ - 1);
  for (TensorInfo& t : file_.tensors_) {
    if (t.offset % alignment_ != 0) {
      return RefuseTensor(t, "offset", "a multiple of " + Number(alignment_), Number(t.offset));
    }
    const uint64_t room = bytes_.size() < data_start ? 0 : bytes_.size() - data_start;
    if (t.offset > room || t.bytes > room - t.offset) {
      return RefuseTensor(t, "data",
                          Number(t.bytes) + " bytes at offset " + Number(t.offset) + " of the data",
                          "a file with " + Number(room) + " bytes of data", kCutShort);
    }
    t.offset += data_start;
  }
  return CheckOverlaps();
}

Status GgufReader::CheckOverlaps() const {
  std::vector<const TensorInfo*> order(file_.tensors_.size());
  std::transform(file_.tensors_.begin(), file_.tensors_.end(), order.begin(),
                 [](const TensorInfo& t) { return &t; });
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = *order[i - 1];
    if (before.offset + before.bytes <= order[i]->offset) continue;
    return RefuseTensor(*order[i], "data", "bytes of its own",
                        "an overlap with tensor " + QuoteName(before.name));
  }
  return {};
}

Status GgufReader::Read(TensorFile* file) {
  GgufReader reader(file);
  BALLAST_RETURN_IF_ERROR(reader.ReadHeader());
  BALLAST_RETURN_IF_ERROR(reader.ReadMetadata());
  BALLAST_RETURN_IF_ERROR(reader.CheckSplit());
  BALLAST_RETURN_IF_ERROR(reader.ReadAlignment());
  BALLAST_RETURN_IF_ERROR(reader.ReadTensors());
  return reader.PlaceTensors();
}

}  // namespace ballast
