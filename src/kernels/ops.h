// Element-wise and row-wise pieces of a transformer layer. Vectorised with Highway; reductions have a fixed
// order, so results do not depend on batch size or threads.
#ifndef BALLAST_KERNELS_OPS_H_
#define BALLAST_KERNELS_OPS_H_

#include <cstdint>

namespace ballast {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i].  (n).  RMSNorm, arXiv 1910.07467. out may equal x.
void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out);
// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i].  (n).  LayerNorm, arXiv 1607.06450.
// weight, bias: (n), or null for ones, for zeros. out may equal x.
void LayerNorm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out);

// What an MLP applies to its inner values. arXiv 1606.08415 (GELU), 2002.05202 (gated forms).
enum class Activation : uint8_t {
  kSilu,      // z / (1 + exp(-z))
  kGelu,      // z * Phi(z), by erf
  kGeluTanh,  // 0.5 z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))), the usual approximation
};
// out[i] = activation(gate[i]) * up[i]. out may equal either.
void ActivateMul(Activation activation, const float* gate, const float* up, int64_t n, float* out);
// x[i] = activation(x[i]).
void Activate(Activation activation, float* x, int64_t n);
// x[i] = cap * tanh(x[i] / cap): soft-capping, arXiv 2408.00118. REQUIRES: cap > 0.
void SoftCap(float cap, float* x, int64_t n);
// x[i] += scale * y[i].
void AddInPlace(float* x, const float* y, int64_t n, float scale = 1);
// x[i] *= scale.
void ScaleInPlace(float* x, int64_t n, float scale);
// Mixes each of `vectors` contiguous vectors of `dim` values by an orthogonal transform, in place: Walsh-
// Hadamard over blocks of the largest power of two that divides dim, scaled to keep lengths. Dot products of
// two mixed vectors are those of the originals, but no single value stands out any more, which is what a row
// with one scale for all needs (arXiv 2404.00456).
void Mix(float* x, int64_t vectors, int64_t dim);
// Natural log of sum(exp(x)), stable. (n). REQUIRES: n > 0.
float LogSumExp(const float* x, int64_t n);
// Index of the largest value; the lowest index wins a tie. REQUIRES: n > 0.
int64_t ArgMax(const float* x, int64_t n);
// Sum of x[i] * y[i] in float.
float Dot(const float* x, const float* y, int64_t n);

}  // namespace ballast

#endif  // BALLAST_KERNELS_OPS_H_
