// Which instruction set the kernels use: the best this CPU has, or one that was forced.
// Thread safety: ForceIsa must be called before any kernel runs (start of the program, or of a test).
#ifndef BALLAST_KERNELS_ISA_H_
#define BALLAST_KERNELS_ISA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ballast {

// Names, best first, of what was compiled in and this CPU can run, e.g. {"avx512-vnni", "avx512",
// "avx2-vnni", "avx2", ..., "scalar"}.
std::vector<std::string> SupportedIsas();
// The one in use.
std::string CurrentIsa();
// Uses `name` from now on ("" restores the best). kUsage names the known ones when this CPU cannot run it.
Status ForceIsa(std::string_view name);

// How the AVX2 kernels multiply bytes. "avx2-vnni" is AVX2 with one of the two: the same instruction in the
// encoding that this CPU has.
enum class Vnni256 : uint8_t { kNone, kAvxVnni, kAvx512Vnni };
Vnni256 CurrentVnni256();

}  // namespace ballast

#endif  // BALLAST_KERNELS_ISA_H_
