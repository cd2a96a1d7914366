// 95% confidence intervals. Thread safety: pure functions.
#ifndef BALLAST_EVAL_INTERVAL_H_
#define BALLAST_EVAL_INTERVAL_H_

#include <cstdint>
#include <span>

namespace ballast {

struct Interval {
  double low = 0;
  double high = 0;
};

// Of the mean of independent values, by Student's t with n - 1 degrees of freedom; centred on their mean. NaN
// with fewer than two values, or when one is no number.
Interval StudentInterval(std::span<const double> values);

// Of a share of `hits` in `tries`, by Wilson (1927): honest near 0 and 1, where it never leaves [0, 1].
// REQUIRES: 0 <= hits <= tries, tries >= 1.
Interval WilsonInterval(int64_t hits, int64_t tries);

}  // namespace ballast

#endif  // BALLAST_EVAL_INTERVAL_H_
