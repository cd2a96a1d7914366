#include "formats/tensor_file.h"

#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "formats/gguf.h"
#include "formats/text.h"

namespace ballast {
namespace {

std::string DescribeValue(const MetaValue& value) {
  const auto array = [](std::string_view of, size_t count) {
    return "an array of " + std::to_string(count) + " " + std::string(of);
  };
  struct Visitor {
    decltype(array) list;
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(uint64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return "the number " + std::to_string(v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return "the text " + QuoteName(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return list("integers", v.size()); }
    std::string operator()(const std::vector<uint64_t>& v) const { return list("integers", v.size()); }
    std::string operator()(const std::vector<double>& v) const { return list("numbers", v.size()); }
    std::string operator()(const std::vector<bool>& v) const { return list("bools", v.size()); }
    std::string operator()(const std::vector<std::string>& v) const { return list("strings", v.size()); }
  };
  return std::visit(Visitor{array}, value);
}

Status WrongValue(const std::string& path, std::string_view key, std::string_view expected,
                  const MetaValue& found) {
  return Status::Expected(Code::kModel, path + ": metadata " + QuoteName(key), expected,
                          DescribeValue(found));
}

}  // namespace

std::string QuoteName(std::string_view name) {
  constexpr size_t kLongest = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (char c : name.substr(0, kLongest)) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte > 0x7e) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + (name.size() > kLongest ? "...'" : "'");
}

Result<TensorFile> TensorFile::Read(TensorFile file) {
  // The reader bounds every allocation by the size of the file; a small machine may still run out.
  try {
    BALLAST_RETURN_IF_ERROR(GgufReader::Read(&file));
  } catch (const std::bad_alloc&) {
    return Status(Code::kInternal, file.path_ + ": out of memory while reading the model file's header");
  } catch (const std::length_error&) {
    return Status(Code::kInternal, file.path_ + ": out of memory while reading the model file's header");
  }
  return file;
}

Result<TensorFile> TensorFile::Open(const std::string& path) {
  TensorFile file;
  file.path_ = path;
  BALLAST_ASSIGN_OR_RETURN(file.file_, MappedFile::Open(path));
  file.bytes_ = file.file_.bytes();
  return Read(std::move(file));
}

Result<TensorFile> TensorFile::Parse(std::string name, std::vector<uint8_t> bytes) {
  TensorFile file;
  file.path_ = std::move(name);
  file.owned_ = std::move(bytes);
  file.bytes_ = file.owned_;
  return Read(std::move(file));
}

const MetaValue* TensorFile::Find(std::string_view key) const {
  const auto it = meta_index_.find(key);
  return it == meta_index_.end() ? nullptr : &metadata_[it->second].value;
}

const TensorInfo* TensorFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<std::optional<int64_t>> TensorFile::Int(std::string_view key) const {
  const MetaValue* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const int64_t* v = std::get_if<int64_t>(value)) return std::optional<int64_t>(*v);
  const uint64_t* v = std::get_if<uint64_t>(value);
  if (v == nullptr) return WrongValue(path_, key, "an integer", *value);
  if (*v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return WrongValue(path_, key, "an integer below 2^63", *value);
  }
  return std::optional<int64_t>(static_cast<int64_t>(*v));
}

Result<std::optional<double>> TensorFile::Float(std::string_view key) const {
  const MetaValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (const int64_t* v = std::get_if<int64_t>(value)) {
    return std::optional<double>(static_cast<double>(*v));
  }
  if (const uint64_t* v = std::get_if<uint64_t>(value)) {
    return std::optional<double>(static_cast<double>(*v));
  }
  const double* v = std::get_if<double>(value);
  if (v == nullptr || !std::isfinite(*v)) return WrongValue(path_, key, "a finite number", *value);
  return std::optional<double>(*v);
}

Result<std::optional<bool>> TensorFile::Bool(std::string_view key) const {
  const MetaValue* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  const bool* v = std::get_if<bool>(value);
  if (v == nullptr) return WrongValue(path_, key, "a bool", *value);
  return std::optional<bool>(*v);
}

Result<std::optional<std::string>> TensorFile::String(std::string_view key) const {
  const MetaValue* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  const std::string* v = std::get_if<std::string>(value);
  if (v == nullptr) return WrongValue(path_, key, "a string", *value);
  return std::optional<std::string>(*v);
}

MatrixView TensorFile::Matrix(const TensorInfo& t) const {
  int64_t rows = 1;
  for (size_t i = 1; i < t.dims.size(); ++i) rows *= t.dims[i];
  return {t.dtype, rows, t.dims[0], Data(t)};
}

}  // namespace ballast
