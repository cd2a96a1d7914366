// Model: weights and the forward pass of one network. Const after Load.
//
// A step takes a batch of segments (each some new tokens of one stream), passes the weights once over all
// rows, and leaves the final normed hidden states in the workspace; logits are computed only for the rows
// somebody asks for. Thread safety: const; any number of workspaces may use it, each from one thread at a
// time.
#ifndef BALLAST_MODEL_MODEL_H_
#define BALLAST_MODEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "cache/cache.h"
#include "formats/tensor_file.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "model/config.h"

namespace ballast {

// Where one segment's rows of a step go, and the spans they see. Filled per layer.
struct StepRows {
  int64_t first_row = 0;      // of the workspace
  int64_t begin = 0;          // stream position of that row
  int64_t chunk_first = 0;    // stream position of row 0 of the chunk
  KvBuffer chunk_k, chunk_v;  // new window rows, beside the ring until all queries have read it
  KvCache::Spans spans;
};

// Scratch of a forward step. Buffers grow to the largest step seen and are reused.
struct Workspace {
  std::vector<float> hidden;     // (row, embed): residual stream; after Forward, (output) final normed states
  std::vector<float> normed;     // (row, embed)
  std::vector<float> q, k, v;    // (row, head, head_dim)
  std::vector<float> q_pinned;   // (row, head, head_dim)
  std::vector<float> attended;   // (row, head, head_dim)
  std::vector<float> gate, up;   // (row, ffn)
  std::vector<float> projected;  // (row, embed)
  std::vector<float>
      angles;  // (table, row, 4, rope_dims / 2): cos, sin at the stream and at the in-cache position
  std::vector<int64_t> position;  // (row)
  std::vector<int64_t> in_cache;  // (row): in-cache position
  std::vector<int64_t> start;     // (row): of the layer at hand
  std::vector<float> sink_mass;   // (layer, row, head): softmax share of the pinned keys
  AttentionScratch attention;
  std::vector<AttentionJob> attention_jobs;  // (segment)
  std::vector<StepRows> step_rows;           // (segment)
  std::vector<uint8_t> chunk;  // new window rows of one layer, in the cache's own format, segment by segment
  Activations activations;
  std::vector<int64_t> fine;    // rows that are a stream's first token
  std::vector<int64_t> output;  // (row): its index among the wanted rows, -1 for the others
  int64_t rows = 0;
};

// New tokens of one stream: positions cache->position() and on.
struct Segment {
  KvCache* cache = nullptr;
  std::span<const int32_t> tokens;
  int64_t outputs = -1;  // only so many rows at the end are wanted by Logits; -1: all
};

struct LoadOptions {
  Compute compute = Compute::kFast;
  std::function<void(double share)> progress;  // 0 to 1
  // Matrices stored as floats become this (see quantize.h); none: they stay as stored.
  std::optional<DType> weights = std::nullopt;
};

class Model {
 public:
  // Builds the family the file names. `file` must outlive the model. kModel errors.
  static Result<std::unique_ptr<const Model>> Load(const TensorFile& file, const LoadOptions& options,
                                                   ThreadPool& pool);
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }
  Compute compute() const { return compute_; }
  int64_t weight_bytes() const { return weight_bytes_; }  // read per token of decode
  int64_t weight_count() const { return weight_count_; }  // elements of the matrices a token passes
  virtual std::vector<KvCache::LayerShape> CacheShape() const = 0;

  // Runs every segment's tokens through the network and advances their caches. Rows are the segments' tokens
  // in turn. REQUIRES: token ids are in range and CheckRoom said yes.
  virtual void Forward(std::span<const Segment> segments, Workspace& ws, ThreadPool& pool) const = 0;
  // logits (rows.size(), vocab) of those rows of the last Forward. REQUIRES: they were among its outputs.
  virtual void Logits(Workspace& ws, std::span<const int64_t> rows, float* logits,
                      ThreadPool& pool) const = 0;

 protected:
  ModelConfig config_;
  Compute compute_ = Compute::kFast;
  int64_t weight_bytes_ = 0;
  int64_t weight_count_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_MODEL_MODEL_H_
