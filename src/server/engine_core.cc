#include "server/engine_core.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace ballast::server {
namespace {

// Prompt tokens in one step when nobody waits for the next word.
constexpr int64_t kIdlePieces = 2;

EngineServiceOptions Resolved(EngineServiceOptions options, const Model& model) {
  if (options.prefill_chunk == 0) options.prefill_chunk = DefaultPrefillChunk(model.weight_count());
  return options;
}

}  // namespace

EngineCore::EngineCore(const EngineServiceOptions& options, Loaded loaded, Post post)
    : options_(Resolved(options, *loaded.model)),
      loaded_(std::move(loaded)),
      post_(std::move(post)),
      batch_(*loaded_.model, *loaded_.pool),
      ids_(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) ^
           reinterpret_cast<uintptr_t>(this)),
      watchers_(*loaded_.tokenizer) {
  for (SnapshotLabel& label : loaded_.found) {
    auto slot = std::make_shared<Slot>();
    slot->tenant = label.tenant;
    slot->id = label.id;
    slot->named = label.named;
    slot->stored = !label.response.empty();
    slot->response = label.response;
    slot->on_disk = true;
    slot->used = Clock::now();
    if (slot->stored) table_.RememberReply(label.tenant, label.response, {label.id, label.chain});
    slot->label = std::move(label);
    table_.Add(std::move(slot));
  }
  loaded_.found.clear();
  Count();
}

bool EngineCore::Round() {
  RetryParked();
  Admit();
  const bool worked = !active_.empty();
  if (worked) Step();
  watchers_.Show();
  SpillIdle();
  AdvanceDrain();
  // Gauges are for scrapes: ten times a second is plenty while the batch steps.
  if (try_admit_ || !worked || Clock::now() - counted_ > std::chrono::milliseconds(100)) Count();
  return !active_.empty() || try_admit_;
}

std::optional<Clock::time_point> EngineCore::Deadline() const {
  std::optional<Clock::time_point> due = watchers_.Deadline();
  const auto earlier = [&](Clock::time_point t) {
    if (!due || t < *due) due = t;
  };
  if (loaded_.store != nullptr && !draining_) earlier(next_spill_);
  if (draining_ && !active_.empty()) earlier(drain_until_);
  for (const Parked& parked : parked_) earlier(parked.until);
  return due;
}

void EngineCore::Step() {
  std::vector<Batch::Entry> entries;
  std::vector<Job*> owners;
  Collect(entries, owners);
  if (entries.empty()) return;
  int64_t prompt_tokens = 0;
  bool decoding = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (owners[i]->state == Job::State::kPrefill) {
      prompt_tokens += static_cast<int64_t>(entries[i].tokens.size());
    } else {
      decoding = true;
    }
  }
  const Clock::time_point began = Clock::now();
  batch_.Step(entries);
  const double seconds = Seconds(Clock::now() - began);
  pacer_.Measured(decoding, prompt_tokens, seconds);
  if (options_.counters != nullptr) {
    options_.counters->step_seconds.Observe(seconds);
    options_.counters->batch_streams.Observe(static_cast<double>(entries.size()));
    options_.counters->prefilled_tokens += prompt_tokens;
  }
  std::vector<Job*> sampling;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (AfterStep(*owners[i], entries[i])) sampling.push_back(owners[i]);
  }
  // A rescue steps the batch by itself, after which the entries' sink masses are no longer these.
  std::erase_if(sampling, [this](Job* job) { return !MindHealth(*job); });
  SampleAll(sampling);
  std::erase_if(active_, [](const std::unique_ptr<Job>& job) { return job->slot == nullptr; });
}

void EngineCore::Collect(std::vector<Batch::Entry>& entries, std::vector<Job*>& owners) {
  for (const std::unique_ptr<Job>& job : active_) {
    if (job->state == Job::State::kDecode) AddEntry(*job, job->next, true, entries, owners);
    if (job->state == Job::State::kClose) AddEntry(*job, job->next, false, entries, owners);
  }
  CollectPrompts(!entries.empty(), entries, owners);
}

