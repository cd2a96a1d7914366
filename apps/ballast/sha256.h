// SHA-256 (FIPS 180-4, section 6.2), to name a model file in results. Not for secrets.
#ifndef BALLAST_APPS_SHA256_H_
#define BALLAST_APPS_SHA256_H_

#include <cstdint>
#include <span>
#include <string>

namespace ballast::app {

std::string Sha256Hex(std::span<const uint8_t> bytes);  // 64 lower-case hex digits

}  // namespace ballast::app

#endif  // BALLAST_APPS_SHA256_H_
