#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "formats/gguf.h"
#include "formats/json.h"
#include "formats/text.h"

namespace ballast {
namespace {

static_assert(std::endian::native == std::endian::little, "stored numbers are copied as they are");

struct StoredType {
  std::string_view name;
  uint64_t bytes;
};
constexpr StoredType kStoredTypes[] = {{"F32", 4},     {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8},
                                       {"I32", 4},     {"I16", 2}, {"I8", 1},   {"U8", 1},  {"F8_E4M3", 1},
                                       {"F8_E5M2", 1}, {"U16", 2}, {"U32", 4},  {"U64", 8}, {"BOOL", 1}};

const StoredType* FindType(std::string_view name) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string Number(uint64_t n) { return std::to_string(n); }

// Reads the header as it comes: a tree of 100 MB of "[[],[],..." would be gigabytes.
class HeaderSink : public JsonSink {
 public:
  HeaderSink(const std::string& name, SafetensorsHeader* out) : name_(name), out_(*out) {}

  bool Open(bool object) override {
    ++depth_;
    if (depth_ == 1) return true;  // ScanJson has seen the brace
    if (depth_ == 2) {
      if (!object) return Fail("an object", "a list");
      in_metadata_ = entry_.name == "__metadata__";
      return true;
    }
    if (depth_ != 3 || object || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) {
      return Fail(Wanted(), object ? "an object" : "a list");
    }
    return MarkField();
  }
  bool Close() override {
    --depth_;
    if (depth_ != 1 || in_metadata_) return true;
    return Finish();
  }
  bool Key(std::string& key) override {
    if (depth_ == 2) {
      field_ = std::move(key);
      return true;
    }
    in_metadata_ = false;
    entry_ = SafetensorsEntry();
    entry_.name = std::move(key);
    offsets_.clear();
    fields_ = 0;
    if (entry_.name.size() > kSafetensorsMaxName) {
      return Fail("a name of at most " + Number(kSafetensorsMaxName) + " bytes", Number(entry_.name.size()));
    }
    if (!names_.insert(entry_.name).second) return Fail("each name once", "this one twice");
    if (out_.tensors.size() >= kSafetensorsMaxTensors) {
      return Fail("at most " + Number(kSafetensorsMaxTensors) + " tensors", "more");
    }
    return true;
  }
  bool Value(nlohmann::json value) override {
    if (depth_ == 3 && value.is_number_unsigned()) {
      const bool shape = field_ == "shape";
      std::vector<uint64_t>& list = shape ? entry_.shape : offsets_;
      if (list.size() == (shape ? kSafetensorsMaxDims : 2)) {
        return Fail(shape ? "at most " + Number(kSafetensorsMaxDims) + " dimensions" : "two data_offsets",
                    "more");
      }
      list.push_back(value.get<uint64_t>());
      return true;
    }
    return Fail(Wanted(), "a value of another kind");
  }
  bool Text(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      out_.metadata.emplace_back(std::move(field_), std::move(text));
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") return Fail(Wanted(), "a text");
    entry_.dtype = std::move(text);
    return MarkField();
  }
  Status status() const override { return status_; }

 private:
  enum Field : int { kDtype = 1, kShape = 2, kOffsets = 4, kAll = 7 };

