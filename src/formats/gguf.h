// GGUF: the model file format of the ggml family, as Ballast reads it.
//
// A file is little-endian and made of four parts, one after another:
//
//   header      4 bytes "GGUF", u32 version, u64 tensor count, u64 metadata count
//   metadata    per entry: string key, u32 value type, value
//   tensors     per entry: string name, u32 dimension count, u64 per dimension (the first is contiguous in
//               memory), u32 tensor type, u64 offset counted from the start of the data
//   data        starts at the next multiple of the alignment; every tensor offset is a multiple of it too
//
// A string is a u64 length and that many bytes, with no terminator. An array is a u32 element type, a u64
// count and the elements, packed. A bool is one byte, 0 or 1. The alignment is 32 unless the metadata says
// otherwise under "general.alignment". Versions 2 and 3 differ only in that 3 may be big-endian, which is
// refused here; version 1 had 32-bit counts and lengths, and is refused too.
// Source of these facts: the GGUF specification (ggml, docs/gguf.md).
//
// The file is hostile until proven good. Invariants: 1. No byte is read before its range was compared with
// the size of the file. 2. No sum or product of numbers from the file can wrap. 3. No allocation is larger
// than a small multiple of the file, whatever its counts claim. 4. Every refusal is kModel, one line, and
// opens with the file's path.
// Thread safety: none needed; one reader reads one file.
#ifndef BALLAST_FORMATS_GGUF_H_
#define BALLAST_FORMATS_GGUF_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/tensor_file.h"
#include "tensor/dtype.h"

namespace ballast {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint32_t kGgufMinVersion = 2;
inline constexpr uint32_t kGgufMaxVersion = 3;
inline constexpr uint64_t kGgufHeaderBytes = 24;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr std::string_view kGgufSplitCountKey = "split.count";
inline constexpr std::string_view kGgufSplitNumberKey = "split.no";
inline constexpr uint64_t kGgufDefaultAlignment = 32;

// Bounds of our own, far above any real model, so that a header cannot ask for the whole machine.
inline constexpr uint64_t kGgufMinAlignment = 8;
inline constexpr uint64_t kGgufMaxAlignment = 1 << 16;
inline constexpr uint64_t kGgufMaxMetadata = 1 << 16;       // entries
inline constexpr uint64_t kGgufMaxTensors = 1 << 17;        // entries
inline constexpr uint64_t kGgufMaxArrayElements = 1 << 24;  // over all arrays of the file
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;         // the specification's bound
inline constexpr uint64_t kGgufMaxNameBytes = 256;          // the specification says 64
inline constexpr uint32_t kGgufMaxDims = 4;

// The smallest a metadata entry (key of one byte, value of one byte) and a tensor entry (name of one byte,
// one dimension) can be.
inline constexpr uint64_t kGgufMinMetadataBytes = 8 + 1 + 4 + 1;
inline constexpr uint64_t kGgufMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Metadata value types, numbered as stored.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kGgufTypeCount = 13;

// Bytes of one stored value; for a string the length alone, for an array its type and count.
constexpr uint64_t GgufTypeBytes(GgufType type) {
  constexpr uint64_t kBytes[kGgufTypeCount] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return kBytes[static_cast<uint32_t>(type)];
}

// The stored tensor type `number`: its name ("IQ4_XS"), empty when we know none; and the element type Ballast
// computes with, if it has one.
struct GgufTensorType {
  std::string_view name;
  std::optional<DType> dtype;
};
GgufTensorType LookUpGgufTensorType(uint32_t number);

// What a file that is not GGUF seems to be, from its first bytes: "an HTML page", "a zip archive (...)".
std::string DescribeForeignFile(std::span<const uint8_t> bytes);

// Fills the TensorFile, whose only part holds the bytes already.
class GgufReader {
 public:
  static Status Read(TensorFile* file);

 private:
  explicit GgufReader(TensorFile* file) : file_(*file), bytes_(file->parts_[0].bytes) {}

  // Each reads the part it is named for, and leaves pos_ behind it.
  Status ReadHeader();
  Status ReadMetadata();
  Status ReadMetadataEntry();
  Status ReadValue(GgufType type, MetaValue* out);
  Status ReadArray(MetaValue* out);
  Status ReadStrings(uint64_t count, MetaValue* out);
  Status ReadBools(uint64_t count, MetaValue* out);
  template <typename Stored, typename Wide>
  void ReadNumbers(uint64_t count, MetaValue* out);
  Status ReadTensors();
  Status ReadTensorEntry();
  Status ReadDims(TensorInfo* tensor);

  // Rules about the whole file.
  Status CheckSplit() const;
  Status ReadAlignment();
  Status MeasureTensor(uint32_t type_number, TensorInfo* tensor) const;
  Status PlaceTensors();
  Status CheckOverlaps() const;

  // Takes the next bytes; fails when the file ends first. `what` names the field in the message.
  template <typename T>
  Status Take(std::string_view what, T* out);
  Status TakeString(std::string_view what, uint64_t max_bytes, std::string_view* out);
  Status TakeName(uint64_t max_bytes);  // into name_
  uint64_t left() const { return bytes_.size() - pos_; }

  // "<path>: <where>: expected <expected>, found <found>", where the part being read is named by section_
  // and name_.
  Status Refuse(std::string_view what, std::string_view expected, std::string_view found,
                std::string hint = "") const;
  Status RefuseTensor(const TensorInfo& tensor, std::string_view what, std::string_view expected,
                      std::string_view found, std::string hint = "") const;
  Status Truncated(std::string_view what, std::string_view expected) const;

  TensorFile& file_;
  std::span<const uint8_t> bytes_;
  uint64_t pos_ = 0;
  uint32_t version_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t metadata_count_ = 0;
  uint64_t array_elements_ = 0;
  uint64_t alignment_ = kGgufDefaultAlignment;
  std::string_view section_ = "header";  // or "metadata", "tensor": what pos_ is inside of
  uint64_t index_ = 0;                   // which one, from 0
  std::string_view name_;                // its key or name once known; points into bytes_
};

}  // namespace ballast

#endif  // BALLAST_FORMATS_GGUF_H_
