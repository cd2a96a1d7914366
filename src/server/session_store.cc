#include "server/session_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "server/worker_thread.h"

namespace ballast::server {
namespace {

constexpr size_t kPage = 4096;  // runs of zeros at least so long are holes
constexpr std::string_view kEnding = ".session";
constexpr std::string_view kTemporary = ".tmp";
constexpr size_t kNameDigits = 32;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

Status Failed(const std::string& what, const std::string& name, int error = errno) {
  return Status(Code::kInternal, "session file " + name + ": " + what + ": " + std::strerror(error));
}

// "<32 hex digits>.session", as SnapshotFileName makes them.
bool IsOurs(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return name.size() == kNameDigits + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of(kDigits) == kNameDigits;
}
// What a save that never ended has left.
bool IsOurTemporary(std::string_view name) {
  return name.ends_with(kTemporary) && IsOurs(name.substr(0, name.size() - kTemporary.size()));
}

// Renames `name` to the first of name.bad, name.bad.1, ... that is not there, and returns that: what was kept
// before is kept.
std::string KeepAside(int dir, const std::string& name) {
  std::string aside = name + ".bad";
  for (int i = 1; faccessat(dir, aside.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0; ++i) {
    aside = name + ".bad." + std::to_string(i);
  }
  renameat(dir, name.c_str(), dir, aside.c_str());
  return aside;
}

// What a save that never ended has left, and whatever else is in its way.
void RemoveTemporary(int dir, const std::string& name) {
  if (unlinkat(dir, name.c_str(), 0) != 0 && errno != ENOENT) KeepAside(dir, name);
}

// Regular files only; a FIFO would be waited for.
Result<Descriptor> OpenRegular(int dir, const std::string& name, struct stat* info) {
  Descriptor file(openat(dir, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.ok()) {
    if (errno == ENOENT) return Status(Code::kInput, "session file " + name + ": there is none");
    return Failed("opening", name);
  }
  if (fstat(file.get(), info) != 0) return Failed("looking at", name);
  if (S_ISREG(info->st_mode)) return file;
  return Status(Code::kInput, "session file " + name + ": expected a regular file, found another kind");
}

// What the header of an open file says.
Result<SnapshotLabel> ReadLabel(const Descriptor& file, const std::string& name, const struct stat& info) {
  std::vector<uint8_t> header(kSnapshotHeaderBytes);
  if (pread(file.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size())) {
    return Status(Code::kInput, "session file " + name + ": too short");
  }
  return ReadSnapshotHeader(header, static_cast<uint64_t>(info.st_size));
}

bool AllZero(std::span<const uint8_t> block) {
  return block.empty() ||
         (block[0] == 0 && std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0);
}

std::span<const uint8_t> Page(std::span<const uint8_t> bytes, size_t at) {
  return bytes.subspan(at, std::min(kPage, bytes.size() - at));
}

bool WriteAt(int fd, std::span<const uint8_t> bytes, size_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    offset += static_cast<size_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

Status WriteContent(int fd, const std::string& name, std::span<const uint8_t> bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes.size())) != 0) return Failed("setting its length", name);
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    while (at < bytes.size() && !AllZero(Page(bytes, at))) at += kPage;
    const size_t end = std::min(at, bytes.size());
    if (end > begin && !WriteAt(fd, bytes.subspan(begin, end - begin), begin)) return Failed("writing", name);
    if (end == begin) at += kPage;
  }
  if (fsync(fd) != 0) return Failed("syncing", name);
  return Status();
}

Result<Arena> ReadWhole(int dir, const std::string& name) {
  struct stat info {};
  BALLAST_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(dir, name, &info));
  // The header decides how much memory this may take.
  BALLAST_RETURN_IF_ERROR(ReadLabel(file, name, info).status());
  BALLAST_ASSIGN_OR_RETURN(Arena out, Arena::Allocate(static_cast<size_t>(info.st_size)));
  for (size_t at = 0; at < out.size();) {
    const ssize_t n = pread(file.get(), out.data() + at, std::min(out.size() - at, size_t{16} << 20),
                            static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("reading", name);
    if (n == 0) return Status(Code::kInput, "session file " + name + ": it shrank while it was read");
    at += static_cast<size_t>(n);
  }
  return out;
}

// The folder, made if need be, with its lock.
Result<Descriptor> OpenFolder(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return Status::Expected(Code::kUsage, "--sessions-dir", "a folder of this server's own",
                            path + ": " + why);
  };
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return refuse(std::strerror(errno));
  Descriptor dir(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir.ok()) return refuse(std::strerror(errno));
  if (flock(dir.get(), LOCK_EX | LOCK_NB) != 0) {
    return refuse(errno == EWOULDBLOCK ? "another process uses it" : std::strerror(errno));
  }
  if (faccessat(dir.get(), ".", W_OK | X_OK, 0) != 0) return refuse(std::strerror(errno));
  return dir;
}

