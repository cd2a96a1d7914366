// Lines from stdin: edited with libedit on a terminal (history, a trailing backslash goes on), plain
// otherwise.
#ifndef BALLAST_APPS_LINE_INPUT_H_
#define BALLAST_APPS_LINE_INPUT_H_

#include <memory>
#include <string>

#include "base/status.h"

namespace ballast::app {

class LineInput {
 public:
  enum class Got { kLine, kEnd, kInterrupted, kFailed };
  // Edited when stdin is a terminal and stdout or stderr is one that can be drawn on.
  static std::unique_ptr<LineInput> Create();
  virtual ~LineInput() = default;
  // The next line without its newline; any bytes. Ctrl-C gives kInterrupted and leaves the flag set; kFailed
  // leaves the reason in error().
  virtual Got Next(std::string* line) = 0;
  const Status& error() const { return error_; }

 protected:
  Status error_;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_LINE_INPUT_H_
