// The softmax step of one tile of queries over one block of keys; shared by both attention kernels. Included
// once per instruction set.
#if defined(BALLAST_KERNELS_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KERNELS_ATTENTION_SOFTMAX_INL_H_
#undef BALLAST_KERNELS_ATTENTION_SOFTMAX_INL_H_
#else
#define BALLAST_KERNELS_ATTENTION_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/attention_item.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
constexpr int kLanes = HWY_LANES(float);
constexpr int kParts = kBlockKeys / kLanes;
static_assert(kBlockKeys % kLanes == 0);

// exp(x) for x <= 0 with a relative error below 1e-7; exactly 0 below -87 (before float's subnormals). Half
// the work of Highway's Exp, which also serves large and subnormal results. x = n ln 2 + r (ln 2 in two
// parts, the first short enough for an exact product), exp(r) by a minimax polynomial on |r| <= ln 2 / 2 (our
// fit).
HWY_INLINE hn::Vec<FloatTag> ExpNegative(hn::Vec<FloatTag> x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto lowest = hn::Set(d, -87.0f);
  const auto seen = hn::Gt(x, lowest);
  x = hn::Max(x, lowest);
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto nf = hn::Sub(shifted, magic);
  const auto r = hn::MulAdd(nf, hn::Set(d, 2.12194440e-4f), hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), x));
  auto p = hn::MulAdd(r, hn::Set(d, 0.001381454f), hn::Set(d, 0.008368745f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.04166839f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.16666521f));
  p = hn::MulAdd(r, p, hn::Set(d, 0.49999994f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  const auto scaled =
      hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  return hn::IfThenElseZero(seen, scaled);
}

// What a tile of queries sees of a block.
struct TileView {
  int lo[kMaxTile];
  int hi[kMaxTile];
  bool any = false;
};

HWY_INLINE TileView ViewTile(const Item& item, const KeyBlock& block, int64_t first, int tile) {
  TileView view;
  int64_t row = item.row_begin + first / item.group, head = first % item.group;
  for (int q = 0; q < tile; ++q) {
    item.Visible(block, row, &view.lo[q], &view.hi[q]);
    if (++head == item.group) head = 0, ++row;
    view.any |= view.lo[q] < view.hi[q];
  }
  return view;
}

// The scores of a query over a block: scores (kBlockKeys) is filled from score(i), its vector i, with keys
// outside lo <= key < hi pushed down to a weight of exactly 0. Returns the largest score, -kScoreLimit when
// nothing is visible.
template <class Score>
HWY_INLINE float BlockScores(int lo, int hi, const Score& score, float* scores) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // Below the limit, keys that all score less would weigh nothing.
  const auto lowest = hn::Set(d, -kScoreLimit), limit = hn::Set(d, kScoreLimit);
  const auto limited = [&](int i) HWY_ATTR { return hn::Min(hn::Max(score(i), lowest), limit); };
  auto vmax = lowest;
  if (lo <= 0 && hi >= kBlockKeys) {
    HWY_UNROLL(8)
    for (int i = 0; i < kParts; ++i) {
      const auto s = limited(i);
      hn::Store(s, d, scores + i * kLanes);
      vmax = hn::Max(vmax, s);
    }
  } else {
    const auto hidden = hn::Set(d, -1e38f);
    const auto vlo = hn::Set(di, lo), vhi = hn::Set(di, hi);
    for (int i = 0; i < kParts; ++i) {
      const auto key = hn::Iota(di, i * kLanes);
      auto s = hn::IfThenElse(hn::RebindMask(d, hn::Lt(key, vlo)), hidden, limited(i));
      s = hn::IfThenElse(hn::RebindMask(d, hn::Lt(key, vhi)), s, hidden);
      hn::Store(s, d, scores + i * kLanes);
      vmax = hn::Max(vmax, s);
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, vmax));
}

// Soft-capped or ALiBi-biased scores of query j; score(i) as for BlockScores.
template <class Score>
HWY_NOINLINE float AdjustedBlockScores(const Item& item, const KeyBlock& block, int64_t j, int lo, int hi,
                                       const Score& score, float* scores) {
  const FloatTag d;
  const float cap = item.shape->softcap;
  const auto slope = hn::Set(d, item.Slope(j)), distance = hn::Set(d, item.DistanceToFirst(block, j));
  const auto adjusted = [&](int i) HWY_ATTR {
    auto s = score(i);
    if (cap > 0) {
      const auto e = ExpNegative(hn::Mul(hn::Abs(s), hn::Set(d, -2.0f / cap)));
      const auto one = hn::Set(d, 1.0f);
      s = hn::Mul(hn::Set(d, cap), hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), s));
    }
    const auto key = hn::ConvertTo(d, hn::Iota(hn::RebindToSigned<FloatTag>(), i * kLanes));
    return hn::NegMulAdd(slope, hn::Sub(distance, key), s);
  };
  return BlockScores(lo, hi, adjusted, scores);
}

// What belongs to the queries of a tile is read and written as whole vectors.
constexpr int kTileFloats = std::max(8, kLanes);
static_assert(kMaxTile <= kTileFloats && kTileFloats % kLanes == 0);

// Merges a block's (max, sum) of each query of the tile into the running state. Sets the factors for what was
// accumulated before (keep) and for this block (add). One of the two is 1. All four: (kTileFloats).
HWY_INLINE void MergeTile(const Item& item, bool pinned, int64_t first, int tile, const float* max,
                          const float* sum, float* keep, float* add) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0f);
  for (int q = 0; q < tile; q += kLanes) {
    const auto mine = hn::FirstN(d, static_cast<size_t>(tile - q));
    float* const old_max = item.state.max + first + q;
    float* const old_sum = item.state.sum + first + q;
    float* const old_pinned = item.state.pinned + first + q;
    const auto before = hn::LoadU(d, old_max), now = hn::Load(d, max + q);
    const auto grows = hn::Gt(now, before);
    const auto fall = ExpNegative(hn::Neg(hn::AbsDiff(now, before)));
    const auto keeps = hn::IfThenElse(grows, fall, one), adds = hn::IfThenElse(grows, one, fall);
    hn::Store(keeps, d, keep + q);
    hn::Store(adds, d, add + q);
    const auto part = hn::Mul(hn::Load(d, sum + q), adds);
    hn::BlendedStore(hn::Max(before, now), mine, d, old_max);
    hn::BlendedStore(hn::MulAdd(hn::LoadU(d, old_sum), keeps, part), mine, d, old_sum);
    const auto pinned_part = pinned ? part : hn::Zero(d);
    hn::BlendedStore(hn::MulAdd(hn::LoadU(d, old_pinned), keeps, pinned_part), mine, d, old_pinned);
  }
}

HWY_INLINE void ClearState(const Item& item) {
  const State& state = item.state;
  std::fill(state.max, state.max + item.queries, -kScoreLimit);
  std::fill(state.sum, state.sum + item.queries, 0.0f);
  std::fill(state.pinned, state.pinned + item.queries, 0.0f);
  std::fill(state.acc, state.acc + item.queries * PaddedDim(item.shape->head_dim), 0.0f);
}

}  // namespace HWY_NAMESPACE
}  // namespace ballast::attention
HWY_AFTER_NAMESPACE();

#endif  // BALLAST_KERNELS_ATTENTION_SOFTMAX_INL_H_
