// Hostile files: a gallery of them, a good file cut at every byte, and one with every header field made evil.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "formats/tensor_file.h"
#include "support/gguf_builder.h"
#include "support/temp_path.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;
using testing::GgufBuilder;
using testing::TestFloats;

const fs::path kTests = BALLAST_TEST_DATA;
const fs::path kGallery = kTests / "formats" / "bad_gguf";
const fs::path kSeeds = kTests.parent_path() / "fuzz" / "corpus" / "gguf";

Bytes ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// File name -> the piece of message that must refuse it.
std::map<std::string, std::string> Manifest() {
  std::map<std::string, std::string> out;
  std::ifstream file(kGallery / "manifest.tsv");
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    if (tab != std::string::npos) out[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return out;
}

// Empty when `status` is a refusal as a user should see it, else what is wrong with it.
std::string RefusalFault(const Status& status, const std::string& path) {
  const std::string& m = status.message();
  if (status.code() != Code::kModel) return "code is not kModel: " + m;
  if (!m.starts_with(path + ": ")) return "does not open with the path: " + m;
  if (m.find(": expected ") == std::string::npos || m.find(", found ") == std::string::npos) {
    return "does not say expected and found: " + m;
  }
  for (char c : m) {
    if (c < 0x20 || c > 0x7e) return "is not one plain line: " + m;
  }
  if (m.size() > 600) return "is too long: " + m;
  return "";
}

// Empty when the file keeps the promises of tensor_file.h.
std::string PromiseFault(const TensorFile& file) {
  std::vector<bool> taken(file.file_bytes());
  for (const TensorInfo& t : file.tensors()) {
    if (t.dims.empty() || t.dims.size() > 4) return t.name + ": dims";
    if (t.bytes == 0 || t.offset > file.file_bytes() || t.bytes > file.file_bytes() - t.offset) {
      return t.name + ": range";
    }
    const MatrixView view = file.Matrix(t);
    if (static_cast<uint64_t>(view.rows * view.row_bytes()) != t.bytes) return t.name + ": bytes";
    for (uint64_t i = t.offset; i < t.offset + t.bytes; ++i) {
      if (taken[i]) return t.name + ": overlap";
      taken[i] = true;
    }
  }
  return "";
}

std::string ParseFault(const Bytes& bytes) {
  const auto file = TensorFile::Parse("x.gguf", bytes);
  return file.ok() ? PromiseFault(*file) : RefusalFault(file.status(), "x.gguf");
}

// A small file with something of everything, ending with its last tensor's last byte.
GgufBuilder SmallFile() {
  GgufBuilder b;
  b.Set("general.architecture", "llama").Set("general.alignment", 32u).Set("llama.block_count", 2u);
  b.Set("llama.rope.freq_base", 1e4f).Set("tokenizer.ggml.add_bos_token", false);
  b.Set("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "", "hello"});
  b.Set("tokenizer.ggml.scores", std::vector<float>{0, -1, -2});
  b.AddTensor("token_embd.weight", DType::kQ8_0, {32, 3}, TestFloats(96, 1));
  b.AddTensor("output_norm.weight", DType::kF32, {8}, TestFloats(8, 2));
  return b;
}

TEST(GgufGallery, EveryBadFileIsRefusedWithItsMessage) {
  const auto manifest = Manifest();
  ASSERT_GE(manifest.size(), 40u);
  for (const auto& [name, fragment] : manifest) {
    const fs::path path = kGallery / name;
    ASSERT_TRUE(fs::exists(path)) << path;
    const auto file = TensorFile::Parse("x.gguf", ReadAll(path));
    ASSERT_FALSE(file.ok()) << name << " was accepted";
    EXPECT_EQ(RefusalFault(file.status(), "x.gguf"), "") << name;
    EXPECT_NE(file.status().message().find(fragment), std::string::npos)
        << name << ": expected \"" << fragment << "\" in: " << file.status().message();
  }
}

TEST(GgufGallery, EveryBadFileIsRefusedFromDiskToo) {
  for (const auto& [name, fragment] : Manifest()) {
    const std::string path = kGallery / name;
    const auto file = TensorFile::Open(path);
    ASSERT_FALSE(file.ok()) << name << " was accepted";
    EXPECT_EQ(file.status().code(), Code::kModel) << name;
    EXPECT_NE(file.status().message().find(name), std::string::npos) << file.status().message();
  }
}

TEST(GgufGallery, ManifestListsEveryFile) {
  const auto manifest = Manifest();
  for (const auto& entry : fs::directory_iterator(kGallery)) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "manifest.tsv" || manifest.contains(name)) << name;
  }
}

TEST(GgufGallery, SeedsAreAccepted) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kSeeds)) {
    if (!entry.path().filename().string().starts_with("good_")) continue;
    const auto file = TensorFile::Parse("x.gguf", ReadAll(entry.path()));
    ASSERT_TRUE(file.ok()) << entry.path() << ": " << file.status().message();
    EXPECT_EQ(PromiseFault(*file), "") << entry.path();
    ++count;
  }
  EXPECT_GE(count, 5);
}

