// TensorFile: what every model file format boils down to: metadata, and named tensors whose bytes are mapped.
//
// A model is one GGUF file, or a Hugging Face folder: config.json, safetensors shards and tokenizer files
// (see hf_folder.h). Both present the metadata keys and tensor names of GGUF.
// Thread safety: const after Open. Invariant: every tensor's byte range lies inside its file, is aligned to
// its element, and overlaps no other; shapes and products fit in int64.
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

#include "base/function_ref.h"
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
  uint64_t offset = 0;        // bytes from the start of its file
  uint64_t bytes = 0;
  uint32_t part = 0;  // which file of the model it lies in
};

class TensorFile {
 public:
  // Reads a GGUF v2 or v3 file (see gguf.h), or the Hugging Face folder at `path` or around the .safetensors
  // file at `path`. Errors are kModel and name the file, what, expected and found.
  static Result<TensorFile> Open(const std::string& path);
  // The same from memory; `name` stands for the path in messages. Owns the bytes.
  static Result<TensorFile> Parse(std::string name, std::vector<uint8_t> bytes);
  // A folder from memory: file names and their bytes.
  static Result<TensorFile> ParseFolder(std::string name, std::map<std::string, std::vector<uint8_t>> files);

  const std::string& path() const { return path_; }
  const std::string& format() const { return format_; }  // "GGUF v3", "safetensors, 2 files"
  uint64_t file_bytes() const;                           // of all files
  // SHA-256 of the file; of a folder, of what `sha256sum` prints for its files in the order of their names.
  // A large file takes a while: kInterrupted when go_on(), asked every few milliseconds, says no.
  Result<std::string> ContentHash(FunctionRef<bool()> go_on) const;

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
  const uint8_t* Data(const TensorInfo& t) const { return parts_[t.part].bytes.data() + t.offset; }
  // The tensor as (rows, cols): cols = dims[0], rows = the product of the rest.
  MatrixView Matrix(const TensorInfo& t) const;
  // Paging hints about a tensor's bytes, as MappedFile has them; nothing happens after Parse.
  void WillNeed(const TensorInfo& t) const { parts_[t.part].mapped.WillNeed(t.offset, t.bytes); }
  void DontNeed(const TensorInfo& t) const { parts_[t.part].mapped.DontNeed(t.offset, t.bytes); }
  void Touch(const TensorInfo& t) const { parts_[t.part].mapped.Touch(t.offset, t.bytes); }

  // The bytes of a file of the folder beside the weights ("tokenizer.json"); nothing for a GGUF file.
  std::optional<std::string_view> SideFile(std::string_view name) const;

  // One file of the model.
  struct Part {
    std::string name;            // within the folder; empty for a GGUF file, and for bytes made from others
    MappedFile mapped;           // empty when the bytes are owned
    std::vector<uint8_t> owned;  // Parse only
    std::span<const uint8_t> bytes;  // of either; neither moves its bytes when this object moves
  };

 private:
  friend class GgufReader;
  friend class HfFolderReader;
  // Adds to the index too. False when the key or name is there already.
  bool AddMeta(std::string key, MetaValue value);
  bool AddTensor(TensorInfo tensor);

  std::string path_;
  std::string format_;
  std::vector<Part> parts_;
  std::vector<Meta> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> meta_index_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace ballast

#endif  // BALLAST_FORMATS_TENSOR_FILE_H_
