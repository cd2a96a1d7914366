// Named pieces that model families compose: positions of a step, and attention through the cache.
#ifndef BALLAST_MODEL_BLOCKS_H_
#define BALLAST_MODEL_BLOCKS_H_

#include <cstdint>
#include <span>

#include "kernels/rope.h"
#include "model/model.h"

namespace ballast {

// Fills ws.position, ws.in_cache and, for each of `ropes`, ws.angles for the rows of `segments`: cos and sin
// of each row's stream position (window keys and its own key) and of its in-cache position (pinned keys). See
// docs/law.md. Returns true when the two agree everywhere, so that one rotated query serves both. REQUIRES:
// all of `ropes` have the same number of dimensions.
bool PreparePositions(std::span<const Segment> segments, std::span<const RopeTable> ropes, Workspace& ws,
                      ThreadPool& pool);

// Before the last layer's rows are only needed for themselves (after its attention): moves the wanted rows
// (Segment::outputs) of ws.hidden, ws.normed and ws.attended (q_dims each) together, notes where they went in
// ws.output, and returns how many there are.
int64_t KeepOutputs(std::span<const Segment> segments, int64_t embed, int64_t q_dims, Workspace& ws);
// The final states of `rows`, contiguous: (rows.size(), embed). In place where they follow each other, else
// gathered in ws.normed.
const float* GatherHidden(std::span<const int64_t> rows, int64_t embed, Workspace& ws);

// Rotates ws.q into ws.q (stream position) and ws.q_pinned (in-cache position), and ws.k in place. `index`:
// of the table among those of PreparePositions.
void RotateQueriesAndKeys(const ModelConfig& config, const RopeTable& rope, int index, bool same_positions,
                          Workspace& ws, ThreadPool& pool);

// One layer's attention for all segments, whose rows follow each other in the workspace: stores the new keys
// and values (ws.k, ws.v), attends ws.q / ws.q_pinned over what each row may see, writes ws.attended and this
// layer's sink mass. `shape` lacks the KV types, which are each cache's own.
void AttendThroughCaches(std::span<const Segment> segments, int layer, AttentionShape shape,
                         bool same_positions, Workspace& ws, ThreadPool& pool);

// Adds a bias of n values to every row of x (rows, n); empty: nothing.
void AddBias(std::span<const float> bias, int64_t rows, float* x);

// Grows `v` to at least n; never shrinks.
template <typename T>
void Reserve(std::vector<T>& v, int64_t n) {
  if (static_cast<int64_t>(v.size()) < n) v.resize(static_cast<size_t>(n));
}

}  // namespace ballast

#endif  // BALLAST_MODEL_BLOCKS_H_