void EngineCore::CollectPrompts(bool decoding, std::vector<Batch::Entry>& entries,
                                std::vector<Job*>& owners) {
  if (!pacer_.MayPrefill(decoding)) return;
  std::vector<PrefillTurns::Piece> pieces;
  std::vector<Job*> jobs;
  for (const std::unique_ptr<Job>& job : active_) {
    if (job->state != Job::State::kPrefill) continue;
    MarkTurns(*job);
    // Cut at the same places whatever else goes on, so that a reply never depends on it.
    const int64_t chunk = options_.prefill_chunk - job->fed % options_.prefill_chunk;
    const int64_t left = static_cast<int64_t>(job->plan.tokens.size()) - job->fed;
    const int64_t n = job->slot->session->Piece(job->plan, job->fed, std::min(chunk, left));
    pieces.push_back({job->ticket, n});
    jobs.push_back(job.get());
  }
  const int64_t budget = options_.prefill_chunk * (decoding ? 1 : kIdlePieces);
  for (const size_t i : prefill_turns_.Choose(pieces, budget)) {
    Job& job = *jobs[i];
    const auto tokens = std::span<const Token>(job.plan.tokens)
                            .subspan(static_cast<size_t>(job.fed), static_cast<size_t>(pieces[i].tokens));
    const bool last = job.fed + pieces[i].tokens == static_cast<int64_t>(job.plan.tokens.size());
    AddEntry(job, tokens, last, entries, owners);
  }
}

void EngineCore::AddEntry(Job& job, std::span<const Token> tokens, bool logits,
                          std::vector<Batch::Entry>& entries, std::vector<Job*>& owners) {
  Session& session = *job.slot->session;
  const int64_t evicted = session.stream().evicted(), turns = session.turn_evictions();
  session.BeforeFeed(static_cast<int64_t>(tokens.size()));
  if (options_.counters != nullptr && session.turn_evictions() != turns) {
    options_.counters->kv_evictions_turn += session.turn_evictions() - turns;
    options_.counters->kv_evicted_tokens += session.stream().evicted() - evicted;
  }
  entries.push_back({&session.stream(), tokens, logits});
  owners.push_back(&job);
}

// Begins and ends the turns of the prompt that lie before its next token.
void EngineCore::MarkTurns(Job& job) {
  Session& session = *job.slot->session;
  TurnLog& turns = session.turns();
  while (job.next_mark < job.plan.turns.size()) {
    const PromptPlan::Mark& mark = job.plan.turns[job.next_mark];
    if (!turns.open()) {
      if (mark.begin > job.fed) return;
      turns.Open(job.begin_position + mark.begin);
    }
    if (mark.end < 0 || mark.end > job.fed) return;
    turns.Close(job.begin_position + mark.end, session.stream().floor(), mark.chain, mark.messages,
                mark.messages > 1);
    ++job.next_mark;
  }
}

// What a step did to a request; true: its next token is to be sampled.
bool EngineCore::AfterStep(Job& job, const Batch::Entry& entry) {
  Session& session = *job.slot->session;
  const auto n = static_cast<int64_t>(entry.tokens.size());
  if (!entry.status.ok()) {
    Fail(job, FromStatus(entry.status, job.request.chat ? "messages" : "prompt"));
    return false;
  }
  session.AfterFeed(entry.tokens);
  ++job.slot->version;
  if (watchers_.Watches(*job.slot)) watchers_.Fed(*job.slot, entry, n);
  CountFed(session, n);
  SampleSinkMass(entry);
  TellMonitor(job, entry);
  if (job.state == Job::State::kDecode) return true;
  if (job.state == Job::State::kClose) {
    CloseReply(job);
    Finish(job, job.generation->out().reason == StopReason::kBudget ? Finish::kLength : Finish::kStop);
    return false;
  }
  job.fed += n;
  job.receiver->OnProgress(job.fed, static_cast<int64_t>(job.plan.tokens.size()));
  if (job.fed < static_cast<int64_t>(job.plan.tokens.size())) return false;
  StartReply(job);
  return true;
}

void EngineCore::CountFed(const Session& session, int64_t n) {
  if (options_.counters == nullptr) return;
  const Stream& stream = session.stream();
  const int64_t window = stream.context() - stream.pinned();
  const int64_t after = std::max<int64_t>(0, stream.position() - stream.pinned());
  const int64_t before = std::max<int64_t>(0, after - n);
  if (session.config().evict == Evict::kToken && after > window) {
    const int64_t lost = after - std::max(before, window);
    options_.counters->kv_evictions_token += lost;
    options_.counters->kv_evicted_tokens += lost;
  }
  options_.counters->kv_rollovers += after / window - before / window;
}

// One head of one layer now and then: enough for a histogram, and free.
void EngineCore::SampleSinkMass(const Batch::Entry& entry) {
  if (options_.counters == nullptr || entry.sink_mass == nullptr || ++sink_samples_ % 16 != 0) return;
  const ModelConfig& config = loaded_.model->config();
  const int64_t which = sink_samples_ / 16 * 7919 % (int64_t{config.layers} * config.heads);
  options_.counters->sink_attention_ratio.Observe(
      entry.SinkMass(static_cast<int>(which / config.heads), static_cast<int>(which % config.heads)));
}

