#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status.h"
#include "kernels/attention_item.h"

namespace ballast {
namespace {

using attention::Item;
using attention::KeyBlock;
using attention::PaddedDim;

constexpr int64_t kItemQueries = 192;   // packing a block of keys is paid once for so many queries
constexpr int64_t kMinItemBlocks = 4;   // less work than this is not worth handing out
constexpr int64_t kWantedItems = 32;    // enough to keep any usual number of cores evenly busy
constexpr int64_t kFewResults = 16384;  // floats written by a call that is decode, more or less

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t Align(int64_t floats) { return CeilDiv(floats, 16) * 16; }

// Rows of one job that share their blocks of keys.
struct RowBlock {
  const AttentionJob* job;
  int64_t row_begin, rows;
  int64_t first_key, keys;  // in Plan::keys: what any of the rows may see, in span order
};

// Items of one row block and KV head are neighbours, in key order.
struct Part {
  const AttentionJob* job;
  int64_t first_item, items;
};

// The pieces of one call.
struct Plan {
  std::vector<KeyBlock> keys;
  std::vector<RowBlock> row_blocks;
  std::vector<Item> items;
  std::vector<Part> parts;
  int64_t state_floats = 0;
  int64_t work_floats = 0;
  int64_t results = 0;  // floats written
};

void AddVisibleKeys(RowBlock& block, std::vector<KeyBlock>& keys) {
  const AttentionQueries& q = block.job->q;
  const int64_t* position = q.position + block.row_begin;
  const int64_t* start = q.start + block.row_begin;
  const int64_t last = *std::max_element(position, position + block.rows);
  const int64_t first = *std::min_element(start, start + block.rows);
  block.first_key = static_cast<int64_t>(keys.size());
  for (size_t s = 0; s < block.job->spans.size(); ++s) {
    const KvSpan& span = block.job->spans[s];
    const int64_t end = std::min(span.count, last - span.first_position + 1);
    for (int64_t row = span.pinned ? 0 : std::max<int64_t>(0, first - span.first_position); row < end;) {
      const int64_t lo = (span.k.first + row) % kKvTile, hi = std::min(kKvTile, lo + end - row);
      keys.push_back({static_cast<int64_t>(s), row - lo, static_cast<int>(lo), static_cast<int>(hi)});
      row += hi - lo;
    }
  }
  block.keys = static_cast<int64_t>(keys.size()) - block.first_key;
}

// Cuts a job into row blocks.
void AddRowBlocks(Plan& plan, const AttentionJob& job) {
  const int64_t rows = std::max<int64_t>(1, kItemQueries / (job.shape.heads / job.shape.kv_heads));
  for (int64_t r = 0; r < job.q.rows; r += rows) {
    RowBlock& block = plan.row_blocks.emplace_back(RowBlock{&job, r, std::min(rows, job.q.rows - r), 0, 0});
    AddVisibleKeys(block, plan.keys);
  }
}

void AddItem(Plan& plan, Item item, KvType kv, std::span<const KeyBlock> blocks) {
  item.kv = kv;
  item.integers = attention::UsesIntegers(*item.shape, kv);
  item.blocks = blocks;
  plan.items.push_back(item);
  plan.state_floats += Align(item.queries) * 3 + item.queries * PaddedDim(item.shape->head_dim);
  plan.work_floats =
      std::max(plan.work_floats, Align(attention::WorkFloats(item.queries, item.shape->head_dim)));
}

// Cuts `blocks`, all of type `kv`, into items of at most `most` blocks.
void AddItems(Plan& plan, const Item& item, KvType kv, std::span<const KeyBlock> blocks, int64_t most) {
  const int64_t count = static_cast<int64_t>(blocks.size());
  const int64_t pieces = CeilDiv(count, most);
  for (int64_t p = 0; p < pieces; ++p) {
    const int64_t begin = count * p / pieces, end = count * (p + 1) / pieces;
    AddItem(plan, item, kv, blocks.subspan(begin, end - begin));
  }
}

// The items of one row block, cut into pieces of at most `most` blocks of keys.
void AddParts(Plan& plan, const RowBlock& block, int64_t most) {
  const AttentionJob& job = *block.job;
  const AttentionShape& shape = job.shape;
  const std::span<const KeyBlock> keys = std::span(plan.keys).subspan(block.first_key, block.keys);
  // Blocks of one type go together: pinned keys, which come first, may be stored finer than the rest.
  const auto is_pinned = [&](const KeyBlock& key) { return job.spans[key.span].pinned; };
  const int64_t pinned_blocks =
      shape.pinned_kv == shape.kv ? 0 : std::count_if(keys.begin(), keys.end(), is_pinned);
  for (int h = 0; h < shape.kv_heads; ++h) {
    const int64_t first = static_cast<int64_t>(plan.items.size());
    Item item;
    item.shape = &shape;
    item.q = &job.q;
    item.spans = job.spans;
    item.kv_head = h;
    item.group = shape.heads / shape.kv_heads;
    item.row_begin = block.row_begin;
    item.queries = block.rows * item.group;
    AddItems(plan, item, shape.pinned_kv, keys.first(pinned_blocks), most);
    AddItems(plan, item, shape.kv, keys.subspan(pinned_blocks), most);
    if (static_cast<int64_t>(plan.items.size()) == first) AddItem(plan, item, shape.kv, {});  // sees nothing
    plan.parts.push_back({&job, first, static_cast<int64_t>(plan.items.size()) - first});
  }
}

void MakePlan(std::span<const AttentionJob> jobs, Plan& plan) {
  plan.keys.clear();
  plan.row_blocks.clear();
  plan.items.clear();
  plan.parts.clear();
  plan.state_floats = plan.work_floats = plan.results = 0;
  for (const AttentionJob& job : jobs) {
    const AttentionShape& shape = job.shape;
    BALLAST_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim % 8 == 0);
    AddRowBlocks(plan, job);
    plan.results += std::max<int64_t>(0, job.q.rows) * shape.heads * shape.head_dim;
  }
  // Only now do the blocks of keys stay where they are. The cut of a job depends on the job alone.
  for (size_t b = 0; b < plan.row_blocks.size();) {
    size_t end = b;
    int64_t total = 0;
    for (; end < plan.row_blocks.size() && plan.row_blocks[end].job == plan.row_blocks[b].job; ++end) {
      total += plan.row_blocks[end].keys * plan.row_blocks[end].job->shape.kv_heads;
    }
    const int64_t most = std::max(kMinItemBlocks, CeilDiv(total, kWantedItems));
    for (; b < end; ++b) AddParts(plan, plan.row_blocks[b], most);
  }
}

// Hands out `at`, aligned to 64 bytes, to the items' states and, after them, to the workers.
float* PlaceStates(Plan& plan, float* at) {
  for (Item& item : plan.items) {
    const int64_t padded = PaddedDim(item.shape->head_dim);
    item.state.max = at;
    item.state.sum = item.state.max + Align(item.queries);
    item.state.pinned = item.state.sum + Align(item.queries);
    item.state.acc = item.state.pinned + Align(item.queries);
    at = item.state.acc + item.queries * padded;
  }
  return at;
}

// The result of query j from the states of its items, in key order.
void Finish(std::span<const Item> items, int64_t j, float* out, float* sink_mass) {
  const Item& item = items.front();
  const int64_t dim = item.shape->head_dim, padded = PaddedDim(dim);
  float max = -attention::kScoreLimit;
  for (const Item& part : items) max = std::max(max, part.state.max[j]);
  float sum = 0, pinned = 0;
  for (const Item& part : items) {
    const float factor = std::exp(part.state.max[j] - max);
    sum += part.state.sum[j] * factor;
    pinned += part.state.pinned[j] * factor;
  }
  std::fill(out, out + dim, 0.0f);
  *sink_mass = 0;
  if (!(sum > 0)) return;  // sees nothing
  for (const Item& part : items) {
    const float factor = std::exp(part.state.max[j] - max) / sum;
    const float* acc = part.state.acc + j * padded;
    for (int64_t i = 0; i < dim; ++i) out[i] += acc[i] * factor;
  }
  *sink_mass = std::clamp(pinned / sum, 0.0f, 1.0f);
}

void FinishPart(std::span<const Item> items, float* out, float* sink_mass) {
  const Item& item = items.front();
  const int64_t heads = item.shape->heads, dim = item.shape->head_dim;
  for (int64_t j = 0; j < item.queries; ++j) {
    const int64_t at =
        (item.row_begin + j / item.group) * heads + int64_t{item.kv_head} * item.group + j % item.group;
    Finish(items, j, out + at * dim, sink_mass + at);
  }
}

}  // namespace

