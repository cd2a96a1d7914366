#include "line_input.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <string_view>

#include "app.h"
#include "terminal.h"

namespace ballast::app {
namespace {

class PlainInput : public LineInput {
 public:
  Got Next(std::string* line) override {
    while (true) {
      if (const size_t end = held_.find('\n', searched_); end != std::string::npos) {
        line->assign(held_, 0, end);
        held_.erase(0, end + 1);
        searched_ = 0;
        if (!line->empty() && line->back() == '\r') line->pop_back();
        return Got::kLine;
      }
      searched_ = held_.size();
      if (WaitReadable(STDIN_FILENO, -1) == Wait::kInterrupted) return Got::kInterrupted;
      char buffer[4096];
      const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n < 0) {
        error_ = Status::Expected(Code::kInput, "stdin", "readable input", std::strerror(errno));
        return Got::kFailed;
      }
      if (n > 0) {
        held_.append(buffer, static_cast<size_t>(n));
        continue;
      }
      if (held_.empty()) return Got::kEnd;
      line->swap(held_);  // a last line without a newline
      held_.clear();
      searched_ = 0;
      return Got::kLine;
    }
  }

 private:
  std::string held_;
  size_t searched_ = 0;
};

std::atomic<bool> resized{false};
std::atomic<bool> continued{false};
void OnResize(int) { resized = true; }
void OnContinue(int) { continued = true; }

class EditedInput : public LineInput {
 public:
  EditedInput() {
    // libedit decodes what is typed by LC_CTYPE; numbers keep the C locale.
    setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = OnResize;
    sigaction(SIGWINCH, &action, nullptr);
    action.sa_handler = OnContinue;
    sigaction(SIGCONT, &action, nullptr);
    edit_ = el_init("ballast", stdin, StdoutIsTerminal() ? stdout : stderr, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT_ESC, &EditedInput::Prompt, '\1');
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, &EditedInput::GetChar);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(edit_, EL_BIND, "^W", "ed-delete-prev-word", nullptr);
    // Home, End and Delete as terminals send them.
    for (const char* keys : {"\\e[H", "\\e[1~"}) el_set(edit_, EL_BIND, keys, "ed-move-to-beg", nullptr);
    for (const char* keys : {"\\e[F", "\\e[4~"}) el_set(edit_, EL_BIND, keys, "ed-move-to-end", nullptr);
    el_set(edit_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
  }
  ~EditedInput() override {
    history_end(history_);
    el_end(edit_);
  }

  Got Next(std::string* line) override {
    line->clear();
    more_ = false;
    while (true) {
      int length = 0;
      // libedit shows the prompt first and makes the terminal raw after: a Ctrl-D typed in between would be
      // lost.
      el_set(edit_, EL_PREP_TERM, 1);
      BracketedPaste(true);
      const char* text = el_gets(edit_, &length);
      BracketedPaste(false);
      if (Interrupted()) {
        el_reset(edit_);
        std::fputc('\n', StdoutIsTerminal() ? stdout : stderr);
        std::fflush(stdout);
        return Got::kInterrupted;
      }
      if (text == nullptr || length <= 0) return Got::kEnd;
      std::string part(text, static_cast<size_t>(length));
      if (!part.empty() && part.back() == '\n') part.pop_back();
      more_ = !part.empty() && part.back() == '\\';
      if (more_) part.back() = '\n';
      *line += part;
      if (!more_) break;
    }
    HistEvent event;
    if (!line->empty() && line->find('\n') == std::string::npos)
      history(history_, &event, H_ENTER, line->c_str());
    return Got::kLine;
  }

 private:
  static char* Prompt(EditLine* edit) {
    EditedInput* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    const bool utf8 = Utf8Locale();
    const char* mark = self->more_ ? (utf8 ? "…" : ".") : (utf8 ? "›" : ">");
    self->prompt_ =
        StyledStderr() ? std::string("\1\x1b[1;36m\1") + mark + "\1\x1b[0m\1 " : mark + std::string(" ");
    return self->prompt_.data();
  }

