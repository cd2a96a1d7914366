// safetensors: the weight file format of Hugging Face, as Ballast reads it.
//
// A file is little-endian and made of three parts, one after another:
//
//   length   u64: bytes of the header
//   header   a JSON object: per tensor "name": {"dtype": "BF16", "shape": [rows, cols], "data_offsets":
//            [begin, end]}, offsets counted from the start of the data; and, if wanted, "__metadata__": an
//            object of texts. Spaces may follow it, to align the data.
//   data     the tensors, row-major, without gaps or overlaps, to the end of the file
//
// Source of these facts: the format's README (huggingface/safetensors) and its audit of 2023.
//
// The file is hostile until proven good. Invariants of what Read accepts: 1. every tensor's bytes lie inside
// the file and are as many as its shape and type need, without any product wrapping; 2. the tensors cover the
// data exactly: no hole, no overlap, no tail in which something else could hide; 3. no name comes twice;
// 4. memory is a small multiple of the header, whose length is bounded. Every refusal is kModel, one line.
// Thread safety: pure function.
#ifndef BALLAST_FORMATS_SAFETENSORS_H_
#define BALLAST_FORMATS_SAFETENSORS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace ballast {

inline constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;  // the format's own bound
inline constexpr uint64_t kSafetensorsMaxTensors = 1 << 17;
inline constexpr size_t kSafetensorsMaxDims = 8;
inline constexpr size_t kSafetensorsMaxName = 512;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // "BF16", or one that Ballast does not compute with: "I64"
  std::vector<uint64_t> shape;  // outermost first; empty for a scalar
  uint64_t offset = 0;          // bytes from the start of the file
  uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;                      // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__"
};

// `name` opens messages.
Result<SafetensorsHeader> ReadSafetensors(const std::string& name, std::span<const uint8_t> bytes);

// F32, F16 and BF16; nothing for the rest.
std::optional<DType> SafetensorsDType(std::string_view dtype);

}  // namespace ballast

#endif  // BALLAST_FORMATS_SAFETENSORS_H_
