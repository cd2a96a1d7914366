// What a good file gives: metadata of every type, typed access, tensors and their bytes.
#include "formats/tensor_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/gguf_builder.h"
#include "support/temp_path.h"
#include "tensor/dequant.h"

namespace ballast {
namespace {

using testing::GgufBuilder;
using testing::TestFloats;

TensorFile ParseGood(const GgufBuilder& b) {
  auto file = TensorFile::Parse("good.gguf", b.Build());
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(file).value() : TensorFile();
}

template <typename T>
T Stored(const TensorFile& file, const std::string& key) {
  const MetaValue* value = file.Find(key);
  const T* typed = value == nullptr ? nullptr : std::get_if<T>(value);
  EXPECT_NE(typed, nullptr) << key;
  return typed == nullptr ? T{} : *typed;
}

TEST(TensorFile, IntegersOfEveryWidthAreWidenedExactly) {
  GgufBuilder b;
  b.Set("u8", uint8_t{255}).Set("i8", int8_t{-128}).Set("u16", uint16_t{65535}).Set("i16", int16_t{-32768});
  b.Set("u32", uint32_t{4294967295}).Set("i32", std::numeric_limits<int32_t>::min());
  b.Set("u64", std::numeric_limits<uint64_t>::max()).Set("i64", std::numeric_limits<int64_t>::min());
  const TensorFile file = ParseGood(b);
  EXPECT_EQ(Stored<uint64_t>(file, "u8"), 255u);
  EXPECT_EQ(Stored<int64_t>(file, "i8"), -128);
  EXPECT_EQ(Stored<uint64_t>(file, "u16"), 65535u);
  EXPECT_EQ(Stored<int64_t>(file, "i16"), -32768);
  EXPECT_EQ(Stored<uint64_t>(file, "u32"), 4294967295u);
  EXPECT_EQ(Stored<int64_t>(file, "i32"), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Stored<uint64_t>(file, "u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(Stored<int64_t>(file, "i64"), std::numeric_limits<int64_t>::min());
  for (const char* key : {"u8", "i8", "u16", "i16", "u32", "i32", "i64"}) {
    EXPECT_TRUE(file.Int(key).ok()) << key;
  }
  const auto too_big = file.Int("u64");
  ASSERT_FALSE(too_big.ok());
  EXPECT_EQ(too_big.status().message(),
            "good.gguf: metadata 'u64': expected an integer below 2^63, found 18446744073709551615");
}

TEST(TensorFile, FloatsBoolsAndStrings) {
  GgufBuilder b;
  b.Set("f32", 0.1f).Set("f64", 0.1).Set("yes", true).Set("no", false).Set("text", std::string("a\0b", 3));
  b.Set("empty", "");
  const TensorFile file = ParseGood(b);
  EXPECT_EQ(**file.Float("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(**file.Float("f64"), 0.1);
  EXPECT_TRUE(**file.Bool("yes"));
  EXPECT_FALSE(**file.Bool("no"));
  EXPECT_EQ(**file.String("text"), std::string("a\0b", 3));
  EXPECT_EQ(**file.String("empty"), "");
}

TEST(TensorFile, ArraysKeepOneElementKind) {
  GgufBuilder b;
  b.Set("u8s", std::vector<uint8_t>{1, 255}).Set("i16s", std::vector<int16_t>{-1, 2});
  b.Set("u64s", std::vector<uint64_t>{~uint64_t{0}}).Set("i32s", std::vector<int32_t>{-7});
  b.Set("f32s", std::vector<float>{0.5f, -2}).Set("f64s", std::vector<double>{0.1});
  b.Set("bools", std::vector<bool>{true, false, true}).Set("texts", std::vector<std::string>{"", "x"});
  b.Set("none", std::vector<std::string>{});
  const TensorFile file = ParseGood(b);
  EXPECT_EQ(Stored<std::vector<uint64_t>>(file, "u8s"), (std::vector<uint64_t>{1, 255}));
  EXPECT_EQ(Stored<std::vector<int64_t>>(file, "i16s"), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(Stored<std::vector<uint64_t>>(file, "u64s"), (std::vector<uint64_t>{~uint64_t{0}}));
  EXPECT_EQ(Stored<std::vector<int64_t>>(file, "i32s"), (std::vector<int64_t>{-7}));
  EXPECT_EQ(Stored<std::vector<double>>(file, "f32s"), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(Stored<std::vector<double>>(file, "f64s"), (std::vector<double>{0.1}));
  EXPECT_EQ(Stored<std::vector<bool>>(file, "bools"), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(Stored<std::vector<std::string>>(file, "texts"), (std::vector<std::string>{"", "x"}));
  EXPECT_TRUE(Stored<std::vector<std::string>>(file, "none").empty());
}

// llama.cpp pull request 26690: an array typed as bytes was read as floats. Wrong kinds are refused, not
// cast.
TEST(TensorFile, GettersRefuseOtherKinds) {
  GgufBuilder b;
  b.Set("int", 1).Set("float", 1.0f).Set("bool", true).Set("text", "1").Set("array", std::vector<int>{1});
  const TensorFile file = ParseGood(b);
  for (const char* key : {"float", "bool", "text", "array"}) EXPECT_FALSE(file.Int(key).ok()) << key;
  for (const char* key : {"bool", "text", "array"}) EXPECT_FALSE(file.Float(key).ok()) << key;
  for (const char* key : {"int", "float", "text", "array"}) EXPECT_FALSE(file.Bool(key).ok()) << key;
  for (const char* key : {"int", "float", "bool", "array"}) EXPECT_FALSE(file.String(key).ok()) << key;
  EXPECT_EQ(**file.Float("int"), 1.0);
  EXPECT_EQ(file.String("array").status().code(), Code::kModel);
  EXPECT_EQ(file.String("array").status().message(),
            "good.gguf: metadata 'array': expected a string, found an array of 1 integers");
}

TEST(TensorFile, FloatRefusesWhatIsNotFinite) {
  GgufBuilder b;
  b.Set("nan", std::nanf("")).Set("inf", std::numeric_limits<double>::infinity());
  const TensorFile file = ParseGood(b);
  EXPECT_FALSE(file.Float("nan").ok());
  EXPECT_FALSE(file.Float("inf").ok());
}

TEST(TensorFile, AbsentIsNotAnError) {
  const TensorFile file = ParseGood(GgufBuilder());
  EXPECT_EQ(file.Find("x"), nullptr);
  EXPECT_EQ(file.FindTensor("x"), nullptr);
  EXPECT_FALSE(file.Int("x")->has_value());
  EXPECT_FALSE(file.Float("x")->has_value());
  EXPECT_FALSE(file.Bool("x")->has_value());
  EXPECT_FALSE(file.String("x")->has_value());
}

TEST(TensorFile, MetadataKeepsFileOrder) {
  GgufBuilder b;
  b.Set("z", 1).Set("a", 2).Set("m", 3);
  const TensorFile file = ParseGood(b);
  ASSERT_EQ(file.metadata().size(), 3u);
  EXPECT_EQ(file.metadata()[0].key, "z");
  EXPECT_EQ(file.metadata()[1].key, "a");
  EXPECT_EQ(file.metadata()[2].key, "m");
}

// The builder encodes, Dequantize decodes: within half a step of each block, so the bytes are the right ones.
TEST(TensorFile, TensorsOfEveryEncodingComeBack) {
  const struct {
    DType dtype;
    float worst;  // of values within [-1, 1]
  } cases[] = {
      {DType::kF32, 0},       {DType::kF16, 0.0003f}, {DType::kBF16, 0.002f}, {DType::kQ8_0, 0.005f},
      {DType::kQ4_0, 0.126f}, {DType::kQ4_1, 0.068f}, {DType::kQ5_0, 0.063f}, {DType::kQ5_1, 0.034f},
  };
  GgufBuilder b;
  uint32_t seed = 1;
  for (const auto& c : cases) {
    b.AddTensor(std::string(Info(c.dtype).name), c.dtype, {64, 3, 2}, TestFloats(384, seed++));
  }
  const TensorFile file = ParseGood(b);
  seed = 1;
  for (const auto& c : cases) {
    const TensorInfo* t = file.FindTensor(Info(c.dtype).name);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->dtype, c.dtype);
    EXPECT_EQ(t->dims, (std::vector<int64_t>{64, 3, 2}));
    const MatrixView view = file.Matrix(*t);
    EXPECT_EQ(view.rows, 6);
    EXPECT_EQ(view.cols, 64);
    const std::vector<float> expected = TestFloats(384, seed++);
    std::vector<float> found(384);
    for (int64_t r = 0; r < 6; ++r) Dequantize(c.dtype, view.row(r), 64, found.data() + r * 64);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], c.worst) << Info(c.dtype).name << " element " << i;
    }
  }
}

TEST(TensorFile, AlignmentMovesTheData) {
  for (uint32_t alignment : {8u, 16u, 64u, 4096u, 65536u}) {
    GgufBuilder b;
    b.Set("general.alignment", alignment).Alignment(alignment);
    b.AddTensor("a", DType::kF32, {1}, {1.5f}).AddTensor("b", DType::kF32, {1}, {2.5f});
    const TensorFile file = ParseGood(b);
    for (const auto& [name, value] : {std::pair{"a", 1.5f}, {"b", 2.5f}}) {
      const TensorInfo* t = file.FindTensor(name);
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(t->offset % alignment, 0u);
      float found = 0;
      std::memcpy(&found, file.Data(*t), sizeof(found));
      EXPECT_EQ(found, value);
    }
  }
}

TEST(TensorFile, Version2ReadsTheSame) {
  GgufBuilder b;
  b.Version(2).Set("k", 7).AddTensor("w", DType::kF32, {2}, {1, 2});
  const TensorFile file = ParseGood(b);
  EXPECT_EQ(file.format(), "GGUF v2");
  EXPECT_EQ(**file.Int("k"), 7);
  EXPECT_EQ(file.tensors().size(), 1u);
}

TEST(TensorFile, AWholeModelMarkedAsOnePartIsNotASplit) {
  GgufBuilder b;
  b.Set("split.no", uint16_t{0}).Set("split.count", uint16_t{1});
  EXPECT_TRUE(TensorFile::Parse("x", b.Build()).ok());
}

TEST(TensorFile, OpenMapsTheSameBytesAndSurvivesAMove) {
  GgufBuilder b;
  b.Set("general.architecture", "llama").AddTensor("w", DType::kF32, {3}, {1, 2, 3});
  const std::string path = testing::TempPath("open.gguf");
  ASSERT_TRUE(b.Write(path));
  auto opened = TensorFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  TensorFile file = std::move(opened).value();
  const TensorFile moved = std::move(file);
  EXPECT_EQ(moved.path(), path);
  EXPECT_EQ(moved.file_bytes(), b.Build().size());
  const auto go_on = [] { return true; };
  EXPECT_EQ(*moved.ContentHash(go_on), *TensorFile::Parse("x", b.Build())->ContentHash(go_on));
  EXPECT_EQ(moved.ContentHash([] { return false; }).status().code(), Code::kInterrupted);
  float found[3];
  std::memcpy(found, moved.Data(*moved.FindTensor("w")), sizeof(found));
  EXPECT_EQ(found[2], 3.0f);
}

}  // namespace
}  // namespace ballast