  // Asks the terminal to mark pasted text, so that its line ends do not send it line by line.
  static void BracketedPaste(bool on) {
    FILE* terminal = StdoutIsTerminal() ? stdout : stderr;
    std::fputs(on ? "\x1b[?2004h" : "\x1b[?2004l", terminal);
    std::fflush(terminal);
  }

  // Waits for a byte so that Ctrl-C is never swallowed, as libedit's own reader would.
  static int GetByte(EditLine* edit, unsigned char* byte) {
    while (true) {
      if (resized.exchange(false)) el_resize(edit);
      if (continued.exchange(false)) {  // after Ctrl-Z the shell has reset the terminal
        el_set(edit, EL_PREP_TERM, 0);
        el_set(edit, EL_PREP_TERM, 1);
        el_set(edit, EL_REFRESH);
      }
      const Wait wait = WaitReadable(STDIN_FILENO, 250);
      if (wait == Wait::kInterrupted) return -1;
      if (wait == Wait::kTimeout) continue;
      const ssize_t n = read(STDIN_FILENO, byte, 1);
      if (n < 0 && errno == EINTR) continue;
      return n > 0 ? 1 : static_cast<int>(n);
    }
  }

  // After ESC: takes the rest of a paste mark ("[200~" begins, "[201~" ends) if it is one, else keeps what
  // was read for later. A lone Escape key is not followed by anything so soon.
  bool TakePasteMark(EditLine* edit) {
    constexpr std::string_view kMark = "[200~";
    std::string read_ahead;
    for (const char wanted : kMark) {
      unsigned char byte = 0;
      if (WaitReadable(STDIN_FILENO, 25) != Wait::kReady || GetByte(edit, &byte) != 1) break;
      const char got = static_cast<char>(byte);
      read_ahead.push_back(got);
      if (got != wanted && !(read_ahead.size() == 4 && got == '1')) break;
    }
    const bool begins = read_ahead == kMark;
    if (begins || read_ahead == "[201~") {
      pasting_ = begins;
      return true;
    }
    ahead_ = read_ahead + ahead_;
    return false;
  }

  // A byte from what was read ahead, else from the terminal.
  int NextByte(EditLine* edit, unsigned char* byte) {
    if (ahead_.empty()) return GetByte(edit, byte);
    *byte = static_cast<unsigned char>(ahead_.front());
    ahead_.erase(0, 1);
    return 1;
  }

  // As GetByte, with paste marks taken out and pasted line ends as the continuation that \ at a line's end
  // is.
  int GetInput(EditLine* edit, unsigned char* byte) {
    while (true) {
      const bool fresh = ahead_.empty();
      const int n = NextByte(edit, byte);
      if (n != 1 || !fresh) return n;
      if (*byte == 0x1b && TakePasteMark(edit)) continue;
      if (!pasting_ || (*byte != '\r' && *byte != '\n')) return n;
      ahead_ = "\n";
      *byte = '\\';
      return n;
    }
  }

  static int GetChar(EditLine* edit, wchar_t* out) {
    EditedInput* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    unsigned char byte = 0;
    if (const int n = self->GetInput(edit, &byte); n != 1) return n;
    const int more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
    auto code = static_cast<wchar_t>(more == 0 ? byte : byte & (0x3F >> more));
    for (int i = 0; i < more; ++i) {
      if (const int n = self->NextByte(edit, &byte); n != 1) return n;
      code = code << 6 | (byte & 0x3F);
    }
    const bool bad = (more == 0 && byte >= 0x80) || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000);
    *out = bad ? 0xFFFD : code;
    return 1;
  }

  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  bool more_ = false;
  bool pasting_ = false;
  std::string ahead_;  // bytes read while looking for a paste mark
};

}  // namespace

std::unique_ptr<LineInput> LineInput::Create() {
  if (StdinIsTerminal() && (StdoutIsTerminal() || StderrIsTerminal())) return std::make_unique<EditedInput>();
  return std::make_unique<PlainInput>();
}

}  // namespace ballast::app
