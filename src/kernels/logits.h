// What a row of logits says about the distribution that softmax makes of it. Vectorised with Highway;
// reductions have a fixed order. Thread safety: pure functions.
#ifndef BALLAST_KERNELS_LOGITS_H_
#define BALLAST_KERNELS_LOGITS_H_

#include <cstdint>

namespace ballast {

struct LogitStats {
  bool finite = false;    // no NaN and no +inf among them, and at least one that is not -inf
  float largest = 0;      // logit
  float log_sum_exp = 0;  // natural log of sum(exp(x))
  float entropy = 0;      // nats: -sum p log p
  float mean = 0;         // of the logits that are not -inf
  float deviation = 0;    // their standard deviation (of the population)
};
// Two passes over x; -inf counts as absent. When !finite, nothing else is set. (n). REQUIRES: n > 0.
LogitStats DescribeLogits(const float* x, int64_t n);

}  // namespace ballast

#endif  // BALLAST_KERNELS_LOGITS_H_
