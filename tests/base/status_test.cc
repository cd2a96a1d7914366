#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ballast {
namespace {

TEST(Status, ExpectedReadsWhatExpectedFound) {
  const Status status = Status::Expected(Code::kInput, "width", "at least 1", "0", "try 1");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "width: expected at least 1, found 0");
  EXPECT_EQ(status.hint(), "try 1");
  EXPECT_TRUE(Status().ok());
}

Result<std::unique_ptr<int>> Half(int n) {
  if (n % 2 != 0) return Status::Expected(Code::kInput, "n", "an even number", std::to_string(n));
  return std::make_unique<int>(n / 2);
}

Result<int> Quarter(int n) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(n));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

Status Check(int n) {
  BALLAST_RETURN_IF_ERROR(Half(n).status());
  return Status();
}

TEST(Result, MacrosPassTheFirstErrorOnUnchanged) {
  ASSERT_TRUE(Quarter(12).ok());
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(7).status().message(), "n: expected an even number, found 7");
  EXPECT_EQ(Quarter(6).status().message(), "n: expected an even number, found 3");
  EXPECT_EQ(Quarter(6).status().code(), Code::kInput);
  EXPECT_TRUE(Check(4).ok());
  EXPECT_EQ(Check(5).code(), Code::kInput);
}

TEST(ResultDeathTest, AnOkStatusIsNoError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Result<int>{Status()}, "");
}

TEST(Status, OfAThingWithANameSaysTheName) {
  const Status status =
      Status::Expected(Code::kInput, "content", "its checksum", "another", "hint").In("a/b");
  EXPECT_EQ(status.code(), Code::kInput);
  EXPECT_EQ(status.message(), "a/b: content: expected its checksum, found another");
  EXPECT_EQ(status.hint(), "hint");
  EXPECT_TRUE(Status().In("a/b").ok());
}

}  // namespace
}  // namespace ballast
