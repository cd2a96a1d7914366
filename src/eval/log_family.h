// LogFamily: a log and what rotation has made of it, in the order in which they were written.
//
// Generations are files beside the log (beside the file that all links lead to) whose name is the log's, then
// '.' or '-', then a number of up to five digits (1 is the newest) or a time such as 20261130 or
// 2026-11-30-12_00 (the last one in the order of the alphabet is the newest). Others, such as NAME.old, may
// be the file that is being read, but are never taken for the one behind it; compressed ones are not looked
// at. Thread safety: one thread. Invariants: what it says is of the folder as it is at that moment; nothing
// is kept.
#ifndef BALLAST_EVAL_LOG_FAMILY_H_
#define BALLAST_EVAL_LOG_FAMILY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

struct LogMember {
  enum class Kind : uint8_t { kOther, kTime, kNumber, kLog };
  std::string path;
  Kind kind = Kind::kOther;
  int64_t number = 0;  // of a kNumber
  uint64_t device = 0, inode = 0;
  int64_t size = 0;      // bytes
  int64_t modified = 0;  // nanoseconds
};

class LogFamily {
 public:
  explicit LogFamily(std::string path) : path_(std::move(path)) {}

  // By kind; within one the older first; so the log itself last, if it is there.
  std::vector<LogMember> Members() const;

  // Of Members(): those written after the one at `index`.
  static std::vector<LogMember> After(const std::vector<LogMember>& members, size_t index);

 private:
  std::string path_;
};

}  // namespace ballast

#endif  // BALLAST_EVAL_LOG_FAMILY_H_
