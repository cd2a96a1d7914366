// The safetensors reader: what it accepts, and a gallery of files that lie.
#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "support/safetensors_builder.h"

namespace ballast {
namespace {

using testing::SafetensorsBuilder;
using Bytes = std::vector<uint8_t>;

SafetensorsBuilder Good() {
  SafetensorsBuilder b;
  b.Add("a", DType::kF32, {2, 3}).Add("b", DType::kBF16, {4}).Add("c", DType::kF16, {1, 2});
  return b;
}

std::string Refusal(const Bytes& bytes) {
  const auto header = ReadSafetensors("x.safetensors", bytes);
  if (header.ok()) return "accepted";
  EXPECT_EQ(header.status().code(), Code::kModel);
  EXPECT_LT(header.status().message().size(), 600u);
  for (const char c : header.status().message()) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
  return header.status().message();
}

TEST(Safetensors, AGoodFileGivesShapesOutermostFirstAndOffsetsInTheFile) {
  const Bytes bytes = Good().Build();
  const auto header = ReadSafetensors("x", bytes);
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(header->tensors[1].dtype, "BF16");
  float first = 0;
  std::memcpy(&first, bytes.data() + header->tensors[0].offset, sizeof(first));
  EXPECT_EQ(first, 0.5f);
  EXPECT_EQ(header->tensors[2].offset + header->tensors[2].bytes, bytes.size());
}

TEST(Safetensors, MetadataTypesNotComputedWithScalarsAndEmptyTensorsAreRead) {
  SafetensorsBuilder b;
  b.AddRaw("__metadata__", R"({"format": "pt"})", 0);
  b.AddRaw("mask", R"({"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]})", 3);
  b.AddRaw("one", R"({"dtype": "I64", "shape": [], "data_offsets": [3, 11]})", 8);
  b.AddRaw("none", R"({"dtype": "F32", "shape": [0, 5], "data_offsets": [11, 11]})", 0);
  const auto header = ReadSafetensors("x", b.Build());
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->tensors.size(), 3u);
  ASSERT_EQ(header->metadata.size(), 1u);
  EXPECT_EQ(header->metadata[0].second, "pt");
}

TEST(Safetensors, EveryLieIsOneClearLine) {
  const auto entry = [](const std::string& text, size_t bytes) {
    return SafetensorsBuilder().AddRaw("t", text, bytes).Build();
  };
  const auto header = [](const std::string& text) { return SafetensorsBuilder().SetHeader(text).Build(); };
  const std::string kFour = R"("data_offsets": [0, 4]})";
  struct Case {
    std::string what;
    Bytes bytes;
    std::string says;
  };
  Bytes too_long = Good().Build(), giant = too_long;
  const uint64_t lengths[] = {too_long.size(), uint64_t{1} << 60};
  std::memcpy(too_long.data(), &lengths[0], 8);
  std::memcpy(giant.data(), &lengths[1], 8);
  const std::string deep = "{\"t\": " + std::string(60000, '[') + std::string(60000, ']') + "}";
  const std::vector<Case> cases = {
      {"empty", {}, "a safetensors file, found an empty file"},
      {"html", Bytes{'<', 'h', 't', 'm', 'l', '>', ' ', ' ', ' ', ' ', ' '}, "found an HTML page"},
      {"header past the end", too_long, "before the end of the file"},
      {"giant header", giant, "at most 100000000 bytes"},
      {"not JSON", header("{\"a\": nope}"), "expected JSON, found a syntax error near byte"},
      {"text behind the object", header("{} {}"), "expected JSON"},
      {"deep", header(deep), "expected"},
      {"name twice",
       header(R"({"t": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},)"
              R"( "t": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})"),
       "this one twice"},
      {"no dtype", entry(R"({"shape": [1], )" + kFour, 4), "not all of them"},
      {"no shape", entry(R"({"dtype": "F32", )" + kFour, 4), "not all of them"},
      {"dtype twice", entry(R"({"dtype": "F32", "dtype": "F32", "shape": [1], )" + kFour, 4), "dtype twice"},
      {"unknown dtype", entry(R"({"dtype": "Q9", "shape": [1], )" + kFour, 4), "found 'Q9'"},
      {"negative dim", entry(R"({"dtype": "F32", "shape": [-1], )" + kFour, 4), "whole numbers in shape"},
      {"fraction", entry(R"({"dtype": "F32", "shape": [1.5], )" + kFour, 4), "whole numbers in shape"},
      {"shape a text", entry(R"({"dtype": "F32", "shape": "1", )" + kFour, 4), "lists of whole numbers"},
      {"shape in shape", entry(R"({"dtype": "F32", "shape": [[1]], )" + kFour, 4), "whole numbers in shape"},
      {"unknown field", entry(R"({"dtype": "F32", "pickle": [1], "shape": [1], )" + kFour, 4),
       "found a list"},
      {"product wraps", entry(R"({"dtype": "F32", "shape": [4294967296, 4294967296], )" + kFour, 4), "2^63"},
      {"shape wrong", entry(R"({"dtype": "F32", "shape": [2], )" + kFour, 4), "8 bytes apart"},
      {"offsets backwards", entry(R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]})", 4), "4 to 0"},
      {"three offsets", entry(R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]})", 4), "more"},
      {"past the end", entry(R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})", 4),
       "found a file with 4 bytes of data"},
      {"hole", entry(R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})", 8), "a hole before it"},
      {"overlap",
       SafetensorsBuilder()
           .Add("a", DType::kF32, {2})
           .AddRaw("t", R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})", 0)
           .Build(),
       "an overlap"},
      {"tail", Good().SetTail("PK\x03\x04 a second file").Build(), "bytes that belong to none"},
      {"a text of 9 MB", header("{\"__metadata__\": {\"a\": \"" + std::string(9 << 20, 'x') + "\"}}"),
       "texts of at most 8388608 bytes"},
      {"metadata of numbers", header(R"({"__metadata__": {"a": 1}})"), "texts only"},
      {"a list of tensors", header("{\"t\": [1]}"), "found a list"},
      {"a tensor that is a number", header("{\"t\": 1}"), "an object of dtype"},
  };
  for (const Case& c : cases) {
    const auto began = std::chrono::steady_clock::now();
    std::string text = Refusal(c.bytes);
    EXPECT_NE(text.find(c.says), std::string::npos) << c.what << ": " << text;
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2)) << c.what;
  }
}

TEST(Safetensors, CutAnywhereItIsRefused) {
  const Bytes whole = Good().Build();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(Refusal(Bytes(whole.begin(), whole.begin() + static_cast<long>(n))), "accepted") << n;
  }
  EXPECT_EQ(Refusal(whole), "accepted");
}

}  // namespace
}  // namespace ballast
