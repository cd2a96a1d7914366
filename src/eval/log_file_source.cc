// The lines of a file that is followed by its name.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "eval/log_source.h"

namespace ballast {
namespace {

constexpr size_t kReadBytes = 1 << 16;
using Clock = std::chrono::steady_clock;

// The bytes before `offset` that a fingerprint is of; nullopt when they are not there.
std::optional<std::string> BytesBefore(int fd, int64_t offset) {
  std::string bytes(static_cast<size_t>(std::min(offset, Fingerprint::kBytes)), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = pread(fd, bytes.data() + done, bytes.size() - done,
                            offset - static_cast<int64_t>(bytes.size()) + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    done += static_cast<size_t>(n);
  }
  return bytes;
}

bool Holds(int fd, const LogPlace& place) {
  const std::optional<std::string> bytes = BytesBefore(fd, place.offset);
  return bytes && FingerprintOf(*bytes) == place.before;
}

struct Opened {
  int fd = -1;
  uint64_t device = 0, inode = 0;
  int64_t size = 0;
};

// fd -1 with errno set when there is no readable regular file.
Opened OpenRegular(const std::string& path) {
  Opened file;
  file.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (file.fd < 0) return file;
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    const int error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    close(file.fd);
    file.fd = -1;
    errno = error;
    return file;
  }
  file.device = info.st_dev;
  file.inode = info.st_ino;
  file.size = info.st_size;
  return file;
}

// A log and what rotation has made of it, in its folder.
class Family {
 public:
  explicit Family(const std::string& path) : path_(path) {
    const size_t slash = path.rfind('/');
    folder_ = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    name_ = slash == std::string::npos ? path : path.substr(slash + 1);
  }

  // NAME, NAME.1, NAME-20261130, ...: not those that are compressed.
  std::vector<std::string> Members() const {
    std::vector<std::string> members;
    DIR* list = opendir(folder_.c_str());
    if (list == nullptr) return members;
    while (const dirent* entry = readdir(list)) {
      const std::string name = entry->d_name;
      if (name != name_ && name.rfind(name_ + ".", 0) != 0 && name.rfind(name_ + "-", 0) != 0) continue;
      const auto packed = [&](const char* ending) { return name.ends_with(ending); };
      if (packed(".gz") || packed(".xz") || packed(".bz2") || packed(".zst")) continue;
      members.push_back(Path(name));
    }
    closedir(list);
    std::sort(members.begin(), members.end());
    return members;
  }

  // The member that is this file.
  std::optional<std::string> NameOf(uint64_t device, uint64_t inode) const {
    for (const std::string& member : Members()) {
      struct stat info {};
      if (stat(member.c_str(), &info) == 0 && info.st_dev == device && info.st_ino == inode) return member;
    }
    return std::nullopt;
  }

  // What was written after `member`: of NAME.3 NAME.2, NAME.1 and NAME, as far as they are there; else NAME.
  std::vector<std::string> After(const std::string& member) const {
    std::vector<std::string> later;
    const std::string ending = member.size() > path_.size() ? member.substr(path_.size()) : "";
    int number = 0;
    if (ending.size() > 1 && ending[0] == '.') {
      const auto [end, error] = std::from_chars(ending.data() + 1, ending.data() + ending.size(), number);
      if (error != std::errc() || end != ending.data() + ending.size()) number = 0;
    }
    for (int n = number - 1; n > 0; --n) {
      const std::string name = path_ + "." + std::to_string(n);
      if (access(name.c_str(), R_OK) == 0) later.push_back(name);
    }
    later.push_back(path_);
    return later;
  }

 private:
  std::string Path(const std::string& name) const { return folder_ == "." ? name : folder_ + name; }
  std::string path_, folder_, name_;
};

class FileSource final : public LogSource {
 public:
  FileSource(std::string path, const LogSourceOptions& options)
      : LogSource(options.keep),
        path_(std::move(path)),
        options_(options),
        family_(path_),
        buffer_(kReadBytes) {}
  ~FileSource() override {
    if (file_.fd >= 0) close(file_.fd);
  }

  Status Start(const std::optional<LogPlace>& resume) {
    BALLAST_RETURN_IF_ERROR(Find(resume));
    place_ = assembler_.place();
    return Status();
  }
  Result<bool> Fill() override {
    if (ended_) return false;
    if (file_.fd < 0) {
      const Opened file = OpenRegular(path_);
      if (file.fd < 0) return AfterNothing();
      Use(file, 0);
    }
    const int64_t offset = assembler_.offset();
    const ssize_t n = pread(file_.fd, buffer_.data(), buffer_.size(), offset);
    if (n < 0) {
      if (errno == EINTR) return false;
      return Status::Expected(Code::kInput, path_, "readable lines", std::strerror(errno));
    }
    // Asked after the read: bytes that came from a file that was emptied before it are not taken.
    if (Size() < offset + n || !Holds(file_.fd, assembler_.place())) return Truncated();
    if (n == 0) return AtEnd();
    end_since_.reset();
    Push({buffer_.data(), static_cast<size_t>(n)});
    return true;
  }

