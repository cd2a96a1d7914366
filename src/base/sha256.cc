#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ballast {
namespace {

using State = std::array<uint32_t, 8>;

// The first 32 bits of the fractional part of `root`, as FIPS 180-4 sections 4.2.2 and 5.3.3 define the
// constants. long double has 64 bits of mantissa: enough for 3 integer bits and 32 fractional ones.
uint32_t Fraction(long double root) {
  return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

struct Constants {
  std::array<uint32_t, 64> k;
  State initial;
  Constants() {
    int prime = 1;
    for (size_t i = 0; i < k.size(); ++i) {
      for (bool found = false; !found;) {
        ++prime;
        found = true;
        for (int d = 2; d * d <= prime; ++d) found = found && prime % d != 0;
      }
      k[i] = Fraction(std::cbrt(static_cast<long double>(prime)));
      if (i < initial.size()) initial[i] = Fraction(std::sqrt(static_cast<long double>(prime)));
    }
  }
};

const Constants& TheConstants() {
  static const Constants kConstants;
  return kConstants;
}

void Compress(const Constants& c, const uint8_t* block, State& state) {
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) {
    const uint8_t* p = block + 4 * i;
    w[i] = uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, d, e, f, g, h, x] = state;  // a b c d e f g h of the standard
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(f, 6) ^ std::rotr(f, 11) ^ std::rotr(f, 25);
    const uint32_t t1 = x + s1 + ((f & g) ^ (~f & h)) + c.k[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & d) ^ (b & d));
    x = h;
    h = g;
    g = f;
    f = e + t1;
    e = d;
    d = b;
    b = a;
    a = t1 + t2;
  }
  const State mixed = {a, b, d, e, f, g, h, x};
  for (size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

}  // namespace

Sha256::Sha256() : state_(TheConstants().initial) {}

void Sha256::Add(std::span<const uint8_t> bytes) {
  const Constants& constants = TheConstants();
  const size_t held = size_ % kBlock;
  size_ += bytes.size();
  if (held > 0) {
    const size_t more = std::min(kBlock - held, bytes.size());
    std::copy_n(bytes.begin(), more, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(more);
    if (held + more < kBlock) return;
    Compress(constants, rest_.data(), state_);
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) Compress(constants, bytes.data(), state_);
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

std::string Sha256::Hex() const {
  // The rest, a 1 bit, zeros, and the length in bits: one block or two.
  std::array<uint8_t, 2 * kBlock> tail{};
  const size_t rest = size_ % kBlock;
  std::copy_n(rest_.begin(), rest, tail.begin());
  tail[rest] = 0x80;
  const size_t used = rest + 9 <= kBlock ? kBlock : 2 * kBlock;
  const uint64_t bits = size_ * 8;
  for (size_t i = 0; i < 8; ++i) tail[used - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  State state = state_;
  for (size_t i = 0; i < used; i += kBlock) Compress(TheConstants(), tail.data() + i, state);
  std::string hex;
  for (uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

std::string Sha256Hex(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Hex();
}

}  // namespace ballast
