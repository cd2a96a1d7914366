// Any bytes at all as a GGUF file: refused with one clear line, or parsed into a file that keeps every
// promise of formats/tensor_file.h.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/tensor_file.h"

namespace ballast {
namespace {

void CheckRefusal(const Status& status) {
  BALLAST_CHECK(status.code() == Code::kModel);
  BALLAST_CHECK(status.message().starts_with("fuzz.gguf: "));
  BALLAST_CHECK(status.message().size() < 1000);
  for (char c : status.message()) BALLAST_CHECK(c >= 0x20 && c <= 0x7e);
}

template <typename T>
void CheckGetter(const Result<T>& result) {
  if (!result.ok()) CheckRefusal(result.status());
}

// Reads every byte of every tensor, so that a range outside the file meets the address sanitizer.
void CheckTensors(const TensorFile& file) {
  std::vector<bool> taken(file.file_bytes());
  for (const TensorInfo& t : file.tensors()) {
    BALLAST_CHECK(file.FindTensor(t.name) == &t);
    BALLAST_CHECK(!t.dims.empty() && t.dims.size() <= 4);
    BALLAST_CHECK(t.bytes > 0 && t.offset <= file.file_bytes() && t.bytes <= file.file_bytes() - t.offset);
    const MatrixView view = file.Matrix(t);
    BALLAST_CHECK(view.rows >= 1 && view.cols >= 1);
    BALLAST_CHECK(static_cast<uint64_t>(view.rows * view.row_bytes()) == t.bytes);
    for (uint64_t i = 0; i < t.bytes; ++i) {
      BALLAST_CHECK(!taken[t.offset + i]);
      taken[t.offset + i] = true;
    }
    volatile uint8_t sink = 0;
    for (int64_t r = 0; r < view.rows; ++r) sink = view.row(r)[view.row_bytes() - 1];
    (void)sink;
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ballast::TensorFile;
  const auto file = TensorFile::Parse("fuzz.gguf", std::vector<uint8_t>(data, data + size));
  if (!file.ok()) {
    ballast::CheckRefusal(file.status());
    return 0;
  }
  for (const TensorFile::Meta& meta : file->metadata()) {
    BALLAST_CHECK(file->Find(meta.key) == &meta.value);
    ballast::CheckGetter(file->Int(meta.key));
    ballast::CheckGetter(file->Float(meta.key));
    ballast::CheckGetter(file->Bool(meta.key));
    ballast::CheckGetter(file->String(meta.key));
  }
  ballast::CheckTensors(*file);
  return 0;
}
