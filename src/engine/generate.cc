#include "engine/generate.h"

#include <utility>

namespace ballast {

Generation::Generation(const Tokenizer& tokenizer, GenerateOptions options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      stops_(options_.stops),
      over_(options_.max_tokens == 0) {
  if (options_.monitor != nullptr) options_.monitor->BeginReply();
}

bool Generation::Show(const std::string& text) {
  if (text.empty()) return true;
  out_.text += text;
  return !options_.on_text || options_.on_text(text);
}

Result<Token> Generation::Next(Sampler& sampler, std::span<const float> logits) {
  const Result<Token> drawn = sampler.Sample(logits);
  if (!drawn.ok()) {
    if (options_.monitor != nullptr) options_.monitor->Broken();
    return drawn.status();
  }
  const Token token = *drawn;
  out_.tokens.push_back(token);
  sampler.Observe(token);
  if (options_.monitor != nullptr) options_.monitor->Drawn(logits, token);
  bool go_on = !options_.on_token || options_.on_token(token);
  const bool ends = options_.stop_at_end_of_turn && tokenizer_.EndsTurn(token);
  if (!ends) go_on = Push(tokenizer_.Piece(token)) && go_on;
  if (ends) {
    Cut(StopReason::kEndOfTurn);
  } else if (stops_.stopped()) {
    Cut(StopReason::kStopString);
  } else if (!go_on) {
    Cut(StopReason::kInterrupted);
  } else if (options_.max_tokens > 0 && static_cast<int64_t>(out_.tokens.size()) >= options_.max_tokens) {
    Cut(StopReason::kBudget);
  }
  return token;
}

void Generation::Cut(StopReason reason) {
  if (over_) return;
  over_ = true;
  out_.reason = reason;
  Show(stops_.Push(utf8_.Finish()));
  Show(stops_.Finish());
}

Result<Generated> Generate(Stream& stream, const Tokenizer& tokenizer, Sampler& sampler,
                           const GenerateOptions& options) {
  Generation generation(tokenizer, options);
  if (!generation.over() && stream.logits().empty()) {
    return Status::Expected(Code::kInput, "prompt", "at least one token", "none");
  }
  Stream::AppendOptions append;
  if (options.monitor != nullptr) {
    append.on_row = [monitor = options.monitor](const Stream::Row& row) {
      monitor->Fed(row.position + 1, 1, row.sink_mass, row.layer_stride);
    };
  }
  while (!generation.over()) {
    BALLAST_ASSIGN_OR_RETURN(const Token token, generation.Next(sampler, stream.logits()));
    if (generation.over() && stream.full()) break;
    if (const Status fed = stream.Append({&token, 1}, append); !fed.ok()) {
      generation.Cut(StopReason::kBudget);
      return fed;
    }
    if (options.monitor == nullptr || !options.on_verdict) continue;
    BALLAST_ASSIGN_OR_RETURN(const bool go_on, options.on_verdict(options.monitor->verdict()));
    if (!go_on) generation.Cut(StopReason::kCollapsed);
  }
  return generation.Take();
}

}  // namespace ballast
