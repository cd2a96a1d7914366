#include "engine/stream.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace ballast {
namespace {

// Rows of logits computed at a time: bounds memory whatever the vocabulary.
constexpr int64_t kLogitsRows = 16;
constexpr int64_t kDefaultContext = 8192;
constexpr int64_t kMaxChunk = 1 << 16;

}  // namespace

Status InterruptedAfter(int64_t done, int64_t total) {
  return Status(Code::kInterrupted,
                "interrupted after " + std::to_string(done) + " of " + std::to_string(total) + " tokens");
}

Result<std::unique_ptr<Stream>> Stream::Create(const Model& model, ThreadPool& pool,
                                               const StreamOptions& options) {
  std::unique_ptr<Stream> stream(new Stream(model, pool));
  const int64_t context =
      options.context != 0 ? options.context : std::min(kDefaultContext, model.config().trained_context);
  BALLAST_ASSIGN_OR_RETURN(stream->plan_, MakePlan(options.policy, context, options.pinned));
  if (options.chunk < 1 || options.chunk > kMaxChunk) {
    return Status::Expected(Code::kUsage, "--chunk", "1 to " + std::to_string(kMaxChunk) + " tokens",
                            std::to_string(options.chunk));
  }
  stream->chunk_ = options.chunk;
  BALLAST_ASSIGN_OR_RETURN(stream->cache_, KvCache::Create(stream->plan_, model.CacheShape(), options.kv));
  return stream;
}

Status Stream::CheckAppend(std::span<const Token> tokens) const {
  const int64_t vocab = model_.config().vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return Status::Expected(Code::kInput, "token " + std::to_string(i),
                              "an id from 0 to " + std::to_string(vocab - 1), std::to_string(tokens[i]));
    }
  }
  // A recomputing stream empties its cache before it is full.
  if (plan_.policy == Policy::kRecompute) return Status();
  return cache_.CheckRoom(static_cast<int64_t>(tokens.size()));
}

Status Stream::Append(std::span<const Token> tokens, const AppendOptions& options) {
  BALLAST_RETURN_IF_ERROR(CheckAppend(tokens));
  if (plan_.policy == Policy::kRecompute) return AppendRecompute(tokens, options);
  const int64_t n = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < n;) {
    const int64_t count = std::min(chunk_, n - done);
    Step(tokens.subspan(done, count), options, done + count == n);
    done += count;
    if (options.on_step && !options.on_step(done) && done < n) return Interrupted(done, n);
  }
  return Status();
}

// The newest token's logits were never computed: those of an older token must not pass for them.
Status Stream::Interrupted(int64_t done, int64_t total) {
  logits_.clear();
  return InterruptedAfter(done, total);
}

void Stream::Step(std::span<const Token> tokens, const AppendOptions& options, bool last) {
  const int64_t first = cache_.position();
  const Segment segment{&cache_, tokens, options.all_logits ? -1 : last ? 1 : 0};
  model_.Forward({&segment, 1}, workspace_, pool_);
  Report(first, 0, static_cast<int64_t>(tokens.size()), last, options);
}

// Hands rows [first_row, rows) of the last Forward to the observer; `first_position` belongs to first_row.
void Stream::Report(int64_t first_position, int64_t first_row, int64_t rows, bool last,
                    const AppendOptions& options) {
  const int64_t vocab = model_.config().vocab;
  const int heads = model_.config().heads;
  const auto emit = [&](int64_t row, std::span<const float> logits) {
    if (!options.on_row) return;
    options.on_row(Row{first_position + row - first_row, logits, workspace_.sink_mass.data() + row * heads,
                       workspace_.rows * heads});
  };
  if (options.all_logits) {
    for (int64_t row = first_row; row < rows; row += kLogitsRows) {
      const int64_t count = std::min(kLogitsRows, rows - row);
      logits_block_.resize(std::max(logits_block_.size(), static_cast<size_t>(count * vocab)));
      int64_t wanted[kLogitsRows];
      std::iota(wanted, wanted + count, row);
      model_.Logits(workspace_, {wanted, static_cast<size_t>(count)}, logits_block_.data(), pool_);
      for (int64_t i = 0; i < count; ++i)
        emit(row + i, {logits_block_.data() + i * vocab, static_cast<size_t>(vocab)});
      if (last && row + count == rows) {
        const float* newest = logits_block_.data() + (count - 1) * vocab;
        logits_.assign(newest, newest + vocab);
      }
    }
    return;
  }
  if (last) {
    logits_.resize(static_cast<size_t>(vocab));
    const int64_t newest = rows - 1;
    model_.Logits(workspace_, {&newest, 1}, logits_.data(), pool_);
  }
  for (int64_t row = first_row; row < rows; ++row) {
    emit(row, last && row == rows - 1 ? std::span<const float>(logits_) : std::span<const float>());
  }
}

