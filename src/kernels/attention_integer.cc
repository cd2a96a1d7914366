// The integer attention kernel (attention_integer-inl.h): q8 keys and values, x86 from SSE4 on.
//
// Tiles are multiplied as they lie in the cache (kv_span.h). Queries are rounded to 8 bits, as finely as the
// keys they meet (both were mixed first: Mix in ops.h). With VNNI one instruction (vpdpbusd) multiplies
// unsigned by signed bytes and adds them in fours, and softmax weights are bytes in units of the largest that
// the block could have; many small ones keep their sum, since each key is rounded at another threshold.
// Without it, words of four bytes are taken apart into pairs of 16 bits, whose products are added in twos
// (pmaddwd), and weights have 15 bits. The sums are exact integers.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "kernels/attention_item.h"
#include "kernels/isa.h"

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL 1
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_integer.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/attention_softmax-inl.h"
// clang-format on

#undef BALLAST_BYTE_DOT_NAMESPACE
#undef BALLAST_BYTE_DOT_INCLUDE
#define BALLAST_BYTE_DOT_NAMESPACE ballast::attention
#define BALLAST_BYTE_DOT_INCLUDE "kernels/attention_integer-inl.h"
#include "kernels/foreach_byte_dot-inl.h"

#if HWY_ONCE
namespace ballast::attention {

HWY_EXPORT(HasInteger);
HWY_EXPORT(RunInteger);

bool UsesIntegers(const AttentionShape& shape, KvType kv) {
  return shape.compute == Compute::kFast && kv == KvType::kQ8 && shape.head_dim <= kMaxIntegerDim &&
         HWY_DYNAMIC_DISPATCH(HasInteger)();
}
void RunIntegerItem(const Item& item) { BALLAST_BYTE_DOT_DISPATCH(RunInteger, item); }

}  // namespace ballast::attention
#endif  // HWY_ONCE
