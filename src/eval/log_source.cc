#include "eval/log_source.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

namespace ballast {
namespace {

constexpr size_t kReadBytes = 1 << 16;

class PipeSource final : public LogSource {
 public:
  PipeSource(int fd, std::string name, const LogSourceOptions& options, int64_t read_before)
      : LogSource(options.keep), fd_(fd), name_(std::move(name)), buffer_(kReadBytes) {
    assembler_.StartAt(read_before, "");
    place_ = assembler_.place();
  }

  Result<bool> Fill() override {
    pollfd wait{fd_, POLLIN, 0};
    if (ended_ || poll(&wait, 1, 0) <= 0) return false;
    const ssize_t n = read(fd_, buffer_.data(), buffer_.size());
    if (n < 0) {
      if (errno == EINTR || errno == EAGAIN) return false;
      return Status::Expected(Code::kInput, name_, "readable lines", std::strerror(errno));
    }
    if (n > 0) Push({buffer_.data(), static_cast<size_t>(n)});
    if (n == 0) Finish();
    ended_ = n == 0;
    return true;
  }

  int64_t Lag() const override {
    int waiting = 0;
    if (ended_ || ioctl(fd_, FIONREAD, &waiting) != 0) waiting = 0;
    return Held() + waiting;
  }
  int descriptor() const override { return ended_ ? -1 : fd_; }

 private:
  int fd_;
  std::string name_;
  std::vector<char> buffer_;
};

}  // namespace

void LogSource::Push(std::string_view bytes) {
  const size_t first = assembler_.lines().size();
  assembler_.Push(bytes);
  if (assembler_.lines().size() > first) assembler_.line(first).events = std::exchange(events_, {});
}

void LogSource::Finish() {
  const size_t first = assembler_.lines().size();
  assembler_.Finish();
  if (assembler_.lines().size() > first) assembler_.line(first).events = std::exchange(events_, {});
}

int64_t LogSource::Held() const { return assembler_.queued() + assembler_.unfinished(); }

LogLine LogSource::Take() {
  LogLine line = assembler_.Pop();
  place_ = line.after;
  return line;
}

Result<LogSource::Skipped> LogSource::SkipTo(int64_t most, size_t most_lines, FunctionRef<bool()> go_on) {
  Skipped skipped;
  for (int64_t lag = Lag(); lag > most || queued_lines() > most_lines;) {
    if (empty()) {
      skipped.stopped = !go_on();
      if (skipped.stopped) break;
      BALLAST_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more && empty()) break;
      lag = Lag();
      continue;
    }
    LogLine line = Take();
    std::move(line.events.begin(), line.events.end(), std::back_inserter(skipped.events));
    if (skipped.lines++ == 0) skipped.from = line.offset;
    skipped.bytes += line.bytes;
    skipped.to = line.offset + line.bytes;
    lag -= line.bytes;
  }
  return skipped;
}

std::unique_ptr<LogSource> LogSource::OpenPipe(int fd, std::string name, const LogSourceOptions& options,
                                               int64_t read_before) {
  return std::make_unique<PipeSource>(fd, std::move(name), options, read_before);
}

}  // namespace ballast