// Until the cache is full this is a dense stream; from then on each new token re-encodes the last `context`
// tokens from position 0, as the paper's "sliding window with re-computation" does.
Status Stream::AppendRecompute(std::span<const Token> tokens, const AppendOptions& options) {
  const int64_t capacity = plan_.layout.capacity();
  const int64_t n = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < n;) {
    const int64_t room = capacity - fed_;
    const int64_t count = room > 0 ? std::min({chunk_, n - done, room}) : 1;
    const std::span<const Token> fresh = tokens.subspan(done, count);
    if (room <= 0) history_.erase(history_.begin());
    history_.insert(history_.end(), fresh.begin(), fresh.end());
    if (room > 0) {
      Step(fresh, options, done + count == n);
    } else {
      cache_.Reset();
      for (int64_t at = 0; at < capacity;) {
        const int64_t piece = std::min(chunk_, capacity - at);
        const Segment segment{&cache_, std::span<const Token>(history_).subspan(at, piece), 1};
        model_.Forward({&segment, 1}, workspace_, pool_);
        at += piece;
        if (at == capacity) Report(fed_, piece - 1, piece, done + count == n, options);
      }
    }
    fed_ += count;
    done += count;
    if (options.on_step && !options.on_step(done) && done < n) return Interrupted(done, n);
  }
  return Status();
}

int64_t Stream::position() const { return plan_.policy == Policy::kRecompute ? fed_ : cache_.position(); }

int64_t Stream::start() const {
  return plan_.policy == Policy::kRecompute ? std::max<int64_t>(0, fed_ - plan_.layout.capacity())
                                            : cache_.start();
}

int64_t Stream::live() const {
  return plan_.policy == Policy::kRecompute ? std::min(fed_, plan_.layout.capacity()) : cache_.live();
}

bool Stream::full() const { return plan_.policy == Policy::kDense && cache_.position() >= context(); }

Status Stream::DropBefore(int64_t x) {
  if (plan_.policy == Policy::kRecompute) {
    return Status::Expected(Code::kUsage, "dropping turns", "policy sinks, window or dense", "recompute");
  }
  cache_.DropBefore(x);
  return Status();
}

bool Stream::CanRollBack(int64_t position, int64_t floor) const {
  if (position < 0 || position > this->position()) return false;
  if (position == this->position()) return floor == cache_.floor();
  // Once it has encoded anew, a recomputing stream's rows are those of the newest window only.
  if (plan_.policy == Policy::kRecompute && fed_ > plan_.layout.capacity()) return false;
  return cache_.CanRollBack(position, floor);
}

Status Stream::RollBack(int64_t position, int64_t floor) {
  if (!CanRollBack(position, floor)) {
    return Status::Expected(Code::kInput, "going back to position " + std::to_string(position),
                            "all tokens that were visible there", "some that were evicted since");
  }
  if (position == this->position()) return Status();
  cache_.RollBack(position, floor);
  if (plan_.policy == Policy::kRecompute) {
    history_.resize(static_cast<size_t>(position));
    fed_ = position;
  }
  logits_.clear();
  return Status();
}

Status Stream::Import(State state, const uint8_t* rows) {
  const auto refuse = [](std::string what, int64_t expected, size_t found) {
    return Status::Expected(Code::kInput, "stream state: " + std::move(what), std::to_string(expected),
                            std::to_string(found));
  };
  const int64_t vocab = model_.config().vocab;
  if (!state.logits.empty() && static_cast<int64_t>(state.logits.size()) != vocab) {
    return refuse("logits", vocab, state.logits.size());
  }
  const bool recompute = plan_.policy == Policy::kRecompute;
  const int64_t kept = recompute ? std::min(state.fed, plan_.layout.capacity()) : 0;
  if (state.fed < 0 || static_cast<int64_t>(state.history.size()) != kept) {
    return refuse("tokens", kept, state.history.size());
  }
  if (recompute && state.cache.position != kept) {
    return refuse("cached tokens", kept, static_cast<size_t>(state.cache.position));
  }
  BALLAST_RETURN_IF_ERROR(cache_.Import(state.cache, rows));
  fed_ = recompute ? state.fed : 0;
  history_ = std::move(state.history);
  logits_ = std::move(state.logits);
  return Status();
}

Status Stream::Repin(int64_t pinned) {
  BALLAST_ASSIGN_OR_RETURN(const CachePlan plan, MakePlan(Policy::kSinks, context(), pinned));
  if (plan_.policy == plan.policy && plan_.layout.pinned == pinned) {
    Reset();
    return Status();
  }
  BALLAST_ASSIGN_OR_RETURN(cache_, KvCache::Create(plan, model_.CacheShape(), cache_.type()));
  plan_ = plan;
  Reset();
  return Status();
}

Status Stream::SkipTo(int64_t position) {
  const int64_t now = cache_.position();
  if (plan_.policy != Policy::kSinks || now != plan_.layout.pinned || position < now) {
    return Status::Expected(Code::kInput, "skipping to position " + std::to_string(position),
                            "a stream of its " + std::to_string(plan_.layout.pinned) + " pinned tokens",
                            std::to_string(now) + " tokens");
  }
  if (position > now) cache_.JumpTo(position);
  return Status();
}

void Stream::Reset() {
  cache_.Reset();
  history_.clear();
  logits_.clear();
  fed_ = 0;
}

}  // namespace ballast
