// Element-wise and row-wise pieces of a transformer layer. Vectorised with Highway; reductions have a fixed
// order, so results do not depend on batch size or threads.
#ifndef BALLAST_KERNELS_OPS_H_
#define BALLAST_KERNELS_OPS_H_

#include <cstdint>

namespace ballast {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i].  (n).  RMSNorm, arXiv 1910.07467. out may equal x.
void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out);
// out[i] = silu(gate[i]) * up[i], silu(z) = z / (1 + exp(-z)).  SwiGLU, arXiv 2002.05202. out may equal
// either.
void SiluMul(const float* gate, const float* up, int64_t n, float* out);
// x[i] += y[i].
void AddInPlace(float* x, const float* y, int64_t n);
// Natural log of sum(exp(x)), stable. (n). REQUIRES: n > 0.
float LogSumExp(const float* x, int64_t n);
// Index of the largest value; the lowest index wins a tie. REQUIRES: n > 0.
int64_t ArgMax(const float* x, int64_t n);
// Sum of x[i] * y[i] in float.
float Dot(const float* x, const float* y, int64_t n);

}  // namespace ballast

#endif  // BALLAST_KERNELS_OPS_H_
