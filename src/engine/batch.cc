#include "engine/batch.h"

#include "model/blocks.h"

namespace ballast {

void Batch::Step(std::span<Entry> entries) {
  segments_.clear();
  fed_.clear();
  for (Entry& entry : entries) {
    entry.status = Status();
    entry.sink_mass = nullptr;
    if (entry.tokens.empty()) continue;
    if (entry.stream->policy() == Policy::kRecompute) {
      entry.status = entry.stream->Append(entry.tokens);
      continue;
    }
    entry.status = entry.stream->CheckAppend(entry.tokens);
    if (!entry.status.ok()) continue;
    segments_.push_back({&entry.stream->cache_, entry.tokens, entry.logits ? 1 : 0});
    fed_.push_back(&entry);
  }
  if (segments_.empty()) return;
  model_.Forward(segments_, workspace_, pool_);

  const int64_t heads = model_.config().heads, vocab = model_.config().vocab;
  rows_.clear();
  int64_t row = -1;
  for (Entry* entry : fed_) {
    row += static_cast<int64_t>(entry->tokens.size());
    entry->sink_mass = workspace_.sink_mass.data() + row * heads;
    entry->layer_stride = workspace_.rows * heads;
    entry->stream->logits_.clear();
    if (entry->logits) rows_.push_back(row);
  }
  if (rows_.empty()) return;
  const int64_t wanted = static_cast<int64_t>(rows_.size());
  Reserve(logits_, wanted * vocab);
  model_.Logits(workspace_, rows_, logits_.data(), pool_);
  const float* next = logits_.data();
  for (Entry* entry : fed_) {
    if (!entry->logits) continue;
    entry->stream->logits_.assign(next, next + vocab);
    next += vocab;
  }
}

}  // namespace ballast
