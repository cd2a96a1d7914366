// What operator new is asked for, counted.
//
// It replaces the program's operator new, so one file of a test program includes it, and no more. Thread
// safety: any thread.
#ifndef BALLAST_TESTS_SUPPORT_COUNTING_NEW_H_
#define BALLAST_TESTS_SUPPORT_COUNTING_NEW_H_

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace ballast::testing {

struct NewCounts {
  std::atomic<size_t> requests{0}, bytes{0}, largest{0};
  void Reset() { requests = bytes = largest = 0; }
};
inline NewCounts g_new;

inline void* CountNew(size_t n) noexcept {
  ++g_new.requests;
  g_new.bytes += n;
  size_t largest = g_new.largest;
  while (n > largest && !g_new.largest.compare_exchange_weak(largest, n)) {
  }
  return std::malloc(n == 0 ? 1 : n);
}
inline void* CountNewOrThrow(size_t n) {
  void* p = CountNew(n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace ballast::testing

// GCC sees malloc in one inlined half and operator delete in the other, and takes them for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t n) { return ballast::testing::CountNewOrThrow(n); }
void* operator new[](size_t n) { return ballast::testing::CountNewOrThrow(n); }
// The standard library's sorts ask for their buffer this way.
void* operator new(size_t n, const std::nothrow_t&) noexcept { return ballast::testing::CountNew(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

#endif  // BALLAST_TESTS_SUPPORT_COUNTING_NEW_H_
