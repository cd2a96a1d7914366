#include "kernels/isa.h"

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

std::vector<Isa> Supported() {
  std::vector<Isa> isas;
  for (const Isa& isa : kIsas) {
    if ((Best() & isa.target) != 0 && (!isa.vnni256 || BestVnni256() != Vnni256::kNone)) isas.push_back(isa);
  }
  return isas;
}

// Asking Highway costs a CPUID, which a virtual machine traps: far too slow for every matrix product.
struct Choice {
  int64_t target;
  Vnni256 vnni256;
};
Choice Choose(bool vnni256) {
  const int64_t targets = (Best(), hwy::SupportedTargets() & HWY_TARGETS), target = targets & -targets;
  return {target, vnni256 && target == HWY_AVX2 ? BestVnni256() : Vnni256::kNone};
}
Choice& Current() {
  static Choice choice = Choose(true);
  return choice;
}

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const Isa& isa : Supported()) names.emplace_back(isa.name);
  return names;
}

Vnni256 CurrentVnni256() { return Current().vnni256; }

std::string CurrentIsa() {
  for (const Isa& isa : kIsas) {
    if (isa.target == Current().target && isa.vnni256 == (Current().vnni256 != Vnni256::kNone)) {
      return std::string(isa.name);
    }
  }
  return "unknown";
}

Status ForceIsa(std::string_view name) {
  if (name.empty()) {
    hwy::SetSupportedTargetsForTest(0);
    Current() = Choose(true);
    return Status();
  }
  std::string expected = "one of ";
  for (const Isa& isa : Supported()) {
    if (isa.name == name) {
      hwy::SetSupportedTargetsForTest(Best() & -isa.target);  // and everything below it
      Current() = Choose(isa.vnni256);
      return Status();
    }
    expected.append(expected.size() > 7 ? ", " : "").append(isa.name);
  }
  return Status::Expected(Code::kUsage, "instruction set", expected, name);
}

}  // namespace ballast