  int64_t Lag() const override {
    if (file_.fd < 0) return Held();
    int64_t lag = Held() + std::max<int64_t>(0, Size() - assembler_.offset());
    for (const std::string& later : Later()) {
      struct stat info {};
      if (stat(later.c_str(), &info) == 0) lag += info.st_size;
    }
    return lag;
  }

 private:
  // Opens what is to be read first.
  Status Find(const std::optional<LogPlace>& resume) {
    Opened file = OpenRegular(path_);
    const int error = errno;
    if (file.fd < 0 && !(error == ENOENT && (options_.wait || resume))) {
      return Status::Expected(Code::kInput, path_, "a log file",
                              error == EISDIR ? "a folder" : std::strerror(error),
                              error == ENOENT ? "--wait waits until it is there" : "");
    }
    if (resume && Resume(*resume)) {
      if (file.fd >= 0) close(file.fd);
      return Status();
    }
    if (resume && resume->offset > 0) {
      events_.push_back(
          {"gap", "the file that was read before is not there any more: what it got since is lost"});
    }
    if (file.fd >= 0) Use(file, options_.from_end && !resume ? EndOf(file) : 0);
    return Status();
  }
  int64_t Size() const {
    struct stat info {};
    return fstat(file_.fd, &info) == 0 ? info.st_size : 0;
  }
  // The files that come after the open one; empty while it is the one that is written.
  std::vector<std::string> Later() const {
    struct stat info {};
    if (stat(path_.c_str(), &info) != 0) return {};
    if (info.st_dev == file_.device && info.st_ino == file_.inode) return {};
    return family_.After(family_.NameOf(file_.device, file_.inode).value_or(path_));
  }
  // Behind the last whole line.
  static int64_t EndOf(const Opened& file) {
    const std::string bytes = BytesBefore(file.fd, file.size).value_or("");
    const size_t newline = bytes.rfind('\n');
    return newline == std::string::npos ? file.size
                                        : file.size - static_cast<int64_t>(bytes.size() - newline - 1);
  }
  void Switch(const Opened& file) {
    if (file_.fd >= 0) close(file_.fd);
    file_ = file;
    assembler_.SetFile(file.device, file.inode);
    end_since_.reset();
  }
  void Use(const Opened& file, int64_t offset) {
    Switch(file);
    assembler_.StartAt(offset, BytesBefore(file.fd, offset).value_or(""));
  }

  bool Resume(const LogPlace& place) {
    std::vector<std::string> members = family_.Members();
    // First the file that it was, by its inode; then one that holds the same bytes.
    std::stable_partition(members.begin(), members.end(), [&](const std::string& member) {
      struct stat info {};
      return stat(member.c_str(), &info) == 0 && info.st_dev == place.device && info.st_ino == place.inode;
    });
    for (const std::string& member : members) {
      const Opened file = OpenRegular(member);
      if (file.fd < 0) continue;
      const bool same_file = file.device == place.device && file.inode == place.inode;
      if ((place.offset > 0 || same_file) && Holds(file.fd, place)) {
        Use(file, place.offset);
        if (member != path_) events_.push_back({"resumed", "in " + member});
        return true;
      }
      close(file.fd);
    }
    return false;
  }

  Result<bool> AfterNothing() {
    ended_ = options_.once;
    return false;
  }

  Result<bool> AtEnd() {
    const std::vector<std::string> later = Later();
    if (later.empty()) {
      end_since_.reset();
      if (!options_.once) return false;
      if (options_.last_line) Finish();
      ended_ = true;
      return options_.last_line;
    }
    const Clock::time_point now = Clock::now();
    if (!end_since_) end_since_ = now;
    if (!options_.once && now - *end_since_ < std::chrono::milliseconds(options_.grace_ms)) return false;
    const Opened next = OpenRegular(later.front());
    if (next.fd < 0) return false;  // it has just been moved again: look once more
    Finish();
    Use(next, 0);
    events_.push_back({"rotated", "to " + later.front()});
    return true;
  }

  // The open file no longer holds what was read from it.
  Result<bool> Truncated() {
    const LogPlace place = assembler_.place();
    for (const std::string& member : family_.Members()) {
      const Opened copy = OpenRegular(member);
      if (copy.fd < 0) continue;
      const bool other = copy.device != file_.device || copy.inode != file_.inode;
      if (other && copy.size >= place.offset && Holds(copy.fd, place)) {
        events_.push_back({"truncated", "the rest is read from " + member});
        Switch(copy);
        return true;
      }
      close(copy.fd);
    }
    Finish();
    assembler_.StartAt(0, "");
    events_.push_back({"truncated", "what was not read before is lost, if there was anything"});
    return true;
  }

  std::string path_;
  LogSourceOptions options_;
  Family family_;
  std::vector<char> buffer_;
  Opened file_;
  std::optional<Clock::time_point> end_since_;  // the end of a rotated file was seen first
};

}  // namespace

Result<std::unique_ptr<LogSource>> LogSource::OpenFile(const std::string& path,
                                                       const LogSourceOptions& options,
                                                       const std::optional<LogPlace>& resume) {
  auto source = std::make_unique<FileSource>(path, options);
  BALLAST_RETURN_IF_ERROR(source->Start(resume));
  return std::unique_ptr<LogSource>(std::move(source));
}

}  // namespace ballast
