// Includes BALLAST_BYTE_DOT_INCLUDE for the instruction set being compiled, once per kind of byte dot product
// that it has, inside BALLAST_BYTE_DOT_NAMESPACE and the namespace of the instruction set. Where that has
// vectors of ours (HWY_TARGET <= HWY_SSE4 on x86), byte_dot-inl.h comes before it. For a file that Highway's
// foreach_target includes: no guard.

// Kinds, the value of BALLAST_VNNI.
#undef BALLAST_NO_VNNI
#define BALLAST_NO_VNNI 0  // products in 16 bits
#undef BALLAST_AVX512_VNNI
#define BALLAST_AVX512_VNNI 1  // vpdpbusd of AVX-512
#undef BALLAST_AVX_VNNI
#define BALLAST_AVX_VNNI 2  // vpdpbusd of AVX-VNNI: CPUs without AVX-512

#undef BALLAST_VECTOR_DOT
// SSSE3 without SSE4 ended in 2007: it takes the plain path, to spare build time.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
#define BALLAST_VECTOR_DOT 1
#else
#define BALLAST_VECTOR_DOT 0
#endif

#if HWY_TARGET == HWY_AVX2
// AVX2's vectors with vpdpbusd, in both encodings: that of AVX-VNNI for CPUs which have it, and that of
// AVX-512 VNNI, which is the same code where no AVX-VNNI is at hand to test it.
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avxvnni")
namespace BALLAST_BYTE_DOT_NAMESPACE::HWY_NAMESPACE::avx_vnni {
namespace hn = hwy::HWY_NAMESPACE;
#define BALLAST_VNNI BALLAST_AVX_VNNI
#include "kernels/byte_dot-inl.h"
#include BALLAST_BYTE_DOT_INCLUDE
#undef BALLAST_VNNI
}  // namespace BALLAST_BYTE_DOT_NAMESPACE::HWY_NAMESPACE::avx_vnni
HWY_AFTER_NAMESPACE();
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni,avx512vl")
namespace BALLAST_BYTE_DOT_NAMESPACE::HWY_NAMESPACE::avx512_vnni {
namespace hn = hwy::HWY_NAMESPACE;
#define BALLAST_VNNI BALLAST_AVX512_VNNI
#include "kernels/byte_dot-inl.h"
#include BALLAST_BYTE_DOT_INCLUDE
#undef BALLAST_VNNI
}  // namespace BALLAST_BYTE_DOT_NAMESPACE::HWY_NAMESPACE::avx512_vnni
HWY_AFTER_NAMESPACE();
#endif

// AVX3_DL requires VNNI of the CPU but does not name it to the compiler, so name it here.
#if HWY_TARGET == HWY_AVX3_DL
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#define BALLAST_VNNI BALLAST_AVX512_VNNI
#else
HWY_BEFORE_NAMESPACE();
#define BALLAST_VNNI BALLAST_NO_VNNI
#endif
namespace BALLAST_BYTE_DOT_NAMESPACE::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#if BALLAST_VECTOR_DOT
#include "kernels/byte_dot-inl.h"
#endif
#include BALLAST_BYTE_DOT_INCLUDE
#undef BALLAST_VNNI
}  // namespace BALLAST_BYTE_DOT_NAMESPACE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// Calls `function`, HWY_EXPORTed, of the instruction set in use; of AVX2, with the byte dot product in use.
#undef BALLAST_BYTE_DOT_DISPATCH
#if HWY_ARCH_X86
#define BALLAST_BYTE_DOT_DISPATCH(function, ...)                                           \
  (CurrentVnni256() == Vnni256::kAvxVnni      ? N_AVX2::avx_vnni::function(__VA_ARGS__)    \
   : CurrentVnni256() == Vnni256::kAvx512Vnni ? N_AVX2::avx512_vnni::function(__VA_ARGS__) \
                                              : HWY_DYNAMIC_DISPATCH(function)(__VA_ARGS__))
#else
#define BALLAST_BYTE_DOT_DISPATCH(function, ...) HWY_DYNAMIC_DISPATCH(function)(__VA_ARGS__)
#endif
