// A reply: begun, sampled, handed out, ended.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "server/engine_core.h"

namespace ballast::server {
namespace {

// The k likeliest, likeliest first, ties to the lowest id: a heap of the best so far, its worst in front.
std::vector<Token> Likeliest(std::span<const float> logits, int k) {
  const auto likelier = [&](Token a, Token b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<Token> best;
  const auto vocab = static_cast<Token>(logits.size());
  for (Token id = 0; id < vocab && k > 0; ++id) {
    if (static_cast<int>(best.size()) == k) {
      if (!likelier(id, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), likelier);
      best.pop_back();
    }
    best.push_back(id);
    std::push_heap(best.begin(), best.end(), likelier);
  }
  std::sort_heap(best.begin(), best.end(), likelier);
  return best;
}

}  // namespace

void EngineCore::StartReply(Job& job) {
  MarkTurns(job);
  WarnOfTheUnseen(job);
  const Request& request = job.request;
  if (!request.chat && request.echo) {
    job.text = request.prompt_tokens.empty() ? request.prompt
                                             : loaded_.tokenizer->Decode(request.prompt_tokens, false);
  }
  GenerateOptions options;
  options.max_tokens = job.max_tokens;
  options.stops = request.stops;
  if (request.chat) {
    const std::vector<std::string>& ends = loaded_.prompter->text_stops();
    options.stops.insert(options.stops.end(), ends.begin(), ends.end());
  }
  options.on_text = [&job](std::string_view text) {
    job.text += text;
    return true;
  };
  options.monitor = &job.slot->session->monitor();
  job.generation = std::make_unique<Generation>(*loaded_.tokenizer, std::move(options));
  for (const Token token : job.slot->session->Newest(job.slot->session->stream().context())) {
    job.sampler->Observe(token);
  }
}

// The next token of each job. Drawing from a large vocabulary takes a while, and jobs do not meet.
void EngineCore::SampleAll(const std::vector<Job*>& jobs) {
  loaded_.pool->For(static_cast<int64_t>(jobs.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      Job& job = *jobs[static_cast<size_t>(i)];
      job.drawn.reset();
      if (job.generation->over()) continue;
      const auto logits = job.slot->session->stream().logits();
      job.drawn.emplace(job.generation->Next(*job.sampler, logits));
      if (job.drawn->ok() && job.request.top_logprobs >= 0) Report(job, **job.drawn, logits);
    }
  });
  for (Job* job : jobs) AfterSample(*job);
}

void EngineCore::AfterSample(Job& job) {
  job.next.clear();
  if (job.drawn && !job.drawn->ok()) {
    if (options_.counters != nullptr) {
      ++options_.counters->nonfinite_logits;
      ++options_.counters->alarms[static_cast<size_t>(Ailment::kNonFinite)];
    }
    Fail(job, FromStatus(job.drawn->status(), ""));
    return;
  }
  if (job.drawn) {
    const Token token = **job.drawn;
    job.next.push_back(token);
    ++job.usage.completion_tokens;
    if (options_.counters != nullptr) ++options_.counters->generated_tokens;
    if (watchers_.Watches(*job.slot)) {
      watchers_.Sampled(*job.slot, token, job.slot->session->stream().logits());
    }
  }
  const bool over = job.generation->over();
  HandOut(job, over);
  if (!over) {
    job.state = Job::State::kDecode;
    return;
  }
  job.state = Job::State::kClose;
  if (job.request.chat) {
    const Generated& out = job.generation->out();
    if (const auto end = loaded_.prompter->Closing(out.tokens, out.reason)) job.next.push_back(*end);
  }
  if (!job.next.empty()) return;
  CloseReply(job);
  Finish(job, job.generation->out().reason == StopReason::kCollapsed ? Finish::kStop : Finish::kLength);
}

// The likeliest tokens of the model's own distribution.
void EngineCore::Report(Job& job, Token token, std::span<const float> logits) const {
  if (loaded_.tokenizer->EndsTurn(token)) return;  // not a part of the text
  const double sum = LogSumExp(logits);
  const auto score = [&](Token id) {
    return TokenScore{id, std::string(loaded_.tokenizer->Piece(id, true)),
                      static_cast<double>(logits[static_cast<size_t>(id)]) - sum};
  };
  TokenReport report;
  static_cast<TokenScore&>(report) = score(token);
  for (const Token id : Likeliest(logits, job.request.top_logprobs)) report.top.push_back(score(id));
  job.reports.push_back(std::move(report));
}

// Tokens are told with the text they gave; those of a stop string are not told at all.
void EngineCore::HandOut(Job& job, bool last) {
  const bool stopped = last && job.generation->out().reason == StopReason::kStopString;
  if (stopped && job.text.empty()) job.reports.clear();
  if (job.text.empty() && !(last && !job.reports.empty())) return;
  const std::string text = std::exchange(job.text, "");
  const std::vector<TokenReport> reports = std::exchange(job.reports, {});
  job.receiver->OnText(text, reports);
}

// The reply is a part of the conversation now, with what its end still owes to the stream.
void EngineCore::CloseReply(Job& job) {
  Session& session = *job.slot->session;
  if (!session.turns().open()) return;
  const ChatMessage reply{"assistant", job.generation->out().text};
  session.turns().Close(session.stream().position() + static_cast<int64_t>(session.owed().size()),
                        session.stream().floor(), ChainMessage(job.plan.chain, reply), job.plan.messages + 1);
}

void EngineCore::FillUsage(Job& job) const {
  if (job.slot == nullptr || job.slot->session == nullptr) return;
  const Stream& stream = job.slot->session->stream();
  job.usage.position = stream.position();
  job.usage.evicted_tokens = stream.evicted();
  job.usage.sinks = stream.pinned();
  job.usage.context = stream.context();
  job.usage.health = job.slot->session->health();
  job.usage.session = job.slot->gone ? "" : job.slot->id;
}

// A part of what was just sent may have left the window before the reply begins.
void EngineCore::WarnOfTheUnseen(Job& job) const {
  Session& session = *job.slot->session;
  const Stream& stream = session.stream();
  const int64_t from =
      std::max(job.begin_position + static_cast<int64_t>(job.begin_owed.size()), stream.pinned());
  const int64_t lost = stream.start() - from;
  const auto sent = static_cast<int64_t>(job.plan.tokens.size() - job.begin_owed.size());
  if (lost > 0) {
    job.usage.warnings.push_back(std::to_string(lost) + " of the " + std::to_string(sent) +
                                 " tokens just sent had left the window before the reply began");
    if (options_.counters != nullptr) ++options_.counters->input_truncations;
  }
  if (session.config().evict == Evict::kTurn && session.turn_outgrew_window()) {
    job.usage.warnings.push_back("this turn is larger than the window of " +
                                 std::to_string(stream.context() - stream.pinned()) +
                                 " tokens: it lost its own beginning, token by token");
  }
  if (session.TakeCutNotice()) {
    job.usage.warnings.emplace_back(
        "an earlier message was cancelled while it was read: the session holds only its beginning");
  }
}

void EngineCore::Finish(Job& job, enum Finish finish) {
  FillUsage(job);
  const SlotPtr slot = job.slot;
  if (job.request.store && !slot->gone && finish != Finish::kCancelled) {
    slot->stored = true;
    slot->response = job.request.id;
    table_.RememberReply(slot->tenant, job.request.id, {slot->id, slot->session->turns().chain()});
  }
  const std::shared_ptr<Receiver> receiver = job.receiver;
  const Usage usage = job.usage;
  Release(job);
  receiver->OnFinish(finish, usage);
}

// An error in the middle: nobody knows what the stream holds, so the session ends with it.
void EngineCore::Fail(Job& job, const ApiError& error) {
  const SlotPtr slot = job.slot;
  const std::shared_ptr<Receiver> receiver = job.receiver;
  Forget(slot);
  Release(job);
  receiver->OnError(error);
}

// The job is over; the loop drops it.
void EngineCore::Release(Job& job) {
  Slot& slot = *job.slot;
  slot.job = nullptr;
  slot.used = Clock::now();
  next_spill_ = std::min(next_spill_, slot.used + std::chrono::milliseconds(20));
  slot.dirty = true;
  ++slot.version;
  std::erase(passing_, job.slot);
  job.slot = nullptr;
  try_admit_ = true;
}

}  // namespace ballast::server
