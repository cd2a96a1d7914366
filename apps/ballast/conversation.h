// Conversation: a chat on one stream. Used by `chat` and `run --chat`.
//
// Every message is a turn with its range of stream positions, so that it can be told which turns the model
// still sees. Invariants: 1. the stream always holds whole turns: a reply that was stopped is closed with the
// format's end-of-turn token; after a failure the visible turns are streamed again before anything else. 2.
// text typed by the user never becomes a control token. 3. BOS is fed at most once, first.
// Thread safety: one thread.
#ifndef BALLAST_APPS_CONVERSATION_H_
#define BALLAST_APPS_CONVERSATION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app.h"
#include "collapse.h"
#include "engine/chat_prompter.h"
#include "engine/generate.h"
#include "text/chat_format.h"

namespace ballast::app {

// As choose_chat.h, with its warning on stderr.
Result<ChatPrompter> ChooseChat(const Loaded& loaded, const std::string& name);

class Conversation {
 public:
  struct Options {
    StreamOptions stream;
    SamplingFlags sampling;
    std::string system;
    bool pin_system = false;
    OnCollapse on_collapse = OnCollapse::kWarn;
  };
  struct Hooks {
    std::function<bool(std::string_view text)> on_text;
    std::function<void(int64_t done, int64_t total)> on_prefill;
    std::function<void()> on_prefilled;
  };
  struct Turn {
    ChatMessage message;
    std::vector<Token> tokens;  // of a reply: as generated, end of turn included; else empty
    int64_t begin = 0;          // stream positions [begin, end)
    int64_t end = 0;
  };
  struct Reply {
    Generated generated;
    int64_t prompt_tokens = 0;
    double prompt_seconds = 0;
    double reply_seconds = 0;
  };

  // `loaded` must outlive the conversation. kUsage when the pinned system prompt leaves no window.
  static Result<std::unique_ptr<Conversation>> Create(const Loaded& loaded, const ChatPrompter& prompter,
                                                      const Options& options);

  // Adds a user's turn and generates the reply. Ctrl-C ends it early with what there is. When the prompt was
  // not fed whole (kInterrupted) or refused, the turn is taken back.
  Result<Reply> Say(const std::string& text, const Hooks& hooks);
  // Replaces the last reply by another one; the old one stays when that fails. A cache cannot un-append what
  // it has evicted for, so the visible turns are streamed again.
  Result<Reply> Regenerate(const Hooks& hooks);
  // Another system prompt: it stands first, so the visible turns are streamed again.
  Status SetSystem(const std::string& text, const Hooks& hooks);
  // Starts over with `messages` (user and assistant in turn), streamed through the window.
  Status Load(const std::string& system, const std::vector<ChatMessage>& messages, const Hooks& hooks);
  Status Clear();

  const Stream& stream() const { return *stream_; }
  const Sampler& sampler() const { return *sampler_; }
  const CollapseGuard& guard() const { return *guard_; }
  // The conversation's; a sampler made for a restarted stream derives its own from it.
  uint64_t seed() const { return *options_.sampling.options.seed; }
  const Options& options() const { return options_; }
  const ChatPrompter& prompter() const { return prompter_; }
  const std::string& system() const { return options_.system; }
  int64_t system_tokens() const { return system_tokens_; }
  std::vector<ChatMessage> Messages() const;  // all of them, without the system prompt
  size_t turns() const { return dropped_.size() + turns_.size(); }
  // Turns 1..gone() are no longer (wholly) visible; 1..gone_whole() not at all.
  size_t gone() const;
  size_t gone_whole() const;
  bool system_gone() const;
  const Turn* last_user() const;
  // Attention share of the pinned tokens, (layer, head), mean over the newest `sink_rows()` prompt tokens.
  const std::vector<double>& sink_mass() const { return sink_mass_; }
  int64_t sink_rows() const { return sink_rows_; }

 private:
  Conversation(const Loaded& loaded, const ChatPrompter& prompter) : loaded_(loaded), prompter_(prompter) {}
  Status MakeStream();
  Status MakeFreshSampler();
  std::vector<ChatMessage> View() const;
  Result<std::vector<Token>> RenderLast() const;
  Status Feed(const std::vector<Token>& tokens, const Hooks& hooks);
  Status FeedTurn(Turn turn, const Hooks& hooks);
  Status Restream(const Hooks& hooks);
  Result<Reply> GenerateReply(const Hooks& hooks);
  Status CloseTurn(Turn& turn, const Generated& generated);
  void Forget();
  void KeepSinkMass(const Stream::Row& row);

  const Loaded& loaded_;
  Options options_;
  const ChatPrompter prompter_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<CollapseGuard> guard_;
  std::unique_ptr<Sampler> sampler_;  // has seen what the stream was fed since it was last empty
  uint64_t restarts_ = 0;             // samplers made after the first one
  std::vector<ChatMessage> dropped_;  // older turns that this stream was not fed
  std::vector<Turn> turns_;           // fed, oldest first
  int64_t system_tokens_ = 0;
  bool needs_restream_ = false;
  std::vector<double> sink_mass_;
  int64_t sink_rows_ = 0;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_CONVERSATION_H_
