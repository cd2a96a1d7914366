// Rotary position embedding (RoPE, arXiv 2104.09864), full or partial, interleaved or half-split, with the
// fixed-frequency scalings in use. Angles are computed in double and reduced before float.
#ifndef BALLAST_KERNELS_ROPE_H_
#define BALLAST_KERNELS_ROPE_H_

#include <cstdint>
#include <vector>

namespace ballast {

enum class RopeForm : uint8_t {
  kInterleaved,  // pairs (2i, 2i+1): GGUF "llama" family
  kHalfSplit,    // pairs (i, i + dims/2): GPT-NeoX, Qwen, Gemma, Phi
};

struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1;            // positions per trained position (linear, llama3, yarn)
  double original_context = 0;  // trained length before scaling (llama3, yarn)
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;  // llama3
  double beta_fast = 32;        // yarn
  double beta_slow = 1;         // yarn
  double attention_factor = 0;  // yarn: 0 means 0.1 ln(factor) + 1
};

// Inverse frequencies and magnitude: fixed for the life of a model.
struct RopeTable {
  int dims = 0;  // rotary dimensions (<= head_dim), even
  RopeForm form = RopeForm::kInterleaved;
  std::vector<double> inv_freq;  // (dims / 2): radians per position
  float magnitude = 1;           // multiplies cos and sin (YaRN)

  // `factors` (dims / 2, or empty) divide the frequencies: the rope_freqs.weight tensor.
  static RopeTable Make(int dims, double base, RopeForm form, const RopeScaling& scaling,
                        const std::vector<float>& factors);
  // cos_out, sin_out: (dims / 2), of the angles at `position`, exact to float rounding for positions to 2^53.
  void Angles(int64_t position, float* cos_out, float* sin_out) const;
};

// Rotates the first table.dims values of each of `heads` contiguous vectors of head_dim floats; out may equal
// in.
void ApplyRope(const RopeTable& table, const float* cos, const float* sin, const float* in, int64_t heads,
               int head_dim, float* out);

}  // namespace ballast

#endif  // BALLAST_KERNELS_ROPE_H_