  std::string Wanted() const {
    if (in_metadata_) return "texts only";
    if (depth_ <= 1) return "an object of dtype, shape and data_offsets";
    if (depth_ >= 3) return "whole numbers in " + field_;
    return "dtype (a text), shape and data_offsets (lists of whole numbers)";
  }
  bool MarkField() {
    const int bit = field_ == "dtype" ? kDtype : field_ == "shape" ? kShape : kOffsets;
    if ((fields_ & bit) != 0) return Fail("each field once", field_ + " twice");
    fields_ |= bit;
    return true;
  }
  bool Finish() {
    if (fields_ != kAll || offsets_.size() != 2) {
      return Fail("dtype, shape and two data_offsets", "not all of them");
    }
    const StoredType* type = FindType(entry_.dtype);
    if (type == nullptr) return Fail("a dtype such as F32, F16 or BF16", QuoteName(entry_.dtype));
    uint64_t bytes = type->bytes;
    for (const uint64_t dim : entry_.shape) {
      if (dim != 0 && bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / dim) {
        return Fail("a shape whose bytes can be counted", "a product beyond 2^63");
      }
      bytes *= dim;
    }
    if (offsets_[0] > offsets_[1] || offsets_[1] - offsets_[0] != bytes) {
      return Fail("data_offsets " + Number(bytes) + " bytes apart, as shape and dtype say",
                  Number(offsets_[0]) + " to " + Number(offsets_[1]));
    }
    entry_.offset = offsets_[0];
    entry_.bytes = bytes;
    out_.tensors.push_back(std::move(entry_));
    return true;
  }
  bool Fail(std::string_view expected, std::string_view found) {
    std::string where = name_;
    if (depth_ > 0 && !entry_.name.empty()) where += ": tensor " + QuoteName(entry_.name);
    status_ = Status::Expected(Code::kModel, where, expected, found);
    return false;
  }

  const std::string& name_;
  SafetensorsHeader& out_;
  std::unordered_set<std::string> names_;
  SafetensorsEntry entry_;
  std::string field_;
  std::vector<uint64_t> offsets_;
  int fields_ = 0;
  int depth_ = 0;
  bool in_metadata_ = false;
  Status status_;
};

// Offsets counted from `start` become offsets in the file; the tensors must cover it to its end.
Status Place(const std::string& name, uint64_t start, uint64_t file_bytes, SafetensorsHeader* header) {
  std::stable_sort(header->tensors.begin(), header->tensors.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
                   });
  const uint64_t room = file_bytes - start;
  uint64_t end = 0;
  for (SafetensorsEntry& t : header->tensors) {
    const std::string where = name + ": tensor " + QuoteName(t.name);
    if (t.offset > room || t.bytes > room - t.offset) {
      return Status::Expected(
          Code::kModel, where, Number(t.bytes) + " bytes at offset " + Number(t.offset) + " of the data",
          "a file with " + Number(room) + " bytes of data", "the file seems cut short: download it again");
    }
    if (t.offset != end) {
      return Status::Expected(Code::kModel, where,
                              "data at offset " + Number(end) + ", behind the tensor before",
                              t.offset < end ? "an overlap with it" : "a hole before it");
    }
    end += t.bytes;
    t.offset += start;
  }
  if (end != room) {
    return Status::Expected(Code::kModel, name, "the end of the file behind the last tensor",
                            Number(room - end) + " bytes that belong to none");
  }
  return Status();
}

}  // namespace

std::optional<DType> SafetensorsDType(std::string_view dtype) {
  if (dtype == "F32") return DType::kF32;
  if (dtype == "F16") return DType::kF16;
  if (dtype == "BF16") return DType::kBF16;
  return std::nullopt;
}

Result<SafetensorsHeader> ReadSafetensors(const std::string& name, std::span<const uint8_t> bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length) + 2 || bytes[sizeof(length)] != '{') {
    return Status::Expected(Code::kModel, name, "a safetensors file", DescribeForeignFile(bytes));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  const uint64_t room = bytes.size() - sizeof(length);
  if (length > kSafetensorsMaxHeader) {
    return Status::Expected(Code::kModel, name + ": header",
                            "at most " + Number(kSafetensorsMaxHeader) + " bytes", Number(length));
  }
  if (length > room) {
    return Status::Expected(Code::kModel, name + ": header", Number(length) + " bytes",
                            Number(room) + " before the end of the file",
                            "the file seems cut short: download it again");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(length), length);
  SafetensorsHeader header;
  HeaderSink sink(name, &header);
  BALLAST_RETURN_IF_ERROR(ScanJson(name + ": header", text, &sink));
  BALLAST_RETURN_IF_ERROR(Place(name, sizeof(length) + length, bytes.size(), &header));
  return header;
}

}  // namespace ballast
