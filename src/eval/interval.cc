#include "eval/interval.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

namespace ballast {

Interval StudentInterval(std::span<const double> values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double v : values) mean += v / n;
  if (values.size() < 2 || !std::isfinite(mean)) return {kNone, kNone};
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double error = std::sqrt(squares / (n - 1) / n);
  const double reach = boost::math::quantile(boost::math::students_t(n - 1), 0.975) * error;
  return {mean - reach, mean + reach};
}

Interval WilsonInterval(int64_t hits, int64_t tries) {
  constexpr double kZ = 1.959963984540054;  // 97.5% of the normal distribution
  const auto n = static_cast<double>(tries);
  const double share = static_cast<double>(hits) / n;
  const double centre = (share + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double reach = kZ / (1 + kZ * kZ / n) * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n));
  return {std::max(0.0, centre - reach), std::min(1.0, centre + reach)};
}

}  // namespace ballast