class FolderStore : public SessionStore {
 public:
  FolderStore(std::string path, Descriptor dir, int64_t quota)
      : path_(std::move(path)), dir_(std::move(dir)), quota_(quota) {}

  Status Index(std::vector<SnapshotLabel>* found, std::vector<std::string>* notices) {
    const int copy = openat(dir_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* list = copy < 0 ? nullptr : fdopendir(copy);
    if (list == nullptr) {
      if (copy >= 0) close(copy);
      return Status(Code::kUsage, std::string("--sessions-dir: cannot be listed: ") + std::strerror(errno));
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(list)) names.emplace_back(entry->d_name);
    closedir(list);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (IsOurTemporary(name)) {
        RemoveTemporary(dir_.get(), name);
      } else if (IsOurs(name)) {
        IndexFile(name, found, notices);
      }
    }
    return Status();
  }

  void Save(const SnapshotLabel& label, Arena image,
            std::function<void(const Status&, const Deleted&)> done) override {
    auto shared = std::make_shared<Arena>(std::move(image));
    Post([this, label, shared, done = std::move(done)] {
      const std::string name = SnapshotFileName(label.tenant, label.id);
      Deleted deleted;
      ReopenIfLost();
      Status status = MakeRoom(name, *shared, &deleted);
      if (status.ok()) status = WriteFileDurably(dir_.get(), name, {shared->data(), shared->size()});
      if (status.ok()) Remember(name, label);
      done(status, deleted);
    });
  }

  void Load(const std::string& tenant, const std::string& id,
            std::function<void(Result<Arena>)> done) override {
    Post([this, name = SnapshotFileName(tenant, id), done = std::move(done)] {
      done(ReadWhole(dir_.get(), name));
    });
  }

  void Delete(const std::string& tenant, const std::string& id) override {
    Post([this, name = SnapshotFileName(tenant, id)] { Remove(name); });
  }

