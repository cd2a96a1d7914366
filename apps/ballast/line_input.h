// Lines from stdin: edited with libedit on a terminal (history, a trailing backslash goes on), plain
// otherwise.
#ifndef BALLAST_APPS_LINE_INPUT_H_
#define BALLAST_APPS_LINE_INPUT_H_

#include <memory>
#include <string>

namespace ballast::app {

class LineInput {
 public:
  enum class Got { kLine, kEnd, kInterrupted };
  // Edited when stdin is a terminal and stdout or stderr is one that can be drawn on.
  static std::unique_ptr<LineInput> Create();
  virtual ~LineInput() = default;
  // The next line without its newline; any bytes. Ctrl-C gives kInterrupted and leaves the flag set.
  virtual Got Next(std::string* line) = 0;
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_LINE_INPUT_H_
