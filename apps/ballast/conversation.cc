#include "conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/choose_chat.h"

namespace ballast::app {
namespace {

constexpr int64_t kLongestReply = 2048;  // tokens, unless -n says otherwise
constexpr size_t kPrintedTurns = 8;      // of the newest that are held, when a template prints the next one
constexpr int64_t kSinkRows = 64;        // newest prompt tokens whose attention /sinks shows

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

Result<ChatPrompter> ChooseChat(const Loaded& loaded, const std::string& name) {
  std::string warning;
  Result<ChatPrompter> prompter = ballast::ChooseChat(*loaded.file, *loaded.tokenizer, name, &warning);
  if (!warning.empty()) Warn(warning);
  return prompter;
}

Result<std::unique_ptr<Conversation>> Conversation::Create(const Loaded& loaded, const ChatPrompter& prompter,
                                                           const Options& options) {
  std::unique_ptr<Conversation> chat(new Conversation(loaded, prompter));
  chat->options_ = options;
  BALLAST_RETURN_IF_ERROR(chat->MakeStream());
  return chat;
}

Status Conversation::MakeStream() {
  BALLAST_ASSIGN_OR_RETURN(system_tokens_, prompter_.CountSystemTokens(options_.system));
  StreamOptions plan = options_.stream;
  if (options_.pin_system) {
    if (system_tokens_ == 0) {
      return Status::Expected(Code::kUsage, "--pin-system", "a system prompt", "none",
                              "give one with --system TEXT");
    }
    plan.pinned = std::max(plan.pinned, system_tokens_);
    const int64_t trained = loaded_.model->config().trained_context;
    const int64_t context = plan.context > 0 ? plan.context : std::min<int64_t>(8192, trained);
    if (plan.pinned + 1 > context) {
      return Status::Expected(Code::kUsage, "--context",
                              fmt::format("more than the {} tokens of the pinned system prompt", plan.pinned),
                              fmt::format("{}", context), "a larger -c, or a shorter system prompt");
    }
  }
  // A rescue may have made another of the stream's policy.
  if (stream_ != nullptr && stream_->pinned() == plan.pinned && stream_->policy() == plan.policy) {
    stream_->Reset();
  } else {
    // Only a stream that could be made replaces the old one; untouched memory costs nothing meanwhile.
    BALLAST_ASSIGN_OR_RETURN(stream_, Stream::Create(*loaded_.model, *loaded_.pool, plan));
  }
  sink_rows_ = 0;
  guard_ = std::make_unique<CollapseGuard>(options_.on_collapse, loaded_, plan.pinned);
  return MakeFreshSampler();
}

// The penalties must see what is in the stream and nothing else, so an empty stream gets a new sampler. One
// seed makes the whole conversation, yet a restart does not draw the same again: /regen wants another reply.
Status Conversation::MakeFreshSampler() {
  SamplingFlags flags = options_.sampling;
  if (sampler_ != nullptr) flags.options.seed = seed() + ++restarts_;
  BALLAST_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(flags, loaded_, stream_->context()));
  if (sampler_ == nullptr) options_.sampling.options.seed = sampler.seed();
  sampler_ = std::make_unique<Sampler>(std::move(sampler));
  return Status();
}

std::vector<ChatMessage> Conversation::View() const {
  std::vector<ChatMessage> view;
  if (!options_.system.empty()) view.push_back({"system", options_.system});
  for (const Turn& turn : turns_) view.push_back(turn.message);
  return view;
}

// The newest turn, a user's, and the opening of the reply.
Result<std::vector<Token>> Conversation::RenderLast() const {
  std::vector<ChatMessage> view = View();
  const bool first = turns_.size() == 1;
  // A template prints all it is given, to find where the newest turn begins; an endless history would take
  // ever longer. Turns are left out in pairs, so that they still alternate.
  const size_t held = turns_.size() - 1;
  if (prompter_.UsesTemplate(view, "") && held > kPrintedTurns) {
    const auto system = static_cast<std::ptrdiff_t>(view.size() - turns_.size());
    const auto out = static_cast<std::ptrdiff_t>((held - kPrintedTurns + 1) / 2 * 2);
    view.erase(view.begin() + system, view.begin() + system + out);
  }
  return prompter_.Render(view, first ? 0 : view.size() - 1, true, first);
}

void Conversation::KeepSinkMass(const Stream::Row& row) {
  const ModelConfig& config = loaded_.model->config();
  for (int layer = 0; layer < config.layers; ++layer) {
    for (int head = 0; head < config.heads; ++head) {
      sink_mass_[layer * config.heads + head] += row.SinkMass(layer, head);
    }
  }
  ++sink_rows_;
}

Status Conversation::Feed(const std::vector<Token>& tokens, const Hooks& hooks) {
  const ModelConfig& config = loaded_.model->config();
  sink_mass_.assign(static_cast<size_t>(config.layers) * config.heads, 0.0);
  sink_rows_ = 0;
  int64_t row_index = 0;
  const auto total = static_cast<int64_t>(tokens.size());
  Stream::AppendOptions options;
  options.on_row = [&](const Stream::Row& row) {
    if (row_index++ >= total - kSinkRows && row.sink_mass != nullptr) KeepSinkMass(row);
    guard_->OnRow(row);
  };
  options.on_step = [&](int64_t done) {
    if (hooks.on_prefill) hooks.on_prefill(done, total);
    return !Interrupted();
  };
  BALLAST_RETURN_IF_ERROR(stream_->Append(tokens, options));
  for (Token token : tokens) sampler_->Observe(token);
  guard_->Saw(tokens);
  for (double& mass : sink_mass_) mass /= static_cast<double>(std::max<int64_t>(1, sink_rows_));
  return Status();
}

// Feeds one more turn of a history.
Status Conversation::FeedTurn(Turn turn, const Hooks& hooks) {
  turns_.push_back(std::move(turn));
  Turn& now = turns_.back();
  std::vector<Token> tokens = now.tokens;
  if (now.message.role == "user") {
    BALLAST_ASSIGN_OR_RETURN(tokens, RenderLast());
  } else if (tokens.empty()) {
    tokens = prompter_.EncodeReply(now.message.content);
    now.tokens = tokens;
  }
  now.begin = std::max(stream_->position(), turns_.size() == 1 ? system_tokens_ : 0);
  BALLAST_RETURN_IF_ERROR(Feed(tokens, hooks));
  now.end = stream_->position();
  return Status();
}

// Streams the newest turns that fit the window again, whole user-and-reply pairs, after the system prompt.
// Tokens of replies are fed as they were generated: text encoded again may give others.
Status Conversation::Restream(const Hooks& hooks) {
  needs_restream_ = true;  // until this went through
  BALLAST_RETURN_IF_ERROR(MakeStream());
  std::vector<Turn> turns = std::move(turns_);
  turns_.clear();
  size_t first = turns.size();
  int64_t room = stream_->context() - std::max(system_tokens_, stream_->pinned());
  for (size_t i = turns.size(); i > 0; --i) {
    const Turn& turn = turns[i - 1];
    int64_t size = turn.end - turn.begin;
    if (size <= 0) size = static_cast<int64_t>(loaded_.tokenizer->Encode(turn.message.content).size()) + 8;
    room -= size;
    if (room < 0 && first < turns.size()) break;
    if (turn.message.role == "user") first = i - 1;
  }
  for (size_t i = 0; i < first; ++i) dropped_.push_back(std::move(turns[i].message));
  for (size_t i = first; i < turns.size(); ++i) {
    const Status status = FeedTurn(turns[i], hooks);
    if (status.ok()) continue;
    if (!turns_.empty()) turns_.pop_back();  // the one that failed; all are kept for the next attempt
    turns_.insert(turns_.end(), std::make_move_iterator(turns.begin() + static_cast<std::ptrdiff_t>(i)),
                  std::make_move_iterator(turns.end()));
    return status;
  }
  needs_restream_ = false;
  return Status();
}

Result<Conversation::Reply> Conversation::Say(const std::string& text, const Hooks& hooks) {
  if (needs_restream_) BALLAST_RETURN_IF_ERROR(Restream(hooks));
  const auto began = std::chrono::steady_clock::now();
  const int64_t position = stream_->position();
  Turn turn;
  turn.message = {"user", text};
  if (Status status = FeedTurn(std::move(turn), hooks); !status.ok()) {
    turns_.pop_back();
    needs_restream_ = needs_restream_ || stream_->position() != position;
    return status;
  }
  if (hooks.on_prefilled) hooks.on_prefilled();
  const int64_t prompt_tokens = stream_->position() - position;
  const double prompt_seconds = Seconds(began);
  Result<Reply> reply = GenerateReply(hooks);
  if (!reply.ok()) {  // e.g. a dense cache that is full: the question is taken back
    turns_.pop_back();
    needs_restream_ = true;
    return reply;
  }
  reply->prompt_tokens = prompt_tokens;
  reply->prompt_seconds = prompt_seconds;
  Forget();
  return reply;
}

Result<Conversation::Reply> Conversation::GenerateReply(const Hooks& hooks) {
  const auto began = std::chrono::steady_clock::now();
  GenerateOptions options;
  // A small model may never end its turn: unless -n says otherwise (-1: no limit), a reply has a limit and
  // never outgrows the context, beyond which its question has left the window.
  options.max_tokens = options_.sampling.max_tokens_given || options_.sampling.max_tokens >= 0
                           ? options_.sampling.max_tokens
                           : std::min<int64_t>(kLongestReply, stream_->context());
  options.stops = options_.sampling.stops;
  const std::vector<std::string>& more = prompter_.text_stops();
  options.stops.insert(options.stops.end(), more.begin(), more.end());
  options.on_text = hooks.on_text;
  options.on_token = [](Token) { return !Interrupted(); };
  guard_->Watch(*stream_, options);
  Turn turn;
  turn.begin = stream_->position();
  Reply reply;
  BALLAST_ASSIGN_OR_RETURN(reply.generated, Generate(*stream_, *loaded_.tokenizer, *sampler_, options));
  turn.message = {"assistant", reply.generated.text};
  turn.tokens = reply.generated.tokens;
  BALLAST_RETURN_IF_ERROR(CloseTurn(turn, reply.generated));
  turn.end = stream_->position();
  turns_.push_back(std::move(turn));
  reply.reply_seconds = Seconds(began);
  return reply;
}

// The template must stay whole: the next user turn follows an end of turn, also after a reply that was cut.
Status Conversation::CloseTurn(Turn& turn, const Generated& generated) {
  const std::optional<Token> end = prompter_.Closing(turn.tokens, generated.reason);
  if (!end) return Status();
  // In a full dense cache nothing can follow; the turn's tokens are whole all the same, for another stream.
  if (!stream_->full()) BALLAST_RETURN_IF_ERROR(stream_->Append({&*end, 1}));
  sampler_->Observe(*end);
  guard_->Saw({&*end, 1});
  turn.tokens.push_back(*end);
  return Status();
}

Result<Conversation::Reply> Conversation::Regenerate(const Hooks& hooks) {
  if (turns_.size() < 2 || turns_.back().message.role != "assistant") {
    return Status::Expected(Code::kInput, "/regen", "a reply to replace", "none");
  }
  Turn old_reply = std::move(turns_.back());
  turns_.pop_back();
  Turn old_question = std::move(turns_.back());
  turns_.pop_back();
  needs_restream_ = true;
  Result<Reply> reply = Say(old_question.message.content, hooks);
  if (!reply.ok()) {  // e.g. Ctrl-C: nothing is lost
    turns_.push_back(std::move(old_question));
    turns_.push_back(std::move(old_reply));
    needs_restream_ = true;
  }
  return reply;
}

Status Conversation::SetSystem(const std::string& text, const Hooks& hooks) {
  const std::string old = std::exchange(options_.system, text);
  Status status = Restream(hooks);
  if (status.code() == Code::kUsage) {  // it cannot be pinned: keep the old one
    options_.system = old;
    const Status again = Restream(hooks);
    if (!again.ok()) return again;
  }
  return status;
}

Status Conversation::Load(const std::string& system, const std::vector<ChatMessage>& messages,
                          const Hooks& hooks) {
  std::vector<ChatMessage> view;
  if (!system.empty()) view.push_back({"system", system});
  view.insert(view.end(), messages.begin(), messages.end());
  // Nothing is given up before the format has accepted the new history.
  if (!messages.empty()) BALLAST_RETURN_IF_ERROR(prompter_.Check(view, false));
  const std::string old_system = std::exchange(options_.system, system);
  std::vector<ChatMessage> old_dropped = std::exchange(dropped_, {});
  std::vector<Turn> old_turns = std::exchange(turns_, {});
  Status status = MakeStream();
  for (size_t i = 0; status.ok() && i < messages.size(); ++i) {
    Turn turn;
    turn.message = messages[i];
    status = FeedTurn(std::move(turn), hooks);
  }
  if (!status.ok()) {
    options_.system = old_system;
    dropped_ = std::move(old_dropped);
    turns_ = std::move(old_turns);
    needs_restream_ = true;
    return status;
  }
  needs_restream_ = false;
  Forget();
  return Status();
}

Status Conversation::Clear() {
  dropped_.clear();
  turns_.clear();
  needs_restream_ = true;
  BALLAST_RETURN_IF_ERROR(MakeStream());
  needs_restream_ = false;
  return Status();
}

// Token ids of turns that no restream can reach any more.
void Conversation::Forget() {
  for (Turn& turn : turns_) {
    if (turn.end >= stream_->start() - stream_->context()) break;
    turn.tokens = {};
  }
}

std::vector<ChatMessage> Conversation::Messages() const {
  std::vector<ChatMessage> messages = dropped_;
  for (const Turn& turn : turns_) messages.push_back(turn.message);
  return messages;
}

size_t Conversation::gone() const {
  size_t count = dropped_.size();
  for (const Turn& turn : turns_) {
    if (turn.end <= stream_->pinned() || std::max(turn.begin, stream_->pinned()) >= stream_->start()) break;
    ++count;
  }
  return count;
}

size_t Conversation::gone_whole() const {
  size_t count = dropped_.size();
  for (const Turn& turn : turns_) {
    if (turn.end > stream_->start() || turn.end <= stream_->pinned()) break;
    ++count;
  }
  return count;
}

bool Conversation::system_gone() const {
  return system_tokens_ > stream_->pinned() && stream_->start() > stream_->pinned();
}

const Conversation::Turn* Conversation::last_user() const {
  for (size_t i = turns_.size(); i > 0; --i) {
    if (turns_[i - 1].message.role == "user") return &turns_[i - 1];
  }
  return nullptr;
}

}  // namespace ballast::app
