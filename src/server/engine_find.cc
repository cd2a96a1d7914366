// Which session answers a request, and what of it must be fed.
//
// By its name: one after another. By the response it continues: in place when that is the newest and the
// session is kept, else in a copy. By its history: the longest that a session of this tenant holds; an edit
// of the last exchange is taken back in place, an earlier one in a copy. Otherwise the whole history is
// streamed into a new session.
#include <unordered_set>
#include <utility>

#include "server/engine_core.h"

namespace ballast::server {
namespace {

std::unordered_set<uint64_t> Wanted(const Job& job) { return {job.chains.begin() + 1, job.chains.end()}; }

// How many messages a chain stands for; 0: none of the request's.
size_t MessagesOf(const Job& job, uint64_t chain) {
  for (size_t i = job.chains.size(); i > 1; --i) {
    if (job.chains[i - 1] == chain) return i - 1;
  }
  return 0;
}

}  // namespace

std::optional<EngineCore::Admitted> EngineCore::RefuseOrAwait(Job& job, const SlotPtr& slot) {
  ApiError error;
  if (!Fits(*slot, job.request, &error)) return Refuse(job, error);
  if (slot->job != nullptr || slot->restoring) return Admitted::kWait;
  if (slot->session != nullptr) return std::nullopt;
  const Room room = MakeRoom(nullptr);
  if (room == Room::kNever) return Refuse(job, NoRoom(5));
  if (room == Room::kYes) StartRestore(slot, nullptr);
  return Admitted::kWait;
}

EngineCore::Admitted EngineCore::StartNamed(Job& job) {
  const Request& r = job.request;
  SlotPtr slot = table_.Find(r.tenant, r.session);
  if (slot == nullptr) {
    slot = NewSlot(r.tenant, r.session);
    slot->named = true;
    return StartFresh(job, slot);
  }
  if (const std::optional<Admitted> not_yet = RefuseOrAwait(job, slot)) return *not_yet;
  slot->named = true;
  return Continue(job, slot);
}

// How many messages at the head of the request are the system message that the session has anyway.
int64_t EngineCore::SeenSystem(const Job& job, const Session& session) const {
  if (session.stream().position() == 0 || job.messages[0].role != "system") return 0;
  const bool same = ChainMessage(0, job.messages[0]) == session.system_chain();
  return same || job.default_system ? 1 : 0;
}

// A template that prints tools at the beginning of a conversation cannot offer others later.
std::optional<ApiError> EngineCore::CheckNewTools(const Job& job, const Session& session,
                                                  const Continued& continued) {
  const std::string& tools = job.request.tools;
  if (tools.empty() || static_cast<uint32_t>(ChainTools(tools)) == session.tools_hash()) return std::nullopt;
  const auto with = PlanChat(*loaded_.prompter, job.messages, 0, continued, tools);
  const auto without = PlanChat(*loaded_.prompter, job.messages, 0, continued, "");
  if (!with.ok() || !without.ok() || with->tokens != without->tokens) return std::nullopt;
  return BadRequest(
      "tools: expected those that the session began with: this model's chat template prints them at the "
      "beginning of a conversation (send the whole history, or begin another session)",
      "tools");
}

// A request on a session that was named: its whole history again, or only what is new.
EngineCore::Admitted EngineCore::Continue(Job& job, const SlotPtr& slot) {
  Session& session = *slot->session;
  if (!job.request.chat) {
    const bool first = session.stream().position() == 0;
    job.plan.tokens = job.request.prompt_tokens;
    if (job.plan.tokens.empty()) {
      job.plan.tokens = loaded_.encodings->Encode(
          job.request.prompt, {.add_special = first, .parse_special = true, .leading_space = first});
    }
    job.plan.turns = {{0, -1, 0, 0}};
    job.plan.chain = session.turns().chain();
    job.plan.messages = session.turns().messages();
    return Begin(job, slot, std::nullopt, 0);
  }
  size_t from = 0;
  std::optional<size_t> back;
  Continued continued;
  const int64_t turn = session.FindTurn(Wanted(job));
  const size_t held =
      turn < 0 ? 0 : MessagesOf(job, session.turns().turns()[static_cast<size_t>(turn)].chain);
  const bool newest = turn >= 0 && session.IsNewest(static_cast<size_t>(turn));
  int64_t cached = 0;
  // A history shows itself by a reply of ours, or by being all there is; a system message alone does not.
  if (held > 0 && (newest || job.messages[held - 1].role == "assistant")) {
    const Turn& at = session.turns().turns()[static_cast<size_t>(turn)];
    if (!newest && !session.stream().CanRollBack(at.end, at.floor)) return StartFresh(job, slot);
    from = held;
    back = static_cast<size_t>(turn);
    cached = at.end;
    continued = {false, job.messages[held - 1].role == "system", at.chain, at.messages};
  } else if (session.stream().position() > 0) {
    from = static_cast<size_t>(SeenSystem(job, session));
    job.messages.erase(job.messages.begin(), job.messages.begin() + static_cast<std::ptrdiff_t>(from));
    from = 0;
    continued = {false, false, session.turns().chain(), session.turns().messages()};
    if (const auto error = CheckNewTools(job, session, continued)) return Refuse(job, *error);
  } else {
    continued.chain = job.chains[0];
    session.set_tools_hash(static_cast<uint32_t>(ChainTools(job.request.tools)));
  }
  Result<PromptPlan> plan = PlanChat(*loaded_.prompter, job.messages, from, continued, job.request.tools);
  if (!plan.ok()) return Refuse(job, FromStatus(plan.status(), "messages"));
  if (!plan->exact) return StartFresh(job, slot);
  job.plan = std::move(plan).value();
  return Begin(job, slot, back, cached);
}

EngineCore::Admitted EngineCore::StartPrevious(Job& job) {
  const Request& r = job.request;
  const SessionTable::Reply* reply = table_.FindReply(r.tenant, r.previous);
  SlotPtr slot = reply == nullptr ? nullptr : table_.Find(r.tenant, reply->id);
  if (slot == nullptr) {
    return Refuse(job, NotFound("previous_response_id: there is no response \"" + r.previous + "\"",
                                "previous_response_id", "previous_response_not_found"));
  }
  if (const std::optional<Admitted> not_yet = RefuseOrAwait(job, slot)) return *not_yet;
  const TurnLog& log = slot->session->turns();
  std::optional<size_t> back;
  for (size_t i = 0; i < log.turns().size(); ++i) {
    if (log.turns()[i].chain == reply->chain) back = i;
  }
  const bool newest = log.chain() == reply->chain;
  const bool reachable = newest || (back && slot->session->stream().CanRollBack(log.turns()[*back].end,
                                                                                log.turns()[*back].floor));
  if (!reachable) {
    return Refuse(job,
                  BadRequest("previous_response_id: \"" + r.previous +
                                 "\" is not the newest response of its conversation, and what followed it "
                                 "has pushed tokens out of the window; send the history instead",
                             "previous_response_id", "previous_response_evicted"));
  }
  if (newest && r.store) return Continue(job, slot);
  const Room room = MakeRoom(slot.get());
  if (room == Room::kNever) return Refuse(job, NoRoom(5));
  if (room == Room::kSoon) return Admitted::kWait;
  return ContinueCopy(job, slot, newest ? std::nullopt : back);
}

EngineCore::Admitted EngineCore::StartByHistory(Job& job) {
  const std::unordered_set<uint64_t> wanted = Wanted(job);
  SlotPtr best;
  size_t best_held = 0;
  for (const SlotPtr& slot : table_.OfTenant(job.request.tenant)) {
    ApiError ignored;
    if (slot->job != nullptr || !Fits(*slot, job.request, &ignored)) continue;
    const bool pinned =
        slot->session != nullptr ? slot->session->config().pin_system : slot->label.pin_system;
    if (pinned != PinsSystem(job)) continue;
    uint64_t chain = 0;
    if (slot->session != nullptr) {
      const int64_t turn = slot->session->FindTurn(wanted);
      if (turn < 0) continue;
      const Turn& at = slot->session->turns().turns()[static_cast<size_t>(turn)];
      if (!slot->session->IsNewest(static_cast<size_t>(turn)) &&
          !slot->session->stream().CanRollBack(at.end, at.floor)) {
        continue;
      }
      chain = at.chain;
    } else if (wanted.contains(slot->label.chain)) {
      chain = slot->label.chain;
    }
    const size_t held = MessagesOf(job, chain);
    // A system message alone is no history: many conversations begin with the same one.
    const bool replied = held > 0 && job.messages[held - 1].role == "assistant";
    if (replied && held > best_held) {
      best_held = held;
      best = slot;
    }
  }
  if (best == nullptr) return StartFresh(job, nullptr);
  if (best->restoring) return Admitted::kWait;
  if (best->session == nullptr) {
    const Room room = MakeRoom(nullptr);
    if (room == Room::kNever) return StartFresh(job, nullptr);
    if (room == Room::kYes) StartRestore(best, nullptr);
    return Admitted::kWait;
  }
  const auto turn = static_cast<size_t>(best->session->FindTurn(wanted));
  const size_t dropped = best->session->turns().turns().size() - 1 - turn;
  // A session with a name, or whose other branch is long, is not altered by one who does not name it.
  if (best->kept() || dropped > 1) {
    const Room room = MakeRoom(best.get());
    if (room == Room::kSoon) return Admitted::kWait;
    if (room == Room::kNever) return StartFresh(job, nullptr);
    return ContinueCopy(job, best, std::nullopt);
  }
  return Continue(job, best);
}

// In a copy of `slot`, taken back to the end of a turn if asked. REQUIRES: that is exact, and there is room.
EngineCore::Admitted EngineCore::ContinueCopy(Job& job, const SlotPtr& slot,
                                              const std::optional<size_t>& roll_back_to) {
  Result<SlotPtr> copy = CopySlot(slot, "");
  if (!copy.ok()) return Refuse(job, FromStatus(copy.status(), ""));
  if (roll_back_to) {
    const Status back = (*copy)->session->RollBackTo(*roll_back_to);
    if (!back.ok()) {
      Forget(*copy);
      return Refuse(job, FromStatus(back, ""));
    }
  }
  const Admitted outcome = Continue(job, *copy);
  if (outcome == Admitted::kFailed) Forget(*copy);
  return outcome;
}

}  // namespace ballast::server
