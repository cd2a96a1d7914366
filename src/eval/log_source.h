// LogSource: the lines of a growing file or a pipe, each once, through rotation, truncation and restarts.
//
// A file is followed by its name. Rotation by rename: the old file is read to its end, then its successor (of
// NAME.3: NAME.2, of NAME.1: NAME; log_family.h). Truncation: what was not read yet is looked for in a copy
// beside it, as `copytruncate` of logrotate leaves one; then it is read from its beginning. A place to go on
// from is {device, inode, offset, fingerprint of the bytes before it}: a file that has another inode but
// holds those bytes there is the same file. Thread safety: one thread. Invariants: 1. a line is given once,
// in order. 2. a last line without its end is given only when the file can no longer grow (rotated,
// truncated, end of a pipe).
// 3. lines that may have been lost are reported as an event. 4. never waits.
#ifndef BALLAST_EVAL_LOG_SOURCE_H_
#define BALLAST_EVAL_LOG_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "eval/line_assembler.h"

namespace ballast {

struct LogSourceOptions {
  size_t keep = 1024;     // bytes kept of a line
  bool from_end = false;  // without a place to resume: only what comes from now on
  bool wait = false;      // a file that is not there yet may come
  bool once = false;      // the end of the file is the end
  bool last_line =
      true;  // with `once`: a last line without its end is given; else it is left for the next run
  int64_t grace_ms = 1000;  // how long a rotated file may still get lines after its end was reached
};

class LogSource {
 public:
  virtual ~LogSource() = default;
  // kInput: no such file (and not `wait`), a folder, unreadable.
  static Result<std::unique_ptr<LogSource>> OpenFile(const std::string& path, const LogSourceOptions& options,
                                                     const std::optional<LogPlace>& resume);
  // A descriptor that cannot be read twice; it is not closed. `read_before`: bytes that an earlier run has
  // read.
  static std::unique_ptr<LogSource> OpenPipe(int fd, std::string name, const LogSourceOptions& options,
                                             int64_t read_before);

  // Reads some of what there is. True when something came. kInput when reading fails.
  virtual Result<bool> Fill() = 0;
  bool empty() const { return assembler_.lines().empty(); }
  const LogLine& front() const { return assembler_.lines().front(); }
  LogLine Take();
  size_t queued_lines() const { return assembler_.lines().size(); }
  // Bytes read that are in no line taken: of waiting lines and of the unfinished one.
  int64_t Held() const;
  // Nothing more will come: every line was given.
  bool ended() const { return ended_; }
  // Bytes that are there but not in a line that was taken.
  virtual int64_t Lag() const = 0;
  // Where the next line to be taken begins.
  const LogPlace& place() const { return place_; }
  // To wait for input on; -1: ask again later.
  virtual int descriptor() const { return -1; }
  // For shedding: skips the oldest lines, whole, until at most `most` bytes are behind and at most
  // `most_lines` of them are in memory, there is nothing to read, or go_on() says no, which is asked before
  // every read: a line may be endless. Their number.
  struct Skipped {
    int64_t lines = 0, bytes = 0, from = 0, to = 0;
    std::vector<LogEvent> events;  // that lay between them
    bool stopped = false;          // by go_on()
  };
  Result<Skipped> SkipTo(int64_t most, size_t most_lines, FunctionRef<bool()> go_on);

 protected:
  explicit LogSource(size_t keep) : assembler_(keep) {}
  // To the assembler; the first line that comes of it gets the events.
  void Push(std::string_view bytes);
  void Finish();
  LineAssembler assembler_;
  std::vector<LogEvent> events_;  // for the next line
  LogPlace place_;
  bool ended_ = false;
};

}  // namespace ballast

#endif  // BALLAST_EVAL_LOG_SOURCE_H_
