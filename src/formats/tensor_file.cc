#include "formats/tensor_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/sha256.h"
#include "formats/gguf.h"
#include "formats/hf_folder.h"
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

namespace {

// The readers bound every allocation by the size of the files; a small machine may still run out.
template <typename Read>
Status WithinMemory(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return Status(Code::kInternal, path + ": out of memory while reading the model file's header");
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

Result<TensorFile> TensorFile::Open(const std::string& path) {
  TensorFile file;
  file.path_ = path;
  constexpr std::string_view kSuffix = ".safetensors";
  if (IsFolder(path) || path.ends_with(kSuffix)) {
    if (!IsFolder(path)) {
      const size_t slash = path.rfind('/');
      file.path_ = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
      BALLAST_RETURN_IF_ERROR(MappedFile::Open(path).status());  // a name that is not there
    }
    while (file.path_.size() > 1 && file.path_.back() == '/') file.path_.pop_back();
    BALLAST_RETURN_IF_ERROR(WithinMemory(file.path_, [&] { return HfFolderReader::Read(&file, nullptr); }));
    return file;
  }
  Part part;
  BALLAST_ASSIGN_OR_RETURN(part.mapped, MappedFile::Open(path));
  part.bytes = part.mapped.bytes();
  file.parts_.push_back(std::move(part));
  BALLAST_RETURN_IF_ERROR(WithinMemory(path, [&] { return GgufReader::Read(&file); }));
  return file;
}

Result<TensorFile> TensorFile::Parse(std::string name, std::vector<uint8_t> bytes) {
  TensorFile file;
  file.path_ = std::move(name);
  Part part;
  part.owned = std::move(bytes);
  part.bytes = part.owned;
  file.parts_.push_back(std::move(part));
  BALLAST_RETURN_IF_ERROR(WithinMemory(file.path_, [&] { return GgufReader::Read(&file); }));
  return file;
}

Result<TensorFile> TensorFile::ParseFolder(std::string name,
                                           std::map<std::string, std::vector<uint8_t>> files) {
  TensorFile file;
  file.path_ = std::move(name);
  BALLAST_RETURN_IF_ERROR(WithinMemory(file.path_, [&] { return HfFolderReader::Read(&file, &files); }));
  return file;
}

uint64_t TensorFile::file_bytes() const {
  uint64_t sum = 0;
  for (const Part& part : parts_) sum += part.name.empty() && parts_.size() > 1 ? 0 : part.bytes.size();
  return sum;
}

Result<std::string> TensorFile::ContentHash(FunctionRef<bool()> go_on) const {
  const auto hash_of = [&](std::span<const uint8_t> bytes) -> Result<std::string> {
    constexpr size_t kPiece = size_t{1} << 20;
    Sha256 hash;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      if (!go_on()) return Status(Code::kInterrupted, path_ + ": interrupted");
      hash.Add(bytes.subspan(at, std::min(kPiece, bytes.size() - at)));
    }
    return hash.Hex();
  };
  if (parts_.size() == 1 && parts_[0].name.empty()) return hash_of(parts_[0].bytes);
  std::map<std::string_view, std::string> lines;
  for (const Part& part : parts_) {
    if (part.name.empty()) continue;  // made from the others
    BALLAST_ASSIGN_OR_RETURN(const std::string hash, hash_of(part.bytes));
    lines[part.name] = hash + "  " + part.name + "\n";
  }
  std::string all;
  for (const auto& [name, line] : lines) all += line;
  return Sha256Hex({reinterpret_cast<const uint8_t*>(all.data()), all.size()});
}

std::optional<std::string_view> TensorFile::SideFile(std::string_view name) const {
  for (const Part& part : parts_) {
    if (part.name != name || name.empty()) continue;
    return std::string_view(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  }
  return std::nullopt;
}

bool TensorFile::AddMeta(std::string key, MetaValue value) {
  if (!meta_index_.emplace(key, metadata_.size()).second) return false;
  metadata_.push_back({std::move(key), std::move(value)});
  return true;
}

bool TensorFile::AddTensor(TensorInfo tensor) {
  if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) return false;
  tensors_.push_back(std::move(tensor));
  return true;
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
