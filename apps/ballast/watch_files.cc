#include "watch_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/mmap.h"
#include "eval/log_template.h"

namespace ballast::app {
namespace {

Status Unwritable(const std::string& path) {
  return Status::Expected(Code::kInput, path, "a file that can be written", std::strerror(errno));
}

// Whether all that stands behind the mark are results of one watch, of lines that came after it. A last one
// without its end was being written.
bool AllOwn(std::string_view tail, int64_t lines) {
  for (size_t begin = 0; begin < tail.size();) {
    const size_t end = tail.find('\n', begin);
    if (end == std::string_view::npos) return tail[begin] == '{';
    const nlohmann::json result = nlohmann::json::parse(tail.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (!result.is_object()) return false;
    const auto line = result.find("line");
    if (result.contains("event") && line == result.end()) continue;
    if (line == result.end() || !line->is_number_integer() || line->get<int64_t>() <= lines) return false;
    if (!result.contains("event")) lines = line->get<int64_t>();
  }
  return true;
}

}  // namespace

WatchOutput::~WatchOutput() {
  if (fd_ > STDERR_FILENO) close(fd_);
}

Status WatchOutput::Open(const std::string& path) {
  fd_ = STDOUT_FILENO;
  path_ = path.empty() ? "stdout" : path;
  if (path.empty()) return Status();
  do {
    fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0 && Interrupted()) return Status(Code::kInterrupted, path + ": interrupted");
  } while (fd_ < 0 && errno == EINTR);  // a pipe that nobody reads yet
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return Unwritable(path);
  if (!S_ISREG(info.st_mode)) return Status();  // a terminal or a pipe: like stdout
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status::Expected(Code::kInput, path, "results of this watch alone",
                            "that another process writes them", "one --out FILE for each log");
  }
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return Status();
}

int64_t WatchOutput::bytes() const {
  struct stat info {};
  return inode_ != 0 && fstat(fd_, &info) == 0 ? info.st_size : 0;
}

Status WatchOutput::GoOnAt(const Mark& mark, std::string* note) {
  if (inode_ == 0 || mark.inode == 0) return Status();
  const int64_t found = bytes();
  if (mark.device != device_ || mark.inode != inode_ || mark.bytes > found) {
    *note =
        fmt::format("{} is not the file that the last run wrote to: its end may repeat or lack lines", path_);
    return Status();
  }
  if (mark.closed || mark.bytes == found) return Status();
  BALLAST_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path_, Code::kInput));
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  const auto begin = std::min(file.bytes().size(), static_cast<size_t>(mark.bytes));
  if (!AllOwn({text + begin, file.bytes().size() - begin}, mark.lines)) {
    *note = fmt::format(
        "{} has results of others behind those of the last run: nothing is cut off, and its end "
        "may repeat lines",
        path_);
    return Status();
  }
  if (ftruncate(fd_, mark.bytes) != 0) return Unwritable(path_);
  return Status();
}

Status WatchOutput::Write(std::string_view lines) {
  const Status status = WriteAll(fd_, lines, path_);
  failed_ = failed_ || !status.ok();
  return status;
}

Status WatchOutput::Sync() {
  if (inode_ == 0 || fdatasync(fd_) == 0) return Status();
  return Status::Expected(Code::kInternal, path_, "to reach the disk", std::strerror(errno));
}

// Only its holder removes a lock, while it holds it: nobody else can take the name for theirs.
StateFile::~StateFile() {
  if (lock_ < 0) return;
  unlink(LockOf(path_).c_str());
  close(lock_);
}

Status StateFile::Lock(const std::string& path) {
  BALLAST_RETURN_IF_ERROR(CheckWritable(path));
  path_ = ResolvePath(path);
  const std::string name = LockOf(path_);
  while (true) {
    const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return Unwritable(path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return Status::Expected(Code::kInput, path, "a state of this process", "that another one uses it");
    }
    // The holder before may have removed the file between the two calls: then this is the lock of nothing.
    struct stat held {};
    struct stat named {};
    if (fstat(fd, &held) == 0 && stat(name.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
        held.st_ino == named.st_ino) {
      lock_ = fd;
      return Status();
    }
    close(fd);
  }
}

Result<std::optional<std::string>> StateFile::Read() const {
  if (access(path_.c_str(), F_OK) != 0 && errno == ENOENT) return std::optional<std::string>();
  Result<MappedFile> file = MappedFile::Open(path_, Code::kInput);
  if (!file.ok()) {
    return Status(
        Code::kInput, file.status().message(),
        "a state that is lost cannot be made up: remove the file to score the log from its beginning");
  }
  const std::span<const uint8_t> bytes = file->bytes();
  return std::optional<std::string>(std::in_place, reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status StateFile::Replace(std::string_view image) const {
  const std::string temporary = NextOf(path_);  // one name: a process that is killed leaves no second one
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Unwritable(path_);
  Status status = WriteAll(fd, image, path_);
  if (status.ok() && fsync(fd) != 0) status = Unwritable(path_);
  if (close(fd) != 0 && status.ok()) status = Unwritable(path_);
  if (status.ok() && rename(temporary.c_str(), path_.c_str()) != 0) status = Unwritable(path_);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

void NormalMarks::Refresh() {
  if (path_.empty()) return;
  struct stat info {};
  const std::string version =
      stat(path_.c_str(), &info) == 0
          ? fmt::format("{} {} {}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec)
          : "";
  if (version == version_) return;
  version_ = version;
  hashes_.clear();
  Result<std::string> text = version.empty() ? std::string() : ReadAll(path_);
  if (!text.ok()) return Warn(text.status().message());
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    std::string line = text->substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const nlohmann::json result =
        line.starts_with('{') ? nlohmann::json::parse(line, nullptr, false) : nullptr;
    if (result.is_object() && result.contains("text") && result["text"].is_string()) line = result["text"];
    if (!line.empty()) hashes_.insert(TemplateHash(line));
    begin = end + 1;
  }
}

Status WatchFiles::Open(const WatchPaths& paths) {
  const NamedFile log{"the log", paths.log};
  const NamedFile out{paths.out.empty() ? "stdout" : "--out", paths.out.empty() ? "/dev/stdout" : paths.out};
  std::vector<NamedFile> written = {{"--metrics", paths.metrics}, {"--state", paths.state}};
  if (!paths.state.empty()) {
    const std::string target = ResolvePath(paths.state);
    written.push_back({"the lock of --state", StateFile::LockOf(target)});
    written.push_back({"the next --state", StateFile::NextOf(target)});
  }
  BALLAST_RETURN_IF_ERROR(CheckApart(written, {log, out, {"--normal", paths.normal}}));
  BALLAST_RETURN_IF_ERROR(CheckApart({out}, {log}));
  if (!paths.metrics.empty()) BALLAST_RETURN_IF_ERROR(CheckWritable(paths.metrics));
  if (!paths.state.empty()) {
    BALLAST_RETURN_IF_ERROR(state.Lock(paths.state));
    BALLAST_ASSIGN_OR_RETURN(image, state.Read());
  }
  return output.Open(paths.out);
}

}  // namespace ballast::app
