#include "watch_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "eval/log_template.h"

namespace ballast::app {
namespace {

Status Unwritable(const std::string& path) {
  return Status::Expected(Code::kInput, path, "a file that can be written", std::strerror(errno));
}

}  // namespace

WatchOutput::~WatchOutput() {
  if (fd_ > STDERR_FILENO) close(fd_);
}

Status WatchOutput::Open(const std::string& path) {
  fd_ = STDOUT_FILENO;
  path_ = path.empty() ? "stdout" : path;
  if (path.empty()) return Status();
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return Unwritable(path);
  if (!S_ISREG(info.st_mode)) return Status();  // a terminal or a pipe: like stdout
  device_ = info.st_dev;
  inode_ = info.st_ino;
  bytes_ = info.st_size;
  return Status();
}

Status WatchOutput::GoOnAt(uint64_t device, uint64_t inode, int64_t bytes, std::string* note) {
  if (inode_ == 0 || inode == 0) return Status();
  if (device != device_ || inode != inode_ || bytes > bytes_) {
    *note =
        fmt::format("{} is not the file that the last run wrote to: its end may repeat or lack lines", path_);
    return Status();
  }
  if (ftruncate(fd_, bytes) != 0) return Unwritable(path_);
  bytes_ = bytes;
  return Status();
}

Status WatchOutput::Write(std::string_view lines) {
  const Status status = WriteAll(fd_, lines, path_);
  failed_ = failed_ || !status.ok();
  BALLAST_RETURN_IF_ERROR(status);
  bytes_ += static_cast<int64_t>(lines.size());
  return Status();
}

Status WatchOutput::Sync() {
  if (inode_ == 0 || fdatasync(fd_) == 0) return Status();
  return Status::Expected(Code::kInternal, path_, "to reach the disk", std::strerror(errno));
}

StateFile::~StateFile() {
  if (lock_ >= 0) close(lock_);
}

Status StateFile::Lock(const std::string& path) {
  path_ = path;
  const std::string name = path + ".lock";
  lock_ = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return Unwritable(path);
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return Status();
  return Status::Expected(Code::kInput, path, "a state of this process", "that another one uses it");
}

Result<std::string> StateFile::Read() const {
  if (access(path_.c_str(), F_OK) != 0 && errno == ENOENT) return std::string();
  return ReadAll(path_);
}

Status StateFile::Replace(std::string_view image) const {
  const std::string temporary = path_ + ".tmp";  // one name: a process that is killed leaves no second one
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

}  // namespace ballast::app
