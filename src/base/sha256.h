// SHA-256 (FIPS 180-4, section 6.2): names model files, and tenants by their keys. Thread safety: pure.
#ifndef BALLAST_BASE_SHA256_H_
#define BALLAST_BASE_SHA256_H_

#include <cstdint>
#include <span>
#include <string>

namespace ballast {

std::string Sha256Hex(std::span<const uint8_t> bytes);  // 64 lower-case hex digits

}  // namespace ballast

#endif  // BALLAST_BASE_SHA256_H_
