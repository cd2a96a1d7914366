#include "kernels/isa.h"

#include <atomic>
#include <cstdint>

#define HWY_WANT_AVX3_DL
#include "hwy/highway.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace ballast {
namespace {

struct Isa {
  int64_t target;
  std::string_view name;
  bool vnni256 = false;
};

// Highway's targets under the names users know, best first within an architecture; and AVX2 with VNNI, of
// which Highway 1.0.3 has no notion.
constexpr Isa kIsas[] = {
    {HWY_AVX3_DL, "avx512-vnni"},
    {HWY_AVX3, "avx512"},
    {HWY_AVX2, "avx2-vnni", true},
    {HWY_AVX2, "avx2"},
    {HWY_SSE4, "sse4"},
    {HWY_SSSE3, "ssse3"},
    {HWY_SVE2_128, "sve2-128"},
    {HWY_SVE_256, "sve-256"},
    {HWY_SVE2, "sve2"},
    {HWY_SVE, "sve"},
    {HWY_NEON, "neon"},
    {HWY_RVV, "rvv"},
    {HWY_EMU128, "emu128"},
    {HWY_SCALAR, "scalar"},
};

// What this CPU can run of what was compiled in, whatever was forced before.
int64_t Best() {
  static const int64_t kTargets = hwy::SupportedTargets() & HWY_TARGETS;
  return kTargets;
}

Vnni256 DetectVnni256() {
#if HWY_ARCH_X86
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0) return Vnni256::kAvxVnni;
  if ((Best() & HWY_AVX3_DL) != 0) return Vnni256::kAvx512Vnni;
#endif
  return Vnni256::kNone;
}
Vnni256 BestVnni256() {
  static const Vnni256 kBest = DetectVnni256();
  return kBest;
}

std::atomic<bool> vnni256_is_off = false;

std::vector<Isa> Supported() {
  std::vector<Isa> isas;
  for (const Isa& isa : kIsas) {
    if ((Best() & isa.target) != 0 && (!isa.vnni256 || BestVnni256() != Vnni256::kNone)) isas.push_back(isa);
  }
  return isas;
}

int64_t Targets() { return (Best(), hwy::SupportedTargets() & HWY_TARGETS); }

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const Isa& isa : Supported()) names.emplace_back(isa.name);
  return names;
}

Vnni256 CurrentVnni256() {
  const int64_t targets = Targets();
  return (targets & -targets) == HWY_AVX2 && !vnni256_is_off ? BestVnni256() : Vnni256::kNone;
}

std::string CurrentIsa() {
  const int64_t targets = Targets(), target = targets & -targets;
  const bool vnni256 = CurrentVnni256() != Vnni256::kNone;
  for (const Isa& isa : kIsas) {
    if (isa.target == target && isa.vnni256 == vnni256) return std::string(isa.name);
  }
  return "unknown";
}

Status ForceIsa(std::string_view name) {
  if (name.empty()) {
    vnni256_is_off = false;
    hwy::SetSupportedTargetsForTest(0);
    return Status();
  }
  std::string expected = "one of ";
  for (const Isa& isa : Supported()) {
    if (isa.name == name) {
      vnni256_is_off = !isa.vnni256;
      hwy::SetSupportedTargetsForTest(Best() & -isa.target);  // and everything below it
      return Status();
    }
    expected.append(expected.size() > 7 ? ", " : "").append(isa.name);
  }
  return Status::Expected(Code::kUsage, "instruction set", expected, name);
}

}  // namespace ballast
