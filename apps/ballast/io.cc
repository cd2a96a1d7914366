// Signals, stdin, stdout and files.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "app.h"
#include "terminal.h"
#include "text/utf8.h"

namespace ballast::app {
namespace {

std::atomic<bool> interrupted{false};
int wake_pipe[2] = {-1, -1};  // written by the handler, so that a poll that has not begun yet still ends

termios terminal_before{};  // stdin's settings at the start
bool terminal_saved = false;

// Async-signal-safe. Not from the background, where the settings belong to somebody else.
void RestoreTerminal() {
  if (terminal_saved && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
  }
}

void OnInterrupt(int) {
  const int saved = errno;
  if (interrupted.exchange(true)) {  // asked twice and nobody has listened
    RestoreTerminal();
    _exit(130);
  }
  if (wake_pipe[1] >= 0) {
    const ssize_t ignored = write(wake_pipe[1], "x", 1);
    (void)ignored;
  }
  errno = saved;
}

void OnTermination(int number) {
  RestoreTerminal();
  signal(number, SIG_DFL);
  raise(number);  // delivered when this handler returns
}

// A mapped file that has shrunk: its missing pages cannot be read.
void OnBusError(int number, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  constexpr char kLine[] =
      "ballast: model file: expected its bytes, found that it was cut short while in use\n";
  const ssize_t ignored = write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  (void)ignored;
  RestoreTerminal();
  _exit(3);
}

// SIGTERM and SIGHUP would leave the terminal as an interactive chat has set it. One that is ignored, as
// under nohup, stays ignored.
void RestoreTerminalOnTermination() {
  terminal_saved = tcgetattr(STDIN_FILENO, &terminal_before) == 0;
  if (!terminal_saved) return;
  for (const int number : {SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = OnTermination;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

// A descriptor among 0, 1, 2 that is closed would be taken by the next file opened: our text would go there.
// Each gets one that refuses its use, so that the error is still seen.
void HoldStandardDescriptors() {
  const int flags[] = {O_WRONLY, O_RDONLY, O_RDWR};
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    const int opened = open("/dev/null", flags[fd]);
    if (opened >= 0 && opened != fd) {
      dup2(opened, fd);
      close(opened);
    }
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // Closes now; false when the kernel reports a late error.
  bool Close() {
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0;
  }

 private:
  int fd_;
};

}  // namespace

Status WriteAll(int fd, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (errno == EINTR) {
      if (Interrupted()) return Status(Code::kInterrupted, what + ": interrupted");
      continue;
    }
    if (errno == EAGAIN) {
      pollfd wait{fd, POLLOUT, 0};
      poll(&wait, 1, 1000);
      if (Interrupted()) return Status(Code::kInterrupted, what + ": interrupted");
      continue;
    }
    if (errno == EBADF) return Status::Expected(Code::kInternal, what, "a reader", "none (it was closed)");
    if (errno == EPIPE) return Status::Expected(Code::kInternal, what, "a reader", "that it has gone away");
    if (errno == ENOSPC || errno == EDQUOT) {
      return Status::Expected(Code::kInternal, what, "room for the output", "a full disk");
    }
    return Status::Expected(Code::kInternal, what, "to write", std::strerror(errno));
  }
  return Status();
}

void InstallSignalHandlers() {
  HoldStandardDescriptors();
  if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe[0] = wake_pipe[1] = -1;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // no SA_RESTART: blocking calls end with EINTR
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);  // a write beyond the file size limit fails instead
  action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
  RestoreTerminalOnTermination();
}

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }

void ClearInterrupt() {
  char drain[64];
  while (wake_pipe[0] >= 0 && read(wake_pipe[0], drain, sizeof(drain)) > 0) {
  }
  interrupted.store(false);
}

Wait WaitReadable(int fd, int timeout_ms) {
  while (true) {
    if (Interrupted()) return Wait::kInterrupted;
    pollfd fds[2] = {{fd, POLLIN, 0}, {wake_pipe[0], POLLIN, 0}};
    const int n = poll(fds, 2, timeout_ms);
    if (Interrupted()) return Wait::kInterrupted;
    if (n == 0) return Wait::kTimeout;
    if (n > 0) return Wait::kReady;
    if (errno != EINTR) return Wait::kReady;  // the read will tell
  }
}

Status Print(std::string_view text) { return WriteAll(STDOUT_FILENO, text, "stdout"); }

Status PrintJson(const nlohmann::json& document) {
  return Print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::string ValidUtf8(std::string_view text) {
  Utf8Stream stream;
  std::string valid = stream.Push(text);
  return valid + stream.Finish();
}

Result<int> OpenToRead(const std::string& path) {
  if (path.empty()) return Status::Expected(Code::kInput, "file", "a path", "\"\"");
  while (true) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) return fd;
    if (errno != EINTR) return Status::Expected(Code::kInput, path, "a readable file", std::strerror(errno));
    if (Interrupted()) return Status(Code::kInterrupted, path + ": interrupted");
  }
}

