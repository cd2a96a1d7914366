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

// clang-format off
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on
#include "kernels/attention_item.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
constexpr int kLanes = HWY_LANES(float);
static_assert(kBlockKeys % kLanes == 0);

// What a tile of queries sees of a block.
struct TileView {
  int lo[kMaxTile];
  int hi[kMaxTile];
  bool any = false;
};

HWY_INLINE TileView ViewTile(const Item& item, const KeyBlock& block, int64_t first, int tile) {
  TileView view;
  for (int q = 0; q < tile; ++q) {
    item.Visible(block, first + q, &view.lo[q], &view.hi[q]);
    view.any |= view.lo[q] < view.hi[q];
  }
  return view;
}

// scores (kBlockKeys) becomes exp(score - max) where lo <= key < hi and 0 elsewhere. Returns the sum and sets
// max, which is -kScoreLimit when nothing is visible.
HWY_INLINE float BlockSoftmax(float* HWY_RESTRICT scores, int lo, int hi, float* max) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  constexpr int kParts = kBlockKeys / kLanes;
  if (lo >= hi) {
    std::fill(scores, scores + kBlockKeys, 0.0f);
    *max = -kScoreLimit;
    return 0;
  }
  if (lo > 0 || hi < kBlockKeys) {
    // So far below the limit of visible scores that its exponential is exactly 0.
    const auto hidden = hn::Set(d, -1e38f);
    const auto vlo = hn::Set(di, lo), vhi = hn::Set(di, hi);
    for (int i = 0; i < kParts; ++i) {
      const auto key = hn::Iota(di, i * kLanes);
      const auto seen =
          hn::AndNot(hn::VecFromMask(di, hn::Lt(key, vlo)), hn::VecFromMask(di, hn::Lt(key, vhi)));
      float* s = scores + i * kLanes;
      hn::Store(hn::IfThenElse(hn::RebindMask(d, hn::MaskFromVec(seen)), hn::Load(d, s), hidden), d, s);
    }
  }
  auto vmax = hn::Set(d, -kScoreLimit);
  for (int i = 0; i < kParts; ++i) vmax = hn::Max(vmax, hn::Load(d, scores + i * kLanes));
  vmax = hn::Min(hn::MaxOfLanes(d, vmax), hn::Set(d, kScoreLimit));
  const auto limit = hn::Set(d, kScoreLimit), low = hn::Set(d, -200.0f);
  auto sum = hn::Zero(d);
  for (int i = 0; i < kParts; ++i) {
    const auto score = hn::Min(hn::Load(d, scores + i * kLanes), limit);
    // exp(-200) is 0 to float already; more would leave the integer range inside Exp.
    const auto weight = hn::Exp(d, hn::Max(hn::Sub(score, vmax), low));
    hn::Store(weight, d, scores + i * kLanes);
    sum = hn::Add(sum, weight);
  }
  *max = hn::GetLane(vmax);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Merges a block's (max, sum) of each query of the tile into the running state. Sets the factors for what was
// accumulated before (keep) and for this block (add). One of the two is 1.
HWY_INLINE void MergeTile(const Item& item, bool pinned, int64_t first, int tile, const float* max,
                          const float* sum, float* keep, float* add) {
  const FloatTag d;
  HWY_ALIGN float fall[std::max(8, kLanes)] = {};  // exp(-|difference of the two maxima|)
  for (int q = 0; q < tile; ++q) {
    fall[q] = std::max(-200.0f, -std::abs(item.state.max[first + q] - max[q]));
  }
  for (int q = 0; q < tile; q += kLanes) hn::Store(hn::Exp(d, hn::Load(d, fall + q)), d, fall + q);
  for (int q = 0; q < tile; ++q) {
    const int64_t j = first + q;
    const bool grows = max[q] > item.state.max[j];
    keep[q] = grows ? fall[q] : 1.0f;
    add[q] = grows ? 1.0f : fall[q];
    item.state.max[j] = std::max(item.state.max[j], max[q]);
    const float part = sum[q] * add[q];
    item.state.sum[j] = item.state.sum[j] * keep[q] + part;
    item.state.pinned[j] = item.state.pinned[j] * keep[q] + (pinned ? part : 0.0f);
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
