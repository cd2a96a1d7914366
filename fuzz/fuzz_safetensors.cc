// Any bytes at all as a safetensors file: refused with one clear line, or tensors that keep every promise of
// formats/safetensors.h. The first byte chooses what else is tried: the bytes as config.json of a folder, or
// as its index.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/safetensors.h"
#include "formats/tensor_file.h"

namespace ballast {
namespace {

void CheckRefusal(const Status& status) {
  BALLAST_CHECK(status.code() == Code::kModel);
  BALLAST_CHECK(status.message().starts_with("fuzz"));
  BALLAST_CHECK(status.message().size() < 1000);
  for (const char c : status.message()) BALLAST_CHECK(c >= 0x20 && c <= 0x7e);
}

void CheckWeights(const std::vector<uint8_t>& bytes) {
  const auto header = ReadSafetensors("fuzz", bytes);
  if (!header.ok()) return CheckRefusal(header.status());
  uint64_t end = bytes.size();
  for (size_t i = header->tensors.size(); i-- > 0;) {
    const SafetensorsEntry& t = header->tensors[i];
    BALLAST_CHECK(t.offset + t.bytes == end);
    end = t.offset;
  }
  BALLAST_CHECK(end >= 8 + 2);
}

void CheckFolder(std::map<std::string, std::vector<uint8_t>> files) {
  const auto file = TensorFile::ParseFolder("fuzz", std::move(files));
  if (!file.ok()) return CheckRefusal(file.status());
  for (const TensorFile::Meta& meta : file->metadata()) BALLAST_CHECK(file->Find(meta.key) == &meta.value);
  for (const TensorInfo& t : file->tensors()) {
    const MatrixView view = file->Matrix(t);
    BALLAST_CHECK(static_cast<uint64_t>(view.rows * view.row_bytes()) == t.bytes);
    volatile uint8_t sink = view.row(view.rows - 1)[view.row_bytes() - 1];
    static_cast<void>(sink);
  }
}

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

constexpr std::string_view kConfig =
    R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1,
        "intermediate_size": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 8})";
// An empty header, padded.
constexpr std::string_view kNoTensors("\x08\0\0\0\0\0\0\0{}      ", 16);

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::vector<uint8_t> bytes(data + 1, data + size);
  switch (data[0] % 4) {
    case 0:
      ballast::CheckWeights(bytes);
      break;
    case 1:
      ballast::CheckFolder({{"config.json", ballast::Bytes(ballast::kConfig)}, {"model.safetensors", bytes}});
      break;
    case 2:
      ballast::CheckFolder(
          {{"config.json", bytes}, {"model.safetensors", ballast::Bytes(ballast::kNoTensors)}});
      break;
    default:
      ballast::CheckFolder({{"config.json", ballast::Bytes(ballast::kConfig)},
                            {"model.safetensors.index.json", bytes},
                            {"a.safetensors", ballast::Bytes(ballast::kNoTensors)}});
  }
  return 0;
}
