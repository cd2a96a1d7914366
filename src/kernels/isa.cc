#include "kernels/isa.h"

#include <cstdint>

#define HWY_WANT_AVX3_DL
#include "hwy/highway.h"

namespace ballast {
namespace {

struct Isa {
  int64_t target;
  std::string_view name;
};

// Highway's targets under the names users know, best first within an architecture.
constexpr Isa kIsas[] = {
    {HWY_AVX3_DL, "avx512-vnni"}, {HWY_AVX3, "avx512"}, {HWY_AVX2, "avx2"},
    {HWY_SSE4, "sse4"},           {HWY_SSSE3, "ssse3"}, {HWY_SVE2_128, "sve2-128"},
    {HWY_SVE_256, "sve-256"},     {HWY_SVE2, "sve2"},   {HWY_SVE, "sve"},
    {HWY_NEON, "neon"},           {HWY_RVV, "rvv"},     {HWY_EMU128, "emu128"},
    {HWY_SCALAR, "scalar"},
};

std::string_view NameOf(int64_t target) {
  for (const Isa& isa : kIsas) {
    if (isa.target == target) return isa.name;
  }
  return "unknown";
}

// What this CPU can run of what was compiled in, whatever was forced before.
int64_t Best() {
  static const int64_t kTargets = hwy::SupportedTargets() & HWY_TARGETS;
  return kTargets;
}

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (int64_t left = Best(); left != 0; left &= left - 1) names.emplace_back(NameOf(left & -left));
  return names;
}

std::string CurrentIsa() {
  const int64_t targets = (Best(), hwy::SupportedTargets() & HWY_TARGETS);
  return std::string(NameOf(targets & -targets));
}

Status ForceIsa(std::string_view name) {
  const int64_t best = Best();
  if (name.empty()) {
    hwy::SetSupportedTargetsForTest(0);
    return Status();
  }
  std::string known;
  for (int64_t left = best; left != 0; left &= left - 1) {
    const std::string_view this_name = NameOf(left & -left);
    if (this_name == name) {
      hwy::SetSupportedTargetsForTest(left);  // and everything below it
      return Status();
    }
    known.append(known.empty() ? "" : ", ").append(this_name);
  }
  std::string expected = "one of ";
  expected.append(known);
  return Status::Expected(Code::kUsage, "instruction set", expected, name);
}

}  // namespace ballast