TEST(GgufGallery, TheScriptStillMakesTheCommittedFiles) {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "no python3";
  const fs::path made = testing::TempPath("gallery");
  const fs::path script = kTests.parent_path() / "tools" / "make_bad_gguf.py";
  const std::string command = "python3 '" + script.string() + "' '" + (made / "bad").string() + "' '" +
                              (made / "good").string() + "'";
  ASSERT_EQ(std::system((command + " >/dev/null").c_str()), 0) << command;
  int count = 0;
  for (const auto& [folder, committed] : {std::pair{made / "bad", kGallery}, {made / "good", kSeeds}}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      EXPECT_EQ(ReadAll(entry.path()), ReadAll(committed / entry.path().filename())) << entry.path();
      ++count;
    }
  }
  EXPECT_GE(count, 50);
}

// CVE-2024-12055, and llama.cpp issue 6774: a file cut short was read past its end.
TEST(GgufHostile, CutAtEveryByteIsRefused) {
  const Bytes whole = SmallFile().Build();
  ASSERT_TRUE(TensorFile::Parse("x.gguf", whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto file = TensorFile::Parse("x.gguf", Bytes(whole.begin(), whole.begin() + static_cast<long>(n)));
    ASSERT_FALSE(file.ok()) << "cut to " << n << " bytes was accepted";
    ASSERT_EQ(RefusalFault(file.status(), "x.gguf"), "") << n;
  }
}

TEST(GgufHostile, EveryHeaderByteFlipped) {
  const GgufBuilder builder = SmallFile();
  Bytes bytes = builder.Build();
  for (size_t i = 0; i < builder.HeaderBytes(); ++i) {
    const uint8_t was = bytes[i];
    for (int value = 0; value < 256; ++value) {
      bytes[i] = static_cast<uint8_t>(value);
      ASSERT_EQ(ParseFault(bytes), "") << "byte " << i << " set to " << value;
    }
    bytes[i] = was;
  }
}

// Counts, lengths, types, dims and offsets, wherever they lie: every 4 and 8 bytes set to a number at an
// edge.
TEST(GgufHostile, EveryFieldSetToAnEdge) {
  const GgufBuilder builder = SmallFile();
  const Bytes good = builder.Build();
  const uint64_t size = good.size();
  std::set<uint64_t> edges = {0, 1, size - 1, size, size + 1, uint64_t{1} << 42};
  for (int power : {15, 16, 31, 32, 61, 62, 63}) {
    edges.insert((uint64_t{1} << power) - 1);
    edges.insert(uint64_t{1} << power);
    edges.insert((uint64_t{1} << power) + 1);
  }
  for (uint64_t below = 1; below <= 64; below *= 2) edges.insert(0 - below);
  for (size_t i = 0; i + 8 <= builder.HeaderBytes(); ++i) {
    for (uint64_t edge : edges) {
      for (size_t width : {4, 8}) {
        Bytes bytes = good;
        std::memcpy(bytes.data() + i, &edge, width);
        ASSERT_EQ(ParseFault(bytes), "") << width << " bytes at " << i << " set to " << edge;
      }
    }
  }
}

// llama.cpp issue 19856 and CVE-2025-53630: sums over many entries, each of which is fine alone.
TEST(GgufHostile, ManyTensorsWhoseSizesSumPast64Bits) {
  GgufBuilder b;
  for (int i = 0; i < 16; ++i) b.AddRawTensor(std::to_string(i), 0, {uint64_t{1} << 60}, Bytes(32));
  const auto file = TensorFile::Parse("x.gguf", b.Build());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("4611686018427387904 bytes"), std::string::npos)
      << file.status().message();
}

TEST(GgufHostile, EveryTypeBallastReadsMeasuresItsBlocks) {
  for (uint32_t number = 0; number < 64; ++number) {
    const GgufTensorType type = LookUpGgufTensorType(number);
    if (!type.dtype) continue;
    const DTypeInfo info = Info(*type.dtype);
    const uint64_t row = static_cast<uint64_t>(info.block_elements) * 2;
    const size_t bytes = static_cast<size_t>(info.block_bytes) * 2 * 3;
    GgufBuilder b;
    b.AddRawTensor("w", number, {row, 3}, Bytes(bytes));
    EXPECT_TRUE(TensorFile::Parse("x.gguf", b.Build()).ok()) << info.name;
    GgufBuilder cut;
    cut.AddRawTensor("w", number, {row, 3}, Bytes(bytes - 1));
    EXPECT_FALSE(TensorFile::Parse("x.gguf", cut.Build()).ok()) << info.name;
  }
}

}  // namespace
}  // namespace ballast
