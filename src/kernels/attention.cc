#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "kernels/attention_item.h"

namespace ballast {
namespace {

using attention::Item;
using attention::KeyBlock;
using attention::PaddedDim;

constexpr int64_t kItemQueries = 192;  // packing a block of keys is paid once for so many queries
constexpr int64_t kMinItemBlocks = 4;  // less work than this is not worth handing out
constexpr int64_t kWantedItems = 32;   // enough to keep any usual number of cores evenly busy

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t Align(int64_t floats) { return CeilDiv(floats, 16) * 16; }

// Rows that share their blocks of keys.
struct RowBlock {
  int64_t row_begin, rows;
  std::vector<KeyBlock> keys;  // what any of the rows may see, in span order
};

void AddVisibleKeys(const AttentionQueries& q, std::span<const KvSpan> spans, RowBlock& block) {
  const int64_t* position = q.position + block.row_begin;
  const int64_t* start = q.start + block.row_begin;
  const int64_t last = *std::max_element(position, position + block.rows);
  const int64_t first = *std::min_element(start, start + block.rows);
  for (size_t s = 0; s < spans.size(); ++s) {
    const KvSpan& span = spans[s];
    const int64_t end = std::min(span.count, last - span.first_position + 1);
    int64_t begin = span.pinned ? 0 : std::max<int64_t>(0, first - span.first_position);
    for (; begin < end; begin += attention::kBlockKeys) {
      const int64_t count = std::min<int64_t>(attention::kBlockKeys, end - begin);
      block.keys.push_back({static_cast<int64_t>(s), begin, static_cast<int>(count)});
    }
  }
}

// The pieces of one call. Items of one row block and KV head (a `Part`) are neighbours, in key order.
struct Plan {
  struct Part {
    int64_t first_item, items;
  };
  std::vector<RowBlock> row_blocks;
  std::vector<Item> items;
  std::vector<Part> parts;
  int64_t state_floats = 0;
};

void AddItem(Plan& plan, Item item, KvType kv, std::span<const KeyBlock> blocks) {
  item.kv = kv;
  item.integers = attention::UsesIntegers(*item.shape, kv);
  item.blocks = blocks;
  plan.items.push_back(item);
  plan.state_floats += Align(item.queries) * 3 + item.queries * PaddedDim(item.shape->head_dim);
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

Plan MakePlan(const AttentionShape& shape, const AttentionQueries& q, std::span<const KvSpan> spans) {
  Plan plan;
  const int group = shape.heads / shape.kv_heads;
  const int64_t rows = std::max<int64_t>(1, kItemQueries / group);
  int64_t total = 0;
  plan.row_blocks.reserve(CeilDiv(q.rows, rows));
  for (int64_t r = 0; r < q.rows; r += rows) {
    RowBlock& block = plan.row_blocks.emplace_back(RowBlock{r, std::min(rows, q.rows - r), {}});
    AddVisibleKeys(q, spans, block);
    total += static_cast<int64_t>(block.keys.size()) * shape.kv_heads;
  }
  const int64_t most = std::max(kMinItemBlocks, CeilDiv(total, kWantedItems));
  for (const RowBlock& block : plan.row_blocks) {
    // Blocks of one type go together: pinned keys, which come first, may be stored finer than the rest.
    const auto is_pinned = [&](const KeyBlock& keys) { return spans[keys.span].pinned; };
    const int64_t pinned_blocks =
        shape.pinned_kv == shape.kv ? 0 : std::count_if(block.keys.begin(), block.keys.end(), is_pinned);
    for (int h = 0; h < shape.kv_heads; ++h) {
      const int64_t first = static_cast<int64_t>(plan.items.size());
      Item item;
      item.shape = &shape;
      item.q = &q;
      item.spans = spans;
      item.kv_head = h;
      item.group = group;
      item.row_begin = block.row_begin;
      item.queries = block.rows * group;
      const std::span<const KeyBlock> keys(block.keys);
      AddItems(plan, item, shape.pinned_kv, keys.first(pinned_blocks), most);
      AddItems(plan, item, shape.kv, keys.subspan(pinned_blocks), most);
      if (static_cast<int64_t>(plan.items.size()) == first)
        AddItem(plan, item, shape.kv, {});  // sees nothing
      plan.parts.push_back({first, static_cast<int64_t>(plan.items.size()) - first});
    }
  }
  return plan;
}

// Hands out `at`, aligned to 64 bytes, to the items' states and, after them, to the workers.
float* PlaceStates(Plan& plan, int64_t padded, float* at) {
  for (Item& item : plan.items) {
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
    for (int64_t i = 0; i < dim; i += 4) {
      const float* four = acc + (part.integers ? attention::IntegerPlace(i) : i);
      for (int c = 0; c < 4; ++c) out[i + c] += four[c] * factor;
    }
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

void Attention(const AttentionShape& shape, const AttentionQueries& q, std::span<const KvSpan> spans,
               float* out, float* sink_mass, std::vector<float>& scratch, ThreadPool& pool) {
  BALLAST_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 && shape.head_dim % 8 == 0);
  if (q.rows <= 0) return;
  Plan plan = MakePlan(shape, q, spans);
  int64_t queries = 0;
  for (const Item& item : plan.items) queries = std::max(queries, item.queries);
  const int64_t work = Align(attention::WorkFloats(queries, shape.head_dim));
  const size_t needed = static_cast<size_t>(plan.state_floats + pool.threads() * work + 16);
  if (scratch.size() < needed) scratch.resize(needed);
  const uintptr_t address = reinterpret_cast<uintptr_t>(scratch.data());
  float* aligned = scratch.data() + (64 - address % 64) % 64 / sizeof(float);
  float* workers = PlaceStates(plan, PaddedDim(shape.head_dim), aligned);

  pool.For(static_cast<int64_t>(plan.items.size()), 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      Item& item = plan.items[i];
      item.work = workers + worker * work;
      item.integers ? attention::RunIntegerItem(item) : attention::RunFloatItem(item);
    }
  });
  // A merge of few queries is cheaper than waking another thread for it.
  const int64_t parts = static_cast<int64_t>(plan.parts.size());
  const int64_t grain = q.rows * shape.heads * shape.head_dim < 16384 ? parts : 1;
  pool.For(parts, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Plan::Part& part = plan.parts[i];
      FinishPart(std::span(plan.items).subspan(part.first_item, part.items), out, sink_mass);
    }
  });
}

}  // namespace ballast
