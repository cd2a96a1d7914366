// LineAssembler: whole lines out of bytes that arrive in pieces.
//
// A line ends with '\n'; '\r' before it does not count as text. Of a line longer than `keep` only its first
// `keep` bytes are kept, whatever its length. Thread safety: one thread. Invariants: 1. every byte belongs to
// exactly one line: the lines' [offset, offset + bytes) follow each other without gaps. 2. memory: `keep`
// bytes of the unfinished line and the lines not yet taken.
#ifndef BALLAST_EVAL_LINE_ASSEMBLER_H_
#define BALLAST_EVAL_LINE_ASSEMBLER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// The last bytes before a place in a file, as proof that it is still the same file.
struct Fingerprint {
  static constexpr int64_t kBytes = 256;
  int64_t bytes = 0;  // min(kBytes, offset)
  uint64_t hash = 0;  // XXH3-64 of them
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
Fingerprint FingerprintOf(std::string_view bytes);  // of its last kBytes

// Where a log goes on. A file that has another inode but holds the same bytes before the offset is the same.
struct LogPlace {
  uint64_t device = 0, inode = 0;  // 0: a pipe
  int64_t offset = 0;
  Fingerprint before;
  int64_t modified = 0;  // nanoseconds: when the file was written last, as it was read; 0: unknown
};

// What happened to the input before a line.
struct LogEvent {
  std::string name;    // "rotated", "truncated", "gap", "resumed"
  std::string detail;  // for people
};

struct LogLine {
  std::string text;              // without its line end; at most `keep` bytes
  int64_t offset = 0;            // of its first byte, in its file or pipe
  int64_t bytes = 0;             // with its line end
  bool truncated = false;        // text is only its beginning
  bool partial = false;          // no line end came, and none can come any more
  LogPlace after;                // the place behind it
  std::vector<LogEvent> events;  // before it
};

class LineAssembler {
 public:
  explicit LineAssembler(size_t keep) : keep_(keep) {}

  // Starts anew at `offset`; the unfinished line is forgotten. `before`: the bytes just before it.
  void StartAt(int64_t offset, std::string_view before);
  // The next bytes come from this file.
  void SetFile(uint64_t device, uint64_t inode) {
    device_ = device;
    inode_ = inode;
  }
  // The next bytes were there when the file had this time.
  void SetModified(int64_t nanoseconds) { modified_ = nanoseconds; }
  void Push(std::string_view bytes);
  // The unfinished line is all there will be of it.
  void Finish();

  const std::deque<LogLine>& lines() const { return lines_; }
  LogLine& line(size_t i) { return lines_[i]; }
  LogLine Pop();                              // REQUIRES: lines() is not empty
  int64_t queued() const { return queued_; }  // bytes of lines()
  int64_t offset() const { return offset_; }  // of the next byte
  int64_t unfinished() const { return length_; }
  LogPlace place() const { return {device_, inode_, offset_, FingerprintOf(tail_), modified_}; }

 private:
  void Take(std::string_view bytes);
  void Emit(int64_t end_bytes);

  size_t keep_;
  std::deque<LogLine> lines_;
  int64_t queued_ = 0;
  std::string head_;    // the first `keep` bytes of the unfinished line
  int64_t length_ = 0;  // of the unfinished line so far
  uint64_t device_ = 0, inode_ = 0;
  int64_t modified_ = 0;
  int64_t offset_ = 0;
  std::string tail_;  // the last bytes before offset_
  char last_ = 0;     // the newest byte of the unfinished line
};

}  // namespace ballast

#endif  // BALLAST_EVAL_LINE_ASSEMBLER_H_