struct AttentionScratch::Impl {
  Plan plan;
  std::vector<float> floats;
};

AttentionScratch::AttentionScratch() : impl_(std::make_unique<Impl>()) {}
AttentionScratch::~AttentionScratch() = default;
AttentionScratch::AttentionScratch(AttentionScratch&&) noexcept = default;
AttentionScratch& AttentionScratch::operator=(AttentionScratch&&) noexcept = default;

void Attention(std::span<const AttentionJob> jobs, AttentionScratch& scratch, ThreadPool& pool) {
  Plan& plan = scratch.impl().plan;
  std::vector<float>& floats = scratch.impl().floats;
  MakePlan(jobs, plan);
  const size_t needed = static_cast<size_t>(plan.state_floats + pool.threads() * plan.work_floats + 16);
  if (floats.size() < needed) floats.resize(needed);
  const uintptr_t address = reinterpret_cast<uintptr_t>(floats.data());
  float* aligned = floats.data() + (64 - address % 64) % 64 / sizeof(float);
  float* workers = PlaceStates(plan, aligned);

  // Decode waits for memory, which is fastest in long runs: neighbouring items, whose keys are neighbours,
  // stay together. A prompt's items are large and uneven, and are handed out one by one.
  const int64_t items = static_cast<int64_t>(plan.items.size());
  const int64_t item_grain =
      plan.results < kFewResults ? std::max<int64_t>(1, items / (int64_t{2} * pool.threads())) : 1;
  pool.For(items, item_grain, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      Item& item = plan.items[i];
      item.work = workers + worker * plan.work_floats;
      item.integers ? attention::RunIntegerItem(item) : attention::RunFloatItem(item);
    }
  });
  // A merge of few queries is cheaper than waking another thread for it.
  const int64_t parts = static_cast<int64_t>(plan.parts.size());
  const int64_t grain = plan.results < kFewResults ? parts : 1;
  pool.For(parts, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Part& part = plan.parts[i];
      FinishPart(std::span(plan.items).subspan(part.first_item, part.items), part.job->out,
                 part.job->sink_mass);
    }
  });
}

}  // namespace ballast
