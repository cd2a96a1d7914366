// TensorFile: what every model file format boils down to: metadata, and named tensors whose bytes are mapped.
// Thread safety: const after Open. Invariant: every tensor's byte range lies inside the file, is aligned, and
// overlaps no other; shapes and products fit in int64.
#ifndef BALLAST_FORMATS_TENSOR_FILE_H_
#define BALLAST_FORMATS_TENSOR_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mmap.h"
#include "base/status.h"
#include "tensor/tensor.h"

namespace ballast {

// A metadata value. Integers of every width are widened; arrays keep one element kind.
using MetaValue =
    std::variant<int64_t, uint64_t, double, bool, std::string, std::vector<int64_t>, std::vector<uint64_t>,
                 std::vector<double>, std::vector<bool>, std::vector<std::string>>;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // dims[0] is contiguous; 1 to 4 of them, each >= 1
  uint64_t offset = 0;        // bytes from the start of the file
  uint64_t bytes = 0;
};

class TensorFile {
 public:
  // Reads a GGUF v2 or v3 file (see gguf.h). Errors are kModel and name the file, what, expected and found.
  static Result<TensorFile> Open(const std::string& path);
  // The same from memory; `name` stands for the path in messages. Owns the bytes.
  static Result<TensorFile> Parse(std::string name, std::vector<uint8_t> bytes);

  const std::string& path() const { return path_; }
  const std::string& format() const { return format_; }  // "GGUF v3"
  uint64_t file_bytes() const { return bytes_.size(); }

  // Metadata in file order.
  struct Meta {
    std::string key;
    MetaValue value;
  };
  const std::vector<Meta>& metadata() const { return metadata_; }
  const MetaValue* Find(std::string_view key) const;  // null when absent
  // Typed access. Absent key -> nullopt; present with another type, or out of range -> kModel error. An array
  // is never a scalar, and Float refuses NaN and infinities.
  Result<std::optional<int64_t>> Int(std::string_view key) const;
  Result<std::optional<double>> Float(std::string_view key) const;  // accepts integers
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string>> String(std::string_view key) const;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* FindTensor(std::string_view name) const;  // null when absent
  const uint8_t* Data(const TensorInfo& t) const { return bytes_.data() + t.offset; }
  // The tensor as (rows, cols): cols = dims[0], rows = the product of the rest.
  MatrixView Matrix(const TensorInfo& t) const;
  // The mapping, for paging hints; empty after Parse.
  const MappedFile& file() const { return file_; }

 private:
  friend class GgufReader;
  // Fills in everything but path and bytes, which `file` holds already.
  static Result<TensorFile> Read(TensorFile file);

  std::string path_;
  std::string format_;
  MappedFile file_;
  std::vector<uint8_t> owned_;      // Parse only
  std::span<const uint8_t> bytes_;  // of file_ or owned_; neither moves its bytes when this object moves
  std::vector<Meta> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> meta_index_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace ballast

#endif  // BALLAST_FORMATS_TENSOR_FILE_H_