Result<std::string> ReadAll(const std::string& path, size_t most) {
  if (path == "-") return ReadDescriptor(STDIN_FILENO, "stdin", most);
  BALLAST_ASSIGN_OR_RETURN(const int fd, OpenToRead(path));
  const Descriptor file(fd);
  return ReadDescriptor(file.get(), path, most);
}

Result<std::string> ReadDescriptor(int fd, const std::string& name, size_t most) {
  std::string bytes;
  std::vector<char> buffer(1 << 16);
  while (true) {
    if (WaitReadable(fd, -1) == Wait::kInterrupted) return Status(Code::kInterrupted, "interrupted");
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0) return bytes;
    if (n > 0) bytes.append(buffer.data(), static_cast<size_t>(n));
    if (bytes.size() > most) {
      const std::string limit = most == kMostInput ? "1 GiB" : fmt::format("{} bytes", most);
      return Status::Expected(Code::kInput, name, "at most " + limit, "more");
    }
    if (n < 0 && errno != EINTR) {
      return Status::Expected(Code::kInput, name, "a readable file", std::strerror(errno));
    }
  }
}

namespace {

Status WriteFailure(const std::string& path) {
  if (errno == ENOSPC || errno == EDQUOT) {
    return Status::Expected(Code::kInternal, path, "room for the output", "a full disk");
  }
  return Status::Expected(Code::kInput, path, "a file that can be written", std::strerror(errno));
}

// Devices and pipes cannot be replaced by a rename.
Status WriteInPlace(const std::string& path, std::string_view bytes) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return WriteFailure(path);
  BALLAST_RETURN_IF_ERROR(WriteAll(file.get(), bytes, path));
  return file.Close() ? Status() : WriteFailure(path);
}

Status FillTemporary(int fd, const std::string& path, std::string_view bytes) {
  Descriptor file(fd);
  const mode_t mask = umask(0);
  umask(mask);
  struct stat old {};
  fchmod(fd, stat(path.c_str(), &old) == 0 ? old.st_mode & 0777 : 0666 & ~mask);
  BALLAST_RETURN_IF_ERROR(WriteAll(fd, bytes, path));
  if (fsync(fd) != 0 || !file.Close()) return WriteFailure(path);
  return Status();
}

}  // namespace

Status WriteFileAtomically(const std::string& path, std::string_view bytes, std::string temporary) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return WriteInPlace(path, bytes);
  const std::string target = ResolvePath(path);  // a link stays a link
  int fd = -1;
  if (temporary.empty()) {
    temporary = target + ".XXXXXX";
    fd = mkostemp(temporary.data(), O_CLOEXEC);
  } else {
    fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  }
  if (fd < 0) return WriteFailure(path);
  Status status = FillTemporary(fd, target, bytes);
  if (status.ok() && rename(temporary.c_str(), target.c_str()) != 0) status = WriteFailure(path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Status MakeFolder(std::string_view flag, const std::string& path) {
  struct stat info {};
  const std::string what = fmt::format("{} {}", flag, path);
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    return Status::Expected(Code::kInput, what, "a folder", std::strerror(errno));
  }
  if (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return Status::Expected(Code::kInput, what, "a folder", "a file");
  }
  if (access(path.c_str(), W_OK | X_OK) == 0) return Status();
  return Status::Expected(Code::kInput, what, "a folder to write in", std::strerror(errno));
}

Status CheckWritable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return Status::Expected(Code::kInput, path, "a file", "a folder");
    if (!S_ISREG(info.st_mode)) return access(path.c_str(), W_OK) == 0 ? Status() : WriteFailure(path);
  }
  // A file is replaced as a whole, so it is its folder that must allow it.
  const std::string target = ResolvePath(path);
  const size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "./" : target.substr(0, slash + 1);
  return access(folder.c_str(), W_OK | X_OK) == 0 ? Status() : WriteFailure(path);
}

int ExitCode(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInternal:
      return 1;
    case Code::kUsage:
      return 2;
    case Code::kModel:
      return 3;
    case Code::kInput:
      return 4;
    case Code::kGate:
      return 5;
    case Code::kInterrupted:
      return 130;
  }
  return 1;
}

namespace {

// One line whatever a file name or a prompt put into it.
std::string OneLine(std::string_view text) {
  std::string line = ValidUtf8(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

void Line(std::string text) {
  text += "\n";
  const Status ignored = WriteAll(STDERR_FILENO, text, "stderr");
  (void)ignored;
}

}  // namespace

int Fail(const Status& status) {
  if (status.code() != Code::kInterrupted) {
    Line(Paint(Ink::kBold, "ballast:", StyledStderr()) + " " + OneLine(status.message()));
    if (!status.hint().empty()) Line("hint: " + OneLine(status.hint()));
  }
  return ExitCode(status);
}

void Warn(std::string_view text) {
  Line(Paint(Ink::kWarn, "ballast: warning:", StyledStderr()) + " " + OneLine(text));
}

void Note(std::string_view text) { Line(Paint(Ink::kDim, text, StyledStderr())); }

}  // namespace ballast::app
