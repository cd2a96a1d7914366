// Service: what the HTTP layer asks of the engine, and the only thing that the two know of each other.
//
// Purpose: requests arrive parsed and checked for form; the service owns the model, the sessions and the one
// thread that computes. Thread safety: every call may come from any thread and returns at once; answers come
// through callbacks on the engine's thread, which must not block either (they post to their own executor).
// Invariants: 1. every accepted request ends with exactly one OnFinish or OnError, also when it was
// cancelled.
// 2. a tenant never sees, continues or counts against the quota of another tenant's sessions. 3. nothing is
// cut silently: Usage says what was evicted.
#ifndef BALLAST_SERVER_SERVICE_H_
#define BALLAST_SERVER_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/policy.h"
#include "engine/monitor.h"
#include "engine/sampler.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace ballast::server {

// An error as OpenAI's clients know it; docs: the table of errors in docs/server.md.
struct ApiError {
  int status = 500;  // HTTP
  std::string message;
  std::string type = "server_error";  // invalid_request_error, authentication_error, not_found_error, ...
  std::string param;                  // the field at fault; "": null
  std::string code = "internal_error";
  int retry_after = 0;  // seconds; 0: no such header
};

// What a session's monitor thinks, and how often the session was rescued.
struct HealthInfo {
  Verdict verdict;
  int64_t rescues = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;  // of this request's messages, cached ones included
  int64_t cached_tokens = 0;  // of those, already in the session
  int64_t completion_tokens = 0;
  int64_t position = 0;        // tokens ever fed to the session
  int64_t evicted_tokens = 0;  // of those, no longer visible
  int64_t sinks = 0;           // pinned tokens
  int64_t context = 0;         // capacity
  HealthInfo health;
  std::string session;                // id; "" when the session was thrown away
  std::vector<std::string> warnings;  // e.g. that a part of what was just sent cannot be seen any more
};

enum class Finish { kStop, kLength, kCancelled };

struct TokenScore {
  Token id = 0;
  std::string bytes;   // as in the vocabulary; may be a part of a character
  double logprob = 0;  // natural, of the model's own distribution, before sampling options
};
struct TokenReport : TokenScore {
  std::vector<TokenScore> top;  // `top_logprobs` likeliest, best first
};

enum class Evict { kToken, kTurn };  // kTurn: whole oldest turns, so that the window starts at a turn

struct Request {
  // What to answer. Exactly one of the two kinds.
  bool chat = true;
  std::vector<ChatMessage> messages;  // chat
  std::string tools;                  // chat: those offered, a JSON list; "": none
  std::string prompt;                 // completion
  std::vector<Token> prompt_tokens;   // completion given as ids; used instead of `prompt` when not empty
  // How to answer.
  SamplerOptions sampling;
  int64_t max_tokens = -1;  // -1: the service's default
  std::vector<std::string> stops;
  bool echo = false;      // completion: the prompt is part of the text
  int top_logprobs = -1;  // -1: none wanted; 0: only the chosen token's
  // Where.
  std::string tenant;            // who asks: a digest of the key, "" without keys
  std::string session;           // named by the client, [A-Za-z0-9_-]{1,64}; "": found by history
  std::string previous;          // id of the response whose session is continued; "": none
  bool store = false;            // keep the session under the response's id
  std::string id;                // of the response: "chatcmpl-...", "resp_..."
  std::optional<Policy> policy;  // of a new session; kUsage error for an existing one of another kind
  std::optional<int64_t> sinks;
  std::optional<Evict> evict;
  bool pin_system = false;
  bool refuse_eviction = false;  // "truncation": "disabled": 400 context_length_exceeded instead
};

// Receives one request's answer, in this order: OnStart, OnProgress*, OnText*, OnFinish | OnError. On the
// engine's thread; must return at once.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void OnStart(const Usage&) {}                            // session found, prompt counted
  virtual void OnProgress(int64_t /*done*/, int64_t /*total*/) {}  // prompt tokens fed
  // Whole UTF-8, stop strings never shown; `tokens` only when logprobs were asked for.
  virtual void OnText(std::string_view text, const std::vector<TokenReport>& tokens) = 0;
  virtual void OnFinish(Finish finish, const Usage& usage) = 0;
  virtual void OnError(const ApiError& error) = 0;
};

struct SessionInfo {
  std::string id;
  std::string state;  // "active" | "idle" | "spilled"
  std::string policy;
  int64_t position = 0, evicted_tokens = 0, sinks = 0, context = 0, turns = 0, kv_bytes = 0;
  double idle_seconds = 0;
};

// The real cache of one session, for the page. Arrays are only what changed since the last one where noted.
struct CacheView {
  int64_t position = 0, start = 0, sinks = 0, context = 0, live = 0, evicted_tokens = 0, write_slot = 0;
  std::string policy;
  // Tokens fed since the last view (all live ones in the first): text and stream position.
  struct Cell {
    int64_t position = 0;
    std::string text;
  };
  std::vector<Cell> fresh;
  int layers = 0, heads = 0;
  std::vector<float> sink_mass;  // (layer, head): mean over the tokens fed since the last view
  double tokens_per_second = 0;
  HealthInfo health;
  double surprise = 0;  // bits: mean of -log2 p(token) over the fresh generated tokens; 0: none
};

class Service {
 public:
  virtual ~Service() = default;

  enum class State { kLoading, kReady, kDraining, kFailed };
  virtual State state() const = 0;

  // Queues a request. The ticket is for Cancel. Never blocks; a full queue answers OnError (503).
  virtual uint64_t Submit(Request request, std::shared_ptr<Receiver> receiver) = 0;
  // Takes the request back in whatever state it is; its memory is free within one step.
  virtual void Cancel(uint64_t ticket) = 0;

  // Sessions. `done` gets exactly one of the two.
  template <typename T>
  using Done = std::function<void(std::optional<T> value, const ApiError& error)>;
  virtual void ListSessions(const std::string& tenant, Done<std::vector<SessionInfo>> done) = 0;
  virtual void GetSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) = 0;
  virtual void DeleteSession(const std::string& tenant, const std::string& id, Done<bool> done) = 0;
  virtual void SaveSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) = 0;
  virtual void RestoreSession(const std::string& tenant, const std::string& id, Done<SessionInfo> done) = 0;
  // The copy's id is `to`, or a new one when that is "".
  virtual void ForkSession(const std::string& tenant, const std::string& id, const std::string& to,
                           Done<SessionInfo> done) = 0;

  // Calls `view` at most 10 times a second while the session changes, until Unwatch. Costs nothing unwatched.
  // false from `view` also ends it. The first call comes at once.
  virtual uint64_t Watch(const std::string& tenant, const std::string& id,
                         std::function<bool(const CacheView&)> view,
                         std::function<void(ApiError)> failed) = 0;
  virtual void Unwatch(uint64_t watch) = 0;

  // Answered on the caller's thread.
  struct ModelInfo {
    std::string id, architecture, chat_format;
    int64_t created = 0, context = 0, trained_context = 0, sinks = 0, vocab = 0;
    std::string kv, policy;
  };
  virtual const ModelInfo& model() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;

  // Stops taking requests; running ones finish (or are cancelled after `seconds`), sessions are saved; then
  // `done`, with how many could not be.
  virtual void Drain(double seconds, std::function<void(int64_t unsaved)> done) = 0;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SERVICE_H_
