// Intervals against values from tables.
#include "eval/interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ballast {
namespace {

TEST(Student, IsThatOfTheTables) {
  // mean 3, standard deviation sqrt(2.5), t(0.975, 4) = 2.776445
  const std::vector<double> values = {1, 2, 3, 4, 5};
  const Interval interval = StudentInterval(values);
  EXPECT_NEAR(interval.high - 3, 2.776445 * std::sqrt(2.5 / 5), 1e-5);
  EXPECT_NEAR(3 - interval.low, interval.high - 3, 1e-12);
}

TEST(Student, NeedsTwoNumbers) {
  EXPECT_TRUE(std::isnan(StudentInterval({}).low));
  EXPECT_TRUE(std::isnan(StudentInterval(std::vector<double>{1}).high));
  EXPECT_TRUE(std::isnan(StudentInterval(std::vector<double>{1, std::nan(""), 2}).low));
}

TEST(Wilson, StaysWithinZeroAndOne) {
  EXPECT_NEAR(WilsonInterval(8, 10).low, 0.4902, 1e-4);
  EXPECT_NEAR(WilsonInterval(8, 10).high, 0.9433, 1e-4);
  EXPECT_NEAR(WilsonInterval(10, 10).high, 1, 1e-12);
  EXPECT_NEAR(WilsonInterval(10, 10).low, 0.7225, 1e-4);
  EXPECT_NEAR(WilsonInterval(0, 50).low, 0, 1e-12);
}

}  // namespace
}  // namespace ballast
