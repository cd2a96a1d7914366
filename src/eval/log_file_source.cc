// The lines of a file that is followed by its name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "eval/log_family.h"
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
  int64_t modified = 0;  // nanoseconds
};

int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

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
  file.modified = Nanoseconds(info.st_mtim);
  return file;
}

// The beginning of a file: what is appended does not change it, and a new file that got the inode of one that
// was deleted does not have it.
std::optional<Fingerprint> HeadOf(const std::string& path, int64_t size) {
  const Opened file = OpenRegular(path);
  if (file.fd < 0) return std::nullopt;
  const int64_t n = std::min({size, file.size, Fingerprint::kBytes});
  const std::optional<std::string> bytes = BytesBefore(file.fd, n);
  close(file.fd);
  if (!bytes) return std::nullopt;
  return FingerprintOf(*bytes);
}

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
    struct stat info {};
    if (fstat(file_.fd, &info) != 0) info.st_size = 0;
    assembler_.SetModified(Nanoseconds(info.st_mtim));
    if (info.st_size < offset + n || !Holds(file_.fd, assembler_.place())) return Truncated();
    if (n == 0) return AtEnd();
    end_since_.reset();
    Push({buffer_.data(), static_cast<size_t>(n)});
    return true;
  }

  int64_t Lag() const override {
    if (file_.fd < 0) return Held();
    int64_t lag = Held() + std::max<int64_t>(0, Size() - assembler_.offset());
    for (const LogMember& later : Later()) lag += later.size;
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
      events_.push_back({"gap",
                         "the file that was read before is not there any more, or was emptied: what it got "
                         "since is lost, and so are files that were rotated away after it"});
    }
    if (resume && resume->modified > 0 && StartBehind(*resume)) {
      if (file.fd >= 0) close(file.fd);
      return Status();
    }
    if (file.fd >= 0) Use(file, options_.from_end && !resume ? EndOf(file) : 0);
    return Status();
  }
  // At the beginning of the oldest generation that was written after the lost place was.
  bool StartBehind(const LogPlace& place) {
    for (const LogMember& member : family_.Members()) {
      if (!IsGeneration(member) || member.modified <= place.modified) continue;
      const Opened file = OpenRegular(member.path);
      if (file.fd < 0) continue;
      Use(file, 0);
      events_.push_back({"resumed", "in " + member.path});
      return true;
    }
    return false;
  }
  static bool IsGeneration(const LogMember& member) {
    return member.kind == LogMember::Kind::kNumber || member.kind == LogMember::Kind::kTime;
  }
  int64_t Size() const {
    struct stat info {};
    return fstat(file_.fd, &info) == 0 ? info.st_size : 0;
  }
  static bool Same(const LogMember& member, uint64_t device, uint64_t inode) {
    return member.device == device && member.inode == inode;
  }
  // The files that come after the open one; empty while it is the one that is written. `vanished`: it is not
  // in the folder any more, and what came after it is guessed: all that was not there when it was opened.
  std::vector<LogMember> Later(bool* vanished = nullptr) const {
    struct stat info {};
    if (stat(path_.c_str(), &info) == 0 && info.st_dev == file_.device && info.st_ino == file_.inode)
      return {};
    std::vector<LogMember> members = family_.Members();
    for (size_t i = 0; i < members.size(); ++i) {
      if (Same(members[i], file_.device, file_.inode)) return LogFamily::After(members, i);
    }
    std::erase_if(members, [this](const LogMember& m) {
      return m.kind != LogMember::Kind::kLog && (!IsGeneration(m) || WasThere(m));
    });
    if (vanished != nullptr) *vanished = true;
    return members;
  }
  bool WasThere(const LogMember& member) const {
    return std::any_of(older_.begin(), older_.end(), [&](const Older& older) {
      if (!Same(member, older.device, older.inode) || member.size < older.head.bytes) return false;
      const std::optional<Fingerprint> head = HeadOf(member.path, older.head.bytes);
      return head && *head == older.head;
    });
  }
  // Notes what was written before the open file, so that it is not read once that has gone.
  void RememberOlder() {
    const std::vector<LogMember> members = family_.Members();
    size_t self = 0;
    while (self < members.size() && !Same(members[self], file_.device, file_.inode)) ++self;
    if (self == members.size()) return;
    older_.clear();
    const std::vector<LogMember> later = LogFamily::After(members, self);
    for (const LogMember& member : members) {
      const bool newer = std::any_of(later.begin(), later.end(), [&](const LogMember& l) {
        return Same(l, member.device, member.inode);
      });
      if (newer || Same(member, file_.device, file_.inode) || member.size == 0) continue;
      const std::optional<Fingerprint> head = HeadOf(member.path, member.size);
      if (head) older_.push_back({member.device, member.inode, *head});
    }
  }
  // Behind the last whole line; 0 when there is none.
  static int64_t EndOf(const Opened& file) {
    std::vector<char> piece(kReadBytes);
    for (int64_t end = file.size; end > 0;) {
      const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(piece.size()));
      const ssize_t n = pread(file.fd, piece.data(), static_cast<size_t>(end - begin), begin);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return file.size;
      const size_t newline = std::string_view(piece.data(), static_cast<size_t>(n)).rfind('\n');
      if (newline != std::string_view::npos) return begin + static_cast<int64_t>(newline) + 1;
      end = begin;
    }
    return 0;
  }
  void Switch(const Opened& file) {
    if (file_.fd >= 0) close(file_.fd);
    file_ = file;
    assembler_.SetFile(file.device, file.inode);
    assembler_.SetModified(file.modified);
    end_since_.reset();
    RememberOlder();
  }
  void Use(const Opened& file, int64_t offset) {
    Switch(file);
    assembler_.StartAt(offset, BytesBefore(file.fd, offset).value_or(""));
  }

  bool Resume(const LogPlace& place) {
    std::vector<LogMember> members = family_.Members();
    // First the file that it was, by its inode; then one that holds the same bytes.
    std::stable_partition(members.begin(), members.end(),
                          [&](const LogMember& m) { return Same(m, place.device, place.inode); });
    for (const LogMember& member : members) {
      const Opened file = OpenRegular(member.path);
      if (file.fd < 0) continue;
      const bool same_file = file.device == place.device && file.inode == place.inode;
      if ((place.offset > 0 || same_file) && Holds(file.fd, place)) {
        Use(file, place.offset);
        if (member.kind != LogMember::Kind::kLog) events_.push_back({"resumed", "in " + member.path});
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
    bool vanished = false;
    const std::vector<LogMember> later = Later(&vanished);
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
    const LogMember& next = later.front();
    const Opened file = OpenRegular(next.path);
    if (file.fd < 0) return false;  // it has just been moved again: look once more
    // Names move from file to file: only what was still next when it was open is.
    const std::vector<LogMember> again = Later();
    if (again.empty() || !Same(again.front(), file.device, file.inode)) {
      close(file.fd);
      return false;
    }
    Finish();
    if (vanished && (older_.size() > 0 || later.size() > 1)) {
      events_.push_back({"gap",
                         "the file that was read has gone from its folder; files that were rotated after "
                         "it may have gone too"});
    }
    Use(file, 0);
    events_.push_back({"rotated", "to " + next.path});
    return true;
  }

  // The open file no longer holds what was read from it.
  Result<bool> Truncated() {
    const LogPlace place = assembler_.place();
    for (const LogMember& member : family_.Members()) {
      const Opened copy = OpenRegular(member.path);
      if (copy.fd < 0) continue;
      const bool other = copy.device != file_.device || copy.inode != file_.inode;
      if (other && copy.size >= place.offset && Holds(copy.fd, place)) {
        events_.push_back({"truncated", "the rest is read from " + member.path});
        Switch(copy);
        return true;
      }
      close(copy.fd);
    }
    Finish();
    assembler_.StartAt(0, "");
    RememberOlder();  // copies that were made of it, too
    events_.push_back({"truncated", "what was not read before is lost, if there was anything"});
    return true;
  }

  std::string path_;
  LogSourceOptions options_;
  LogFamily family_;
  std::vector<char> buffer_;
  Opened file_;
  struct Older {
    uint64_t device, inode;
    Fingerprint head;
  };
  std::vector<Older> older_;                    // generations that were there when file_ was opened
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
