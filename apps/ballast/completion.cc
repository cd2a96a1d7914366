#include "completion.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "terminal.h"

namespace ballast::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kReadBytes = 1 << 16;
constexpr int64_t kIdleTokens = 64;  // generated per pause unless -n says otherwise

}  // namespace

Status Completion::FromText(const std::string& prompt) {
  cutter_.Push(prompt);
  BALLAST_RETURN_IF_ERROR(Feed(cutter_.Flush()));
  return Generate(options_.max_tokens);
}

Status Completion::FromDescriptor(int fd, int64_t bytes, const std::string& name) {
  total_bytes_ = bytes;
  const int idle = options_.on_idle > 0 ? static_cast<int>(std::min<int64_t>(options_.on_idle, 1 << 30)) : -1;
  std::vector<char> buffer(kReadBytes);
  while (true) {
    const bool news = stream_.position() > generated_to_ || !cutter_.empty();
    const Wait wait = WaitReadable(fd, news ? idle : -1);
    if (wait == Wait::kInterrupted) return Status(Code::kInterrupted, "interrupted");
    if (wait == Wait::kTimeout) {
      BALLAST_RETURN_IF_ERROR(OnPause());
      continue;
    }
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::Expected(Code::kInput, name, "readable text", std::strerror(errno));
    read_bytes_ += n;
    cutter_.Push({buffer.data(), static_cast<size_t>(n)});
    BALLAST_RETURN_IF_ERROR(Feed(cutter_.Take()));
  }
  BALLAST_RETURN_IF_ERROR(Feed(cutter_.Flush()));
  progress_.reset();
  // After a pause that was answered there may be nothing new to answer.
  if (generated_to_ > 0 && stream_.position() == generated_to_) return Status();
  return Generate(idle > 0 && options_.max_tokens < 0 ? kIdleTokens : options_.max_tokens);
}

// `done` of the `count` tokens of one piece are in, after `position` earlier ones.
void Completion::ShowProgress(int64_t position, int64_t done, int64_t count) {
  const double share = static_cast<double>(done) / static_cast<double>(count);
  if (total_bytes_ > 0) {
    const double bytes =
        static_cast<double>(fed_bytes_) + static_cast<double>(read_bytes_ - fed_bytes_) * share;
    progress_->Update(bytes / static_cast<double>(total_bytes_));
  } else if (read_bytes_ == 0) {  // the whole prompt came at once
    progress_->Update(share);
  } else {
    progress_->Count(position + done);
  }
}

Status Completion::Feed(const std::vector<Token>& tokens) {
  if (tokens.empty()) return Status();
  if (progress_ == nullptr) progress_ = std::make_unique<Progress>("reading the prompt");
  const auto began = Clock::now();
  const int64_t position = stream_.position();
  const auto count = static_cast<int64_t>(tokens.size());
  Stream::AppendOptions options;
  options.on_step = [&](int64_t done) {
    ShowProgress(position, done, count);
    return !Interrupted();
  };
  options.on_row = [&](const Stream::Row& row) { guard_.OnRow(row); };
  const Status status = stream_.Append(tokens, options);
  const int64_t fed = stream_.position() - position;
  fed_bytes_ = read_bytes_;
  guard_.Saw(std::span(tokens).first(static_cast<size_t>(std::min(fed, count))));
  for (int64_t i = 0; i < std::min(fed, count); ++i) sampler_.Observe(tokens[static_cast<size_t>(i)]);
  outcome_.tokens_in += fed;
  outcome_.prompt_seconds += std::chrono::duration<double>(Clock::now() - began).count();
  return status;
}

Status Completion::OnPause() {
  BALLAST_RETURN_IF_ERROR(Feed(cutter_.Flush()));
  BALLAST_RETURN_IF_ERROR(Generate(options_.max_tokens >= 0 ? options_.max_tokens : kIdleTokens));
  if (!outcome_.ends_line) output_.Show("\n");
  return output_.status();
}

// Nothing is cut silently: once, when the model no longer sees all that it was given.
void Completion::TellWhatLeft() {
  if (told_ || stream_.evicted() == 0) return;
  told_ = true;
  const std::string pinned = stream_.pinned() > 0 && stream_.policy() == Policy::kSinks
                                 ? fmt::format("the first {} and ", Grouped(stream_.pinned()))
                                 : "";
  const int64_t window = stream_.position() - stream_.start();
  Note(fmt::format("[{} of {} tokens have left the window: the model sees {}the last {}]",
                   Grouped(stream_.evicted()), Grouped(stream_.position()), pinned, Grouped(window)));
}

Status Completion::Generate(int64_t max_tokens) {
  progress_.reset();
  if (stream_.position() == 0) {
    return Status::Expected(Code::kInput, "prompt", "at least one token", "none",
                            "this model has no token to begin with; give some text");
  }
  TellWhatLeft();
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.stops = options_.stops;
  options.on_text = [this](std::string_view text) { return output_.Show(text); };
  options.on_token = [](Token) { return !Interrupted(); };
  guard_.Watch(stream_, options);
  const auto began = Clock::now();
  const int64_t position = stream_.position();
  Result<Generated> generated = ballast::Generate(stream_, tokenizer_, sampler_, options);
  outcome_.reply_seconds += std::chrono::duration<double>(Clock::now() - began).count();
  outcome_.tokens_out +=
      generated.ok() ? static_cast<int64_t>(generated->tokens.size()) : stream_.position() - position;
  generated_to_ = stream_.position();
  BALLAST_RETURN_IF_ERROR(output_.status());
  BALLAST_RETURN_IF_ERROR(generated.status());
  outcome_.reason = generated->reason;
  if (generated->reason == StopReason::kCollapsed) return guard_.StoppedStatus();
  return generated->reason == StopReason::kInterrupted ? Status(Code::kInterrupted, "interrupted") : Status();
}

}  // namespace ballast::app
