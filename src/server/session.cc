#include "server/session.h"

#include <algorithm>
#include <utility>

#include "engine/rescue.h"

namespace ballast::server {

size_t Session::TurnCapacity(int64_t context) {
  // Turns of fewer than 4 tokens do not exist; so all visible turns are remembered.
  return static_cast<size_t>(std::clamp<int64_t>(context / 4, 64, int64_t{1} << 16));
}

Session::Session(const Config& config, std::unique_ptr<Stream> stream)
    : config_(config),
      stream_(std::move(stream)),
      monitor_(stream_->model()),
      turns_(TurnCapacity(stream_->context())) {
  pinned_ids_.assign(static_cast<size_t>(stream_->pinned()), 0);
  ring_ids_.assign(static_cast<size_t>(stream_->context()), 0);
}

Result<std::unique_ptr<Session>> Session::Create(const Model& model, ThreadPool& pool, const Config& config) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create(model, pool, config.stream));
  Config known = config;
  known.stream.context = stream->context();
  known.stream.pinned = stream->pinned();
  return std::unique_ptr<Session>(new Session(known, std::move(stream)));
}

int64_t Session::Piece(const PromptPlan& plan, int64_t offset, int64_t n) const {
  if (config_.evict != Evict::kTurn) return n;
  for (const PromptPlan::Mark& mark : plan.turns) {
    if (mark.begin > offset) return std::min(n, mark.begin - offset);
  }
  return n;
}

void Session::BeforeFeed(int64_t n) {
  if (config_.evict != Evict::kTurn || stream_->policy() == Policy::kRecompute) return;
  const int64_t window = stream_->context() - stream_->pinned();
  const int64_t position = stream_->position();
  const int64_t need = position + n - window;  // nothing before this can stay
  if (need <= std::max(stream_->pinned(), stream_->floor())) return;
  std::optional<int64_t> begin = turns_.FirstBeginFrom(need);
  outgrew_ = !begin || *begin > position;
  // The newest turn loses its own beginning, one token at a time; all before it goes at once.
  if (outgrew_) begin = turns_.NewestBegin();
  if (!begin || *begin <= stream_->floor()) return;
  if (stream_->DropBefore(*begin).ok()) ++turn_evictions_;
}

void Session::AfterFeed(std::span<const Token> tokens) {
  const int64_t end = stream_->position();
  int64_t t = end - static_cast<int64_t>(tokens.size());
  for (const Token token : tokens) {
    if (t < stream_->pinned()) pinned_ids_[static_cast<size_t>(t)] = token;
    ring_ids_[static_cast<size_t>(t % stream_->context())] = token;
    ++t;
  }
}

Token Session::TokenAt(int64_t position) const {
  if (position < stream_->pinned()) return pinned_ids_[static_cast<size_t>(position)];
  return ring_ids_[static_cast<size_t>(position % stream_->context())];
}

std::vector<Token> Session::Newest(int64_t n) const {
  const int64_t end = stream_->position();
  std::vector<Token> out;
  for (int64_t t = std::max<int64_t>(0, end - std::min(n, stream_->context())); t < end; ++t) {
    out.push_back(ring_ids_[static_cast<size_t>(t % stream_->context())]);
  }
  return out;
}

Status Session::Rescue(int64_t pinned, Token bos, const std::function<Status(std::span<const Token>)>& feed) {
  const RescuePlan plan = PlanRescue(*stream_, pinned_ids_, Newest(kRescueTokens), pinned, bos);
  BALLAST_RETURN_IF_ERROR(ballast::Rescue(*stream_, plan, feed));
  pinned_ids_ = plan.sinks;
  config_.stream.policy = stream_->policy();
  config_.stream.pinned = stream_->pinned();
  monitor_.Rescued();
  ++rescues_;
  return Status();
}

Status Session::RollBackTo(size_t index) {
  const Turn turn = turns_.turns()[index];
  if (IsNewest(index)) return Status();
  BALLAST_RETURN_IF_ERROR(RollBackTo(turn.end, turn.floor));
  turns_.RollBackTo(index);
  return Status();
}

Status Session::RollBackTo(int64_t position, int64_t floor) {
  BALLAST_RETURN_IF_ERROR(stream_->RollBack(position, floor));
  owed_.clear();
  return Status();
}

}  // namespace ballast::server