  bool Holds(const std::string& tenant, const std::string& id) const override {
    const std::lock_guard lock(dir_mutex_);
    return faccessat(dir_.get(), SnapshotFileName(tenant, id).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  }

  void SetAside(const std::string& tenant, const std::string& id) override {
    Post([this, name = SnapshotFileName(tenant, id)] {
      KeepAside(dir_.get(), name);
      files_.erase(name);
    });
  }

  void Flush(std::function<void()> done) override { Post(std::move(done)); }

 private:
  struct File {
    std::string tenant, id;
    bool named = false;
    int64_t saved_at = 0;
    int64_t disk_bytes = 0;
  };

  void IndexFile(const std::string& name, std::vector<SnapshotLabel>* found,
                 std::vector<std::string>* notices) {
    struct stat info {};
    const Result<Descriptor> file = OpenRegular(dir_.get(), name, &info);
    Result<SnapshotLabel> label = file.ok() ? ReadLabel(*file, name, info) : file.status();
    if (label.ok() && SnapshotFileName(label->tenant, label->id) != name) {
      label = Status(Code::kInput, "it holds another session than its name says");
    }
    if (!label.ok()) {
      const std::string aside = KeepAside(dir_.get(), name);
      notices->push_back("session file " + name + " skipped and kept as " + aside + ": " +
                         label.status().message());
      return;
    }
    files_[name] = {label->tenant, label->id, label->named, label->saved_at, int64_t{512} * info.st_blocks};
    found->push_back(std::move(label).value());
  }

  void Remember(const std::string& name, const SnapshotLabel& label) {
    struct stat info {};
    const bool known = fstatat(dir_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    files_[name] = {label.tenant, label.id, label.named, label.saved_at,
                    known ? int64_t{512} * info.st_blocks : 0};
  }

  void Remove(const std::string& name) {
    unlinkat(dir_.get(), name.c_str(), 0);
    fsync(dir_.get());
    files_.erase(name);
  }

  // Deletes the oldest anonymous sessions until `image` fits, beside what it replaces.
  Status MakeRoom(const std::string& name, const Arena& image, Deleted* deleted) {
    int64_t need = 0;
    for (size_t at = 0; at < image.size(); at += kPage) {
      if (!AllZero(Page({image.data(), image.size()}, at))) need += static_cast<int64_t>(kPage);
    }
    int64_t used = 0;
    for (const auto& [other, file] : files_) used += other == name ? 0 : file.disk_bytes;
    while (used + need > quota_) {
      auto oldest = files_.end();
      for (auto it = files_.begin(); it != files_.end(); ++it) {
        if (it->first == name || it->second.named) continue;
        if (oldest == files_.end() || it->second.saved_at < oldest->second.saved_at) oldest = it;
      }
      if (oldest == files_.end()) {
        return Status::Expected(Code::kInternal, "sessions on disk",
                                "at most " + std::to_string(quota_) + " bytes", std::to_string(used + need),
                                "raise the quota or delete sessions");
      }
      used -= oldest->second.disk_bytes;
      deleted->emplace_back(oldest->second.tenant, oldest->second.id);
      Remove(std::string(oldest->first));
    }
    return Status();
  }

  // Somebody removed the folder under us: what was in it is gone, what comes next need not be.
  void ReopenIfLost() {
    struct stat info {};
    if (fstat(dir_.get(), &info) != 0 || info.st_nlink > 0) return;
    Result<Descriptor> again = OpenFolder(path_);
    if (!again.ok()) return;  // the save says why
    const std::lock_guard lock(dir_mutex_);
    dir_ = std::move(again).value();
    files_.clear();
  }

  void Post(std::function<void()> task) { worker_.Post(std::move(task)); }

  const std::string path_;
  Descriptor dir_;                // holds the lock; changed by the store's thread only
  mutable std::mutex dir_mutex_;  // while it is changed, or used by another thread
  const int64_t quota_;
  std::map<std::string, File> files_;  // the store's thread only, after Index
  WorkerThread worker_;                // ends, first of all, when everything asked for is done
};

}  // namespace

std::string SnapshotFileName(const std::string& tenant, const std::string& id) {
  const std::string whole = tenant + '\0' + id;
  const XXH128_hash_t hash = XXH3_128bits(whole.data(), whole.size());
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name;
  for (const uint64_t word : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) name += kDigits[word >> shift & 15];
  }
  return name.append(kEnding);
}

Status WriteFileDurably(int dir, const std::string& name, std::span<const uint8_t> bytes) {
  const std::string temporary = name + std::string(kTemporary);
  RemoveTemporary(dir, temporary);  // never one whose sync failed
  Descriptor file(openat(dir, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.ok()) return Failed("creating", temporary);
  Status status = WriteContent(file.get(), temporary, bytes);
  if (status.ok() && !file.Close()) status = Failed("closing", temporary);
  if (status.ok() && renameat(dir, temporary.c_str(), dir, name.c_str()) != 0) {
    status = Failed("renaming", temporary);
  }
  if (!status.ok()) {
    unlinkat(dir, temporary.c_str(), 0);
    return status;
  }
  if (fsync(dir) != 0) return Failed("syncing the folder of", name);
  return Status();
}

Result<std::unique_ptr<SessionStore>> SessionStore::Open(const std::string& path, int64_t quota,
                                                         std::vector<SnapshotLabel>* found,
                                                         std::vector<std::string>* notices) {
  BALLAST_ASSIGN_OR_RETURN(Descriptor dir, OpenFolder(path));
  auto store = std::make_unique<FolderStore>(path, std::move(dir), quota);
  BALLAST_RETURN_IF_ERROR(store->Index(found, notices));
  return std::unique_ptr<SessionStore>(std::move(store));
}

}  // namespace ballast::server
