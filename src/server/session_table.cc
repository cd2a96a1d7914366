#include "server/session_table.h"

#include <tuple>

namespace ballast::server {

ApiError NoSuchSession(const std::string& id) {
  return {404, "there is no session \"" + id + "\"", "not_found_error", "session", "session_not_found", 0};
}

SlotPtr SessionTable::Find(const std::string& tenant, const std::string& id) const {
  const auto it = slots_.find({tenant, id});
  return it == slots_.end() ? nullptr : it->second;
}

void SessionTable::Add(SlotPtr slot) {
  const Key key(slot->tenant, slot->id);
  slots_[key] = std::move(slot);
}

void SessionTable::Remove(const SlotPtr& slot) {
  slot->gone = true;
  const auto it = slots_.find({slot->tenant, slot->id});
  if (it != slots_.end() && it->second == slot) slots_.erase(it);
}

std::vector<SlotPtr> SessionTable::OfTenant(const std::string& tenant) const {
  std::vector<SlotPtr> out;
  for (auto it = slots_.lower_bound({tenant, ""}); it != slots_.end() && it->first.first == tenant; ++it) {
    out.push_back(it->second);
  }
  return out;
}

SlotPtr SessionTable::Coldest(const Slot* keep) const {
  std::map<std::string, int64_t> resident;
  for (const auto& [key, slot] : slots_) resident[key.first] += slot->session != nullptr;
  SlotPtr best;
  const Clock::time_point now = Clock::now();
  const auto rank = [&](const Slot& s) { return std::make_tuple(-resident[s.tenant], s.kept(), s.used); };
  for (const auto& [key, slot] : slots_) {
    if (!slot->may_spill(now) || slot.get() == keep) continue;
    if (best == nullptr || rank(*slot) < rank(*best)) best = slot;
  }
  return best;
}

void SessionTable::RememberReply(const std::string& tenant, const std::string& response, Reply reply) {
  const Key key(tenant, response);
  if (replies_.insert_or_assign(key, std::move(reply)).second) reply_order_.push_back(key);
  if (reply_order_.size() <= kMaxReplies) return;
  replies_.erase(reply_order_.front());
  reply_order_.pop_front();
}

const SessionTable::Reply* SessionTable::FindReply(const std::string& tenant,
                                                   const std::string& response) const {
  const auto it = replies_.find({tenant, response});
  return it == replies_.end() ? nullptr : &it->second;
}

}  // namespace ballast::server