void EngineCore::Cancel(uint64_t ticket) {
  const auto is = [ticket](const std::unique_ptr<Job>& job) { return job->ticket == ticket; };
  if (const auto it = std::find_if(waiting_.begin(), waiting_.end(), is); it != waiting_.end()) {
    const std::unique_ptr<Job> job = std::move(*it);
    waiting_.erase(it);
    if (options_.counters != nullptr) ++options_.counters->requests_cancelled;
    job->receiver->OnFinish(Finish::kCancelled, job->usage);
    Count();
  } else if (const auto at = std::find_if(active_.begin(), active_.end(), is); at != active_.end()) {
    const std::unique_ptr<Job> job = std::move(*at);
    active_.erase(at);
    CancelActive(*job);
    Count();
  }
}

void EngineCore::CancelActive(Job& job) {
  if (options_.counters != nullptr) ++options_.counters->requests_cancelled;
  if (job.state == Job::State::kPrefill) {
    UndoPrompt(job);
  } else if (job.request.chat) {
    // What was sampled is in the conversation; what was not fed yet is owed, with the turn's end.
    Session& session = *job.slot->session;
    session.owed() = job.next;
    const Generated& out = job.generation->out();
    if (job.state == Job::State::kDecode) {
      if (const auto end = loaded_.prompter->Closing(out.tokens, StopReason::kInterrupted)) {
        session.owed().push_back(*end);
      }
    }
    CloseReply(job);
  } else {
    job.slot->session->owed() = job.next;
    CloseReply(job);
  }
  Finish(job, Finish::kCancelled);
}

// A prompt that was cancelled while it was read is taken back where that is exact. Else an anonymous session
// is forgotten (the next request brings its whole history), and a named one keeps what was read, closed.
void EngineCore::UndoPrompt(Job& job) {
  Slot& slot = *job.slot;
  Session& session = *slot.session;
  if (session.RollBackTo(job.begin_position, job.begin_floor).ok()) {
    watchers_.WentBack(slot, job.begin_position);
    session.turns().Restore(job.begin_turns);
    session.owed() = job.begin_owed;
    if (job.begin_position == 0 && !slot.gone) Forget(job.slot);  // it was never more than this prompt
    return;
  }
  if (!slot.kept()) {
    Forget(job.slot);
    return;
  }
  session.owed().clear();
  if (job.request.chat && loaded_.prompter->end_of_turn() >= 0) {
    session.owed().push_back(loaded_.prompter->end_of_turn());
  }
  if (!session.turns().open()) session.turns().Open(session.stream().position());
  session.turns().Close(session.stream().position() + static_cast<int64_t>(session.owed().size()),
                        session.stream().floor(), ids_.Next(), session.turns().messages() + 2);
  session.NoteCut();
}

void EngineCore::CancelAll() {
  while (!waiting_.empty()) Cancel(waiting_.front()->ticket);
  while (!active_.empty()) Cancel(active_.front()->ticket);
}

void EngineCore::Drain(double seconds, std::function<void(int64_t)> done) {
  draining_ = true;
  loaded_.encodings->Stop();
  RetryParked();
  drained_ = std::move(done);
  drain_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)));
  std::vector<std::unique_ptr<Job>> refused = std::move(waiting_);
  waiting_.clear();
  for (const auto& job : refused) job->receiver->OnError(ShuttingDown());
}

void EngineCore::Count() {
  if (options_.counters == nullptr) return;
  counted_ = Clock::now();
  EngineCounters& c = *options_.counters;
  int64_t suspect = 0, collapsed = 0;
  int64_t active = 0, idle = 0, spilled = 0, sinks = 0, window = 0, capacity = 0, bytes = 0, longest = 0;
  const auto add = [&](const Slot& slot) {
    if (slot.session == nullptr) {
      ++spilled;
      return;
    }
    ++(slot.job != nullptr ? active : idle);
    const Health health = slot.session->monitor().verdict().state;
    suspect += health == Health::kSuspect;
    collapsed += health == Health::kCollapsed;
    const Stream& stream = slot.session->stream();
    const int64_t pinned = std::min(stream.pinned(), stream.position());
    sinks += pinned;
    window += stream.live() - pinned;
    capacity += stream.context();
    bytes += stream.kv_bytes();
    longest = std::max(longest, stream.position());
  };
  for (const auto& [key, slot] : table_.all()) add(*slot);
  for (const SlotPtr& slot : passing_) add(*slot);
  c.requests_running = static_cast<int64_t>(active_.size());
  c.requests_waiting = static_cast<int64_t>(waiting_.size());
  c.kv_sink_cells = sinks;
  c.kv_window_cells = window;
  c.kv_capacity_cells = capacity;
  c.kv_bytes = bytes;
  c.stream_position_max = longest;
  c.sessions_suspect = suspect;
  c.sessions_collapsed = collapsed;
  c.sessions_active = active;
  c.sessions_idle = idle;
  c.sessions_spilled = spilled;
}

}  // namespace ballast::server
