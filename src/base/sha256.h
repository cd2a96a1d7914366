// SHA-256 (FIPS 180-4, section 6.2): names model files, and tenants by their keys. Thread safety: one thread
// per object; Sha256Hex is pure.
#ifndef BALLAST_BASE_SHA256_H_
#define BALLAST_BASE_SHA256_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace ballast {

// Of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  void Add(std::span<const uint8_t> bytes);
  std::string Hex() const;  // of all so far: 64 lower-case hex digits

 private:
  static constexpr size_t kBlock = 64;
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, kBlock> rest_{};  // the first size_ % kBlock of them count
  uint64_t size_ = 0;                   // bytes so far
};

std::string Sha256Hex(std::span<const uint8_t> bytes);  // of all at once

}  // namespace ballast

#endif  // BALLAST_BASE_SHA256_H_
