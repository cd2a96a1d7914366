// Requests come in, wait their turn, and begin in a session.
#include <algorithm>
#include <set>
#include <utility>

#include "server/engine_core.h"

namespace ballast::server {
namespace {

constexpr int64_t kLongestReply = 2048;  // tokens, unless a request says otherwise
constexpr int kRetrySeconds = 2;

}  // namespace

ApiError BadRequest(std::string message, std::string param, std::string code) {
  return {400, std::move(message), "invalid_request_error", std::move(param), std::move(code), 0};
}
ApiError NotFound(std::string message, std::string param, std::string code) {
  return {404, std::move(message), "not_found_error", std::move(param), std::move(code), 0};
}
ApiError Busy(std::string message, std::string code, int retry_after) {
  return {503, std::move(message), "server_error", "", std::move(code), retry_after};
}
ApiError ShuttingDown() { return Busy("the server is shutting down", "shutting_down", 5); }
ApiError FromStatus(const Status& status, const std::string& param) {
  if (status.code() == Code::kInternal)
    return {500, status.message(), "server_error", "", "internal_error", 0};
  if (status.code() == Code::kModel) return {500, status.message(), "server_error", "", "model_failed", 0};
  std::string message = status.message();
  if (!status.hint().empty()) message += " (" + status.hint() + ")";
  if (!message.starts_with("--")) return BadRequest(std::move(message), param);
  // An option of the program, as the field of the request that sets it.
  const size_t colon = message.find(':');
  std::string field = message.substr(2, colon - 2);
  std::replace(field.begin(), field.end(), '-', '_');
  if (field == "temp") field = "temperature";
  return BadRequest(field + message.substr(std::min(colon, message.size())), field);
}

void EngineCore::Submit(uint64_t ticket, Request request, std::shared_ptr<Receiver> receiver,
                        Clock::time_point when) {
  if (draining_) {
    receiver->OnError(ShuttingDown());
    return;
  }
  if (static_cast<int64_t>(waiting_.size()) >= options_.max_queue) {
    receiver->OnError(Busy("the queue is full: " + std::to_string(waiting_.size()) + " requests wait",
                           "queue_full", kRetrySeconds));
    return;
  }
  auto job = std::make_unique<Job>();
  job->ticket = ticket;
  job->request = std::move(request);
  job->receiver = std::move(receiver);
  job->submitted = when;
  if (const std::optional<ApiError> error = Prepare(*job)) {
    job->receiver->OnError(*error);
    return;
  }
  EncodeBeside(*job);
  waiting_.push_back(std::move(job));
  try_admit_ = true;
  Count();
}

// Long texts are encoded by another thread, so that no reply waits for them; the request begins after that.
void EngineCore::EncodeBeside(Job& job) {
  const Request& r = job.request;
  size_t bytes = r.prompt.size() + r.tools.size();
  for (const ChatMessage& message : job.messages) bytes += message.content.size() + message.extra.size();
  if (bytes < EncodingCache::kLongText) return;
  job.encoding = true;
  job.encoded = loaded_.encodings->Hold();
  // As it would be planned for a stream that is empty: the long pieces of other plans are the same.
  const bool first = r.session.empty() || table_.Find(r.tenant, r.session) == nullptr;
  encoder_.Post([this, ticket = job.ticket, chat = r.chat, messages = job.messages, tools = r.tools,
                 prompt = r.prompt, first, hold = job.encoded, post = post_]() mutable {
    if (!loaded_.encodings->stopped()) {
      if (chat) {
        static_cast<void>(PlanChat(*loaded_.prompter, messages, 0, {}, tools));
      } else {
        loaded_.encodings->Encode(prompt,
                                  {.add_special = first, .parse_special = true, .leading_space = first});
      }
    }
    hold.reset();
    post([this, ticket] {
      for (const std::unique_ptr<Job>& waiting : waiting_) {
        if (waiting->ticket == ticket) waiting->encoding = false;
      }
      try_admit_ = true;
    });
  });
}

// What can be judged of a request by itself.
std::optional<ApiError> EngineCore::Prepare(Job& job) {
  Request& r = job.request;
  if (!r.session.empty() && !r.previous.empty()) {
    return BadRequest("session and previous_response_id: expected one of them, found both", "session");
  }
  // Options of sampling are refused before the request waits for anything.
  const Result<Sampler> sampler = Sampler::Create(r.sampling, loaded_.model->config().vocab, 1);
  if (!sampler.ok()) return FromStatus(sampler.status(), "");
  if (!r.chat) {
    for (const Token token : r.prompt_tokens) {
      if (token >= 0 && token < loaded_.model->config().vocab) continue;
      return BadRequest("prompt: expected token ids from 0 to " +
                            std::to_string(loaded_.model->config().vocab - 1) + ", found " +
                            std::to_string(token),
                        "prompt");
    }
    return std::nullopt;
  }
  return PrepareChat(job);
}

// What the format or template has no place for is refused, never dropped.
std::optional<ApiError> EngineCore::PrepareChat(Job& job) {
  Request& r = job.request;
  if (!loaded_.prompter) return BadRequest("this model cannot chat: " + loaded_.no_chat, "messages");
  if (r.messages.empty()) return BadRequest("messages: expected at least one, found none", "messages");
  const ChatPrompter& prompter = *loaded_.prompter;
  if (!r.tools.empty()) {
    const Status known = prompter.CheckTools();
    if (!known.ok()) return BadRequest(known.message(), "tools", "unsupported_parameter");
  }
  job.messages = std::exchange(r.messages, {});
  for (size_t i = 0; i < job.messages.size(); ++i) {
    ChatMessage& message = job.messages[i];
    if (message.role == "developer" && !prompter.knows_developer()) message.role = "system";
    const Status known = prompter.CheckMessage(message, "messages[" + std::to_string(i) + "]");
    if (!known.ok()) return BadRequest(known.message(), "messages", "unsupported_parameter");
  }
  const std::string& system = prompter.default_system();
  if (!system.empty() && job.messages[0].role != "system" && !prompter.UsesTemplate(job.messages, r.tools)) {
    job.messages.insert(job.messages.begin(), {"system", system});
    job.default_system = true;
  }
  job.chains = ChainMessages(ChainTools(r.tools), job.messages);
  return std::nullopt;
}

void EngineCore::Admit() {
  if (!try_admit_) return;
  try_admit_ = false;
  std::vector<Waiting> waiting;
  std::vector<std::string> running;
  for (const auto& job : waiting_) waiting.push_back({job->request.tenant, job->ticket});
  for (const auto& job : active_) running.push_back(job->request.tenant);
  std::set<SessionTable::Key> awaited;  // a session's requests begin in the order in which they came
  for (const size_t i : AdmissionOrder(waiting, running)) {
    if (static_cast<int64_t>(active_.size()) >= options_.max_active) break;
    Job& job = *waiting_[i];
    const SessionTable::Key session(job.request.tenant, job.request.session);
    if (!session.second.empty() && awaited.contains(session)) continue;
    const Admitted outcome = TryStart(job);
    if (outcome == Admitted::kWait) {
      awaited.insert(session);
      continue;
    }
    if (outcome == Admitted::kStarted) {
      if (options_.counters != nullptr) {
        options_.counters->queue_seconds.Observe(Seconds(Clock::now() - job.submitted));
      }
      const auto at = std::lower_bound(active_.begin(), active_.end(), job.ticket,
                                       [](const auto& a, uint64_t ticket) { return a->ticket < ticket; });
      active_.insert(at, std::move(waiting_[i]));
    } else {
      waiting_[i].reset();
    }
  }
  std::erase(waiting_, nullptr);
}

EngineCore::Admitted EngineCore::TryStart(Job& job) {
  if (job.encoding) return Admitted::kWait;
  if (!job.request.session.empty()) return StartNamed(job);
  if (!job.request.previous.empty()) return StartPrevious(job);
  if (!job.request.chat) return StartText(job);
  return StartByHistory(job);
}

EngineCore::Admitted EngineCore::Refuse(Job& job, const ApiError& error) {
  job.receiver->OnError(error);
  return Admitted::kFailed;
}

bool EngineCore::PinsSystem(const Job& job) const {
  return job.request.chat && job.messages[0].role == "system" &&
         (job.request.pin_system || options_.pin_system);
}

// The configuration of a new session.
Result<Session::Config> EngineCore::ConfigFor(const Job& job, ApiError* error) const {
  const Request& r = job.request;
  Session::Config config;
  config.stream = options_.stream;
  config.chat = r.chat;
  config.evict = r.evict.value_or(options_.evict);
  config.pin_system = PinsSystem(job);
  if (r.policy) config.stream.policy = *r.policy;
  if (r.sinks) config.stream.pinned = *r.sinks;
  const int64_t trained = loaded_.model->config().trained_context;
  if (config.stream.context == 0) config.stream.context = std::min<int64_t>(8192, trained);
  const auto refuse = [&](ApiError why) {
    *error = std::move(why);
    return Status(Code::kUsage, error->message);
  };
  if (r.pin_system && !config.pin_system) {
    return refuse(BadRequest("pin_system: expected a system message to pin, found none", "pin_system"));
  }
  if (config.pin_system) {
    const Result<int64_t> system = loaded_.prompter->CountSystemTokens(job.messages[0].content, r.tools);
    if (!system.ok()) return refuse(FromStatus(system.status(), "messages"));
    config.stream.pinned = std::max(config.stream.pinned, *system);
    if (config.stream.pinned + 1 > config.stream.context) {
      return refuse(BadRequest("the pinned system message is " + std::to_string(*system) +
                                   " tokens long, and the context is " +
                                   std::to_string(config.stream.context),
                               "messages", "context_length_exceeded"));
    }
  }
  const Result<CachePlan> plan = MakePlan(config.stream.policy, config.stream.context, config.stream.pinned);
  if (!plan.ok()) return refuse(FromStatus(plan.status(), "sinks"));
  return config;
}

// Does an existing session keep its cache as the request asks?
bool EngineCore::Fits(const Slot& slot, const Request& request, ApiError* error) const {
  const bool here = slot.session != nullptr;
  const bool chat = here ? slot.session->config().chat : slot.label.chat;
  const Policy policy = here ? slot.session->stream().policy() : slot.label.policy;
  const Evict evict = here ? slot.session->config().evict : slot.label.evict;
  const int64_t pinned = here ? slot.session->stream().pinned() : slot.label.pinned;
  const auto differs = [&](const char* field, const std::string& has) {
    *error = BadRequest(std::string(field) + ": expected that of the session \"" + slot.id + "\", " + has +
                            "; it is chosen when a session begins",
                        field);
    return false;
  };
  if (chat != request.chat) return differs("session", chat ? "a chat" : "plain text");
  // A rescue makes a session of policy sinks out of any other.
  const bool rescued = here && slot.session->rescues() > 0;
  if (request.policy && *request.policy != policy && !rescued)
    return differs("policy", std::string(PolicyName(policy)));
  if (request.evict && *request.evict != evict) {
    return differs("evict", evict == Evict::kTurn ? "turn" : "token");
  }
  const bool pins_more = request.pin_system || options_.pin_system;
  if (request.sinks && *request.sinks != pinned && !pins_more)
    return differs("sinks", std::to_string(pinned));
  return true;
}

EngineCore::Admitted EngineCore::StartText(Job& job) { return StartFresh(job, nullptr); }

// A new stream for the whole request; `reuse`: under this name, in place of what it held.
EngineCore::Admitted EngineCore::StartFresh(Job& job, const SlotPtr& reuse) {
  ApiError error;
  const Result<Session::Config> config = ConfigFor(job, &error);
  if (!config.ok()) return Refuse(job, error);
  SlotPtr slot = reuse;
  if (slot == nullptr || slot->session == nullptr) {
    const Room room = MakeRoom(nullptr);
    if (room == Room::kNever) return Refuse(job, NoRoom(5));
    if (room == Room::kSoon) return Admitted::kWait;
  }
  Result<std::unique_ptr<Session>> session = Session::Create(*loaded_.model, *loaded_.pool, *config);
  if (!session.ok()) return Refuse(job, FromStatus(session.status(), "messages"));
  if (slot == nullptr) slot = NewSlot(job.request.tenant, RandomId("sess_"));
  std::unique_ptr<Session> old = std::exchange(slot->session, std::move(session).value());
  if (job.request.chat && job.messages[0].role == "system") {
    slot->session->set_system_chain(ChainMessage(0, job.messages[0]));
  }
  const bool throw_away = !job.request.chat && job.request.session.empty() && !job.request.store;
  if (job.request.chat) {
    slot->session->set_tools_hash(static_cast<uint32_t>(ChainTools(job.request.tools)));
    Result<PromptPlan> plan =
        PlanChat(*loaded_.prompter, job.messages, 0, {.chain = job.chains[0]}, job.request.tools);
    if (!plan.ok()) {
      slot->session = std::move(old);
      return Refuse(job, FromStatus(plan.status(), "messages"));
    }
    job.plan = std::move(plan).value();
  }
  if (throw_away) {
    slot->gone = true;
  } else if (table_.Find(slot->tenant, slot->id) == nullptr) {
    table_.Add(slot);
  }
  const Admitted outcome = job.request.chat ? Begin(job, slot, std::nullopt, 0) : Continue(job, slot);
  if (outcome == Admitted::kStarted) {
    if (throw_away) passing_.push_back(slot);
    watchers_.WentBack(*slot, 0);
    return outcome;
  }
  slot->session = std::move(old);
  if (slot->session == nullptr && !slot->on_disk) table_.Remove(slot);
  return outcome;
}

// Refuses what cannot be answered whole, before anything is fed; sets how long the reply may be.
std::optional<ApiError> EngineCore::CheckLengths(Job& job, const Session& session, int64_t base) {
  const Request& r = job.request;
  const Stream& stream = session.stream();
  const bool newest = base == stream.position();
  const auto fed = static_cast<int64_t>(job.plan.tokens.size() + (newest ? session.owed().size() : 0));
  if (job.plan.tokens.empty() && stream.position() == 0) {
    return BadRequest("prompt: expected at least one token, found none", "prompt");
  }
  job.max_tokens = r.max_tokens >= 0 ? r.max_tokens : options_.default_max_tokens;
  if (job.max_tokens < 0) job.max_tokens = std::min(kLongestReply, stream.context());
  if (!r.refuse_eviction && stream.cache().plan().evicts) return std::nullopt;
  const int64_t end = r.chat && loaded_.prompter->end_of_turn() >= 0 ? 1 : 0;
  const int64_t room = stream.context() - base - fed - end;
  if (room < 1 && !(room == 0 && job.max_tokens == 0)) {
    return BadRequest("this request is " + std::to_string(base + fed) +
                          " tokens long with its history, and the context is " +
                          std::to_string(stream.context()) + " tokens, of which the reply needs at least " +
                          std::to_string(1 + end),
                      r.chat ? "messages" : "prompt", "context_length_exceeded");
  }
  job.max_tokens = std::min(job.max_tokens, room);
  return std::nullopt;
}

EngineCore::Admitted EngineCore::Begin(Job& job, const SlotPtr& slot,
                                       const std::optional<size_t>& roll_back_to, int64_t cached) {
  Session& session = *slot->session;
  const bool newest = !roll_back_to || session.IsNewest(*roll_back_to);
  const int64_t base = newest ? session.stream().position() : session.turns().turns()[*roll_back_to].end;
  if (const std::optional<ApiError> error = CheckLengths(job, session, base)) return Refuse(job, *error);
  Result<Sampler> sampler =
      Sampler::Create(job.request.sampling, loaded_.model->config().vocab, session.stream().context());
  if (!sampler.ok()) return Refuse(job, FromStatus(sampler.status(), ""));
  if (!newest) {
    const Status back = session.RollBackTo(*roll_back_to);
    if (!back.ok()) return Refuse(job, FromStatus(back, "messages"));
    watchers_.WentBack(*slot, base);
  }
  job.sampler.emplace(std::move(sampler).value());
  job.slot = slot;
  slot->job = &job;
  slot->dirty = true;
  ++slot->version;
  job.begin_position = session.stream().position();
  job.begin_floor = session.stream().floor();
  job.begin_turns = session.turns().state();
  job.begin_owed = std::exchange(session.owed(), {});
  job.usage.prompt_tokens = cached + static_cast<int64_t>(job.plan.tokens.size());
  job.usage.cached_tokens = cached;
  const auto owed = static_cast<int64_t>(job.begin_owed.size());
  job.plan.tokens.insert(job.plan.tokens.begin(), job.begin_owed.begin(), job.begin_owed.end());
  for (PromptPlan::Mark& mark : job.plan.turns) {
    mark.begin += owed;
    if (mark.end >= 0) mark.end += owed;
  }
  job.encoded.reset();
  job.state = Job::State::kPrefill;
  job.fed = 0;
  job.next_mark = 0;
  FillUsage(job);
  if (options_.counters != nullptr) {
    options_.counters->prompt_tokens += job.usage.prompt_tokens;
    options_.counters->cached_tokens += cached;
  }
  job.receiver->OnStart(job.usage);
  return Admitted::kStarted;
}

}  // namespace ballast::server
