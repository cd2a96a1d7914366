// Streams that collapse: noticed, and what is done about it.
#include <algorithm>

#include "server/engine_core.h"

namespace ballast::server {

void EngineCore::TellMonitor(Job& job, const Batch::Entry& entry) {
  Session& session = *job.slot->session;
  Monitor& monitor = session.monitor();
  const Verdict before = monitor.verdict();
  monitor.Fed(session.stream().position(), static_cast<int64_t>(entry.tokens.size()), entry.sink_mass,
              entry.layer_stride);
  const Verdict& now = monitor.verdict();
  if (now.state != Health::kCollapsed) return;
  if (before.state == Health::kCollapsed && before.reason == now.reason) return;
  if (options_.counters != nullptr) ++options_.counters->alarms[static_cast<size_t>(now.reason)];
}

// What the operator asked to be done about a stream that has collapsed. True: the reply's next token may be
// drawn; false: the request is over.
bool EngineCore::MindHealth(Job& job) {
  Session& session = *job.slot->session;
  const Verdict verdict = session.monitor().verdict();
  if (verdict.state != Health::kCollapsed || job.generation->over()) return true;
  const std::string what =
      std::string(AilmentName(verdict.reason)) + " since position " + std::to_string(verdict.since);
  const int64_t position = session.stream().position();
  OnCollapse action = options_.on_collapse;
  const bool soon = session.rescues() > 0 && position - job.slot->rescued_at < kRescueGap;
  if (action == OnCollapse::kRescue) {
    if (verdict.reason == Ailment::kRepetition) action = OnCollapse::kStop;
    if (session.stream().policy() == Policy::kRecompute || soon) action = OnCollapse::kWarn;
  }
  switch (action) {
    case OnCollapse::kWarn:
      if (!std::exchange(job.warned, true)) job.usage.warnings.push_back("the text collapses: " + what);
      return true;
    case OnCollapse::kStop:
      if (options_.counters != nullptr) ++options_.counters->stopped;
      job.usage.warnings.push_back("the reply was ended because the text collapses: " + what);
      job.generation->Cut(StopReason::kCollapsed);
      return true;
    case OnCollapse::kRescue:
      break;
  }
  if (const Status status = RescueSession(session); !status.ok()) {
    if (options_.counters != nullptr) ++options_.counters->rescues_failed;
    Fail(job, FromStatus(status, ""));
    return false;
  }
  if (options_.counters != nullptr) ++options_.counters->rescues_ok;
  watchers_.WentBack(*job.slot, 0);  // every cell is new
  job.slot->rescued_at = position;
  job.usage.warnings.push_back(
      "the text had collapsed (" + what +
      "): its end was encoded again behind fresh sinks; what came before is forgotten");
  return true;
}

// A pause of kRescueTokens for everybody: they are few.
Status EngineCore::RescueSession(Session& session) {
  const auto feed = [&](std::span<const Token> tokens) -> Status {
    const auto piece = static_cast<size_t>(options_.prefill_chunk);
    for (size_t at = 0; at < tokens.size(); at += piece) {
      Batch::Entry entry;
      entry.stream = &session.stream();
      entry.tokens = tokens.subspan(at, std::min(piece, tokens.size() - at));
      entry.logits = true;
      batch_.Step({&entry, 1});
      BALLAST_RETURN_IF_ERROR(entry.status);
    }
    return Status();
  };
  const Vocab& vocab = loaded_.tokenizer->vocab();
  return session.Rescue(options_.stream.pinned, vocab.add_bos ? vocab.bos : -1, feed);
}

}  // namespace ballast::server
