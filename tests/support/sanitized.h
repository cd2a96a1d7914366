// Whether a sanitizer is compiled in: time and memory are then not the program's own.
#ifndef BALLAST_TESTS_SUPPORT_SANITIZED_H_
#define BALLAST_TESTS_SUPPORT_SANITIZED_H_

namespace ballast::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_SUPPORT_SANITIZED_H_
