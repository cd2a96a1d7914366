// Rng: xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), seeded by
// splitmix64 as its authors advise. Integer arithmetic only, so the same on every machine. Thread safety: one
// thread at a time.
#ifndef BALLAST_ENGINE_RNG_H_
#define BALLAST_ENGINE_RNG_H_

#include <array>
#include <bit>
#include <cstdint>

namespace ballast {

class Rng {
 public:
  explicit Rng(uint64_t seed) {
    for (uint64_t& word : state_) word = SplitMix64(&seed);
  }
  // REQUIRES: not all zero.
  explicit Rng(const std::array<uint64_t, 4>& state) : state_(state) {}

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  // Uniform over the multiples of 2^-53 in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  static uint64_t SplitMix64(uint64_t* state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_RNG_H_
