// What the chat loop and its commands share.
#ifndef BALLAST_APPS_CHAT_H_
#define BALLAST_APPS_CHAT_H_

#include <memory>
#include <optional>
#include <string>

#include "app.h"
#include "conversation.h"

namespace ballast::app {

struct ChatSession {
  const Loaded* loaded = nullptr;
  std::unique_ptr<Conversation> chat;
  bool json = false;    // one document at the end instead of text as it comes
  bool edited = false;  // a person at a terminal
  Status output;        // the first write to stdout that failed
  bool ends_line = true;
  size_t told_gone = 0;  // turns that were already reported as gone
  bool told_system = false;
  int64_t tokens_in = 0;
  int64_t tokens_out = 0;
  std::optional<Conversation::Reply> last;

  Conversation::Hooks Hooks();
  // Says once per event, on stderr, which turns the model can no longer see.
  void TellWhatLeft();
  // Ends what a reply has printed, and keeps its figures.
  Status AfterReply(Result<Conversation::Reply> reply);
};

// Runs "/name arguments". A command that does not exist is said to be so, and never sent to the model.
// kInterrupted: it was stopped, which was told.
Status RunChatCommand(ChatSession& session, const std::string& line, bool* leave);
// {"ballast": "chat", "version": 1, "system", "messages": [{"role", "content"}], "options"}.
nlohmann::json TranscriptJson(const ChatSession& session);

}  // namespace ballast::app

#endif  // BALLAST_APPS_CHAT_H_
