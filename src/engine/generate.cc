#include "engine/generate.h"

#include <utility>

#include "engine/stop.h"
#include "text/utf8.h"

namespace ballast {
namespace {

// Where sampled bytes become text for the user: whole code points, never a byte of a stop string.
class TextOut {
 public:
  TextOut(const GenerateOptions& options, Generated& out)
      : options_(options), out_(out), stops_(options.stops) {}
  // False: the receiver wants no more.
  bool Push(std::string_view bytes) { return Show(stops_.Push(utf8_.Push(bytes))); }
  bool Finish() {
    bool go_on = Show(stops_.Push(utf8_.Finish()));
    return Show(stops_.Finish()) && go_on;
  }
  bool stopped() const { return stops_.stopped(); }

 private:
  bool Show(const std::string& text) {
    if (text.empty()) return true;
    out_.text += text;
    return !options_.on_text || options_.on_text(text);
  }
  const GenerateOptions& options_;
  Generated& out_;
  Utf8Stream utf8_;
  StopFilter stops_;
};

}  // namespace

Result<Generated> Generate(Stream& stream, const Tokenizer& tokenizer, Sampler& sampler,
                           const GenerateOptions& options) {
  Generated out;
  if (options.max_tokens == 0) return out;
  if (stream.logits().empty()) {
    return Status::Expected(Code::kInput, "prompt", "at least one token", "none");
  }
  TextOut text(options, out);
  for (;;) {
    BALLAST_ASSIGN_OR_RETURN(const Token token, sampler.Sample(stream.logits()));
    out.tokens.push_back(token);
    sampler.Observe(token);
    const bool wanted = !options.on_token || options.on_token(token);
    const bool ends = options.stop_at_end_of_turn && tokenizer.EndsTurn(token);
    bool go_on = wanted;
    if (!ends) go_on = text.Push(tokenizer.Piece(token)) && go_on;
    if (const Status fed = stream.Append({&token, 1}); !fed.ok()) {
      text.Finish();
      return fed;
    }
    if (ends || text.stopped() || !go_on) {
      out.reason = ends             ? StopReason::kEndOfTurn
                   : text.stopped() ? StopReason::kStopString
                                    : StopReason::kInterrupted;
      break;
    }
    if (options.max_tokens > 0 && static_cast<int64_t>(out.tokens.size()) >= options.max_tokens) {
      out.reason = StopReason::kBudget;
      break;
    }
  }
  text.Finish();
  return out;
}

}  // namespace ballast
