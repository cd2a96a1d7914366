// Dot products of bytes and of 16-bit pairs, for one instruction set and one kind (BALLAST_VNNI).
// Highway 1.0.3 has none of its own. Included by foreach_byte_dot-inl.h, once per kind, inside its namespace:
// no guard.

using VI = hn::Vec<hn::ScalableTag<int32_t>>;
using VU8 = hn::Vec<hn::ScalableTag<uint8_t>>;
using VI16 = hn::Vec<hn::ScalableTag<int16_t>>;
constexpr bool kVnni = BALLAST_VNNI != BALLAST_NO_VNNI;

// The same four bytes in every lane.
HWY_INLINE VI BroadcastFour(const void* four) {
  int32_t bits;
  std::memcpy(&bits, four, sizeof(bits));
  return hn::Set(hn::ScalableTag<int32_t>(), bits);
}

// acc + w . x in fours, w unsigned, x signed bytes.
#if BALLAST_VNNI == BALLAST_NO_VNNI
HWY_INLINE VI DotVnni(VI acc, VU8, VI) { return acc; }
#elif HWY_TARGET == HWY_AVX3_DL
HWY_INLINE VI DotVnni(VI acc, VU8 w, VI x) { return VI{_mm512_dpbusd_epi32(acc.raw, w.raw, x.raw)}; }
#elif BALLAST_VNNI == BALLAST_AVX_VNNI
HWY_INLINE VI DotVnni(VI acc, VU8 w, VI x) { return VI{_mm256_dpbusd_avx_epi32(acc.raw, w.raw, x.raw)}; }
#else
HWY_INLINE VI DotVnni(VI acc, VU8 w, VI x) { return VI{_mm256_dpbusd_epi32(acc.raw, w.raw, x.raw)}; }
#endif

// a . b in pairs.
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
HWY_INLINE VI PairDot16(VI16 a, VI16 b) { return VI{_mm512_madd_epi16(a.raw, b.raw)}; }
#elif HWY_TARGET == HWY_AVX2
HWY_INLINE VI PairDot16(VI16 a, VI16 b) { return VI{_mm256_madd_epi16(a.raw, b.raw)}; }
#else
HWY_INLINE VI PairDot16(VI16 a, VI16 b) { return VI{_mm_madd_epi16(a.raw, b.raw)}; }
#endif
