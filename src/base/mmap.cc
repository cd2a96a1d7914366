#include "base/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "base/limits.h"

namespace ballast {
namespace {

constexpr size_t kHugeFrom = size_t{4} << 20;  // smaller arenas gain nothing from 2 MiB pages

// The path in quotes, with control bytes escaped: an error is one line whatever the file is called.
std::string Quoted(const std::string& path) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "file '";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      text.push_back(c);
    }
  }
  return text + "'";
}

// How a file is refused.
class Refusal {
 public:
  Refusal(const std::string& path, Code code) : path_(path), code_(code) {}
  Status operator()(std::string_view expected, std::string_view found) const {
    return Status::Expected(code_, Quoted(path_), expected, found);
  }
  Status Errno(int error) const {
    if (error == ENOENT || error == ENOTDIR) return (*this)("a regular file", "no such file");
    if (error == EACCES || error == EPERM) return (*this)("a readable file", "permission denied");
    if (error == EISDIR) return (*this)("a regular file", "a directory");
    return (*this)("a readable file", std::generic_category().message(error));
  }

 private:
  const std::string& path_;
  Code code_;
};

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Closes on every way out; the mapping outlives its descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Advises about the whole pages of [offset, offset + length): outward for a wish to read, inward for a
// release, so that a neighbour's bytes are never dropped. Advice may fail; then nothing changes.
void Advise(const Mapping& mapping, size_t offset, size_t length, int advice, bool inward) {
  const size_t size = mapping.size();
  if (offset >= size) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t end = offset + std::min(length, size - offset);
  size_t begin = offset / page * page;
  if (inward) {
    begin = (offset + page - 1) / page * page;
    if (end != size) end = end / page * page;
  }
  if (begin >= end) return;
  madvise(mapping.data() + begin, end - begin, advice);
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  Mapping taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  return *this;
}

Result<MappedFile> MappedFile::Open(const std::string& path, Code code) {
  const Refusal refuse(path, code);
  if (path.find('\0') != std::string::npos) return refuse("a path without a zero byte", "one");
  // O_NONBLOCK: a named pipe must be refused, not waited for.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) {
    // A device node without a device, a socket: ENXIO says less than the kind of the file.
    struct stat named;
    const int error = errno;
    if (error == ENXIO && stat(path.c_str(), &named) == 0 && !S_ISREG(named.st_mode)) {
      return refuse("a regular file", KindOf(named.st_mode));
    }
    return refuse.Errno(error);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) return refuse.Errno(errno);
  if (!S_ISREG(info.st_mode)) return refuse("a regular file", KindOf(info.st_mode));
  if (info.st_size == 0) return refuse("a file with content", "an empty file");
  if (static_cast<uint64_t>(info.st_size) > std::numeric_limits<size_t>::max()) {
    return refuse("a file that fits the address space", std::to_string(info.st_size) + " bytes");
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return refuse.Errno(errno);
  MappedFile mapped;
  mapped.mapping_ = Mapping(data, size);
  return mapped;
}

void MappedFile::WillNeed(size_t offset, size_t length) const {
  Advise(mapping_, offset, length, MADV_WILLNEED, /*inward=*/false);
}

void MappedFile::DontNeed(size_t offset, size_t length) const {
  Advise(mapping_, offset, length, MADV_DONTNEED, /*inward=*/true);
}

void MappedFile::Touch(size_t offset, size_t length) const {
  const std::span<const uint8_t> all = bytes();
  if (offset >= all.size()) return;
  constexpr size_t kPage = 4096;
  const size_t end = offset + std::min(length, all.size() - offset);
  uint8_t sum = 0;
  for (size_t at = offset; at < end; at += kPage) sum = static_cast<uint8_t>(sum + all[at]);
  volatile uint8_t sink = sum;  // the reads must happen
  static_cast<void>(sink);
}

Result<Arena> Arena::Allocate(size_t bytes) {
  Arena arena;
  if (bytes == 0) return arena;
  // Memory is not reserved below, so the kernel would promise what it cannot give and kill us later.
  const uint64_t usable = UsableMemory();
  if (usable != 0 && bytes > usable) {
    return Status::Expected(Code::kInternal, "memory", "at most " + std::to_string(usable) + " bytes",
                            "a request for " + std::to_string(bytes));
  }
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Status::Expected(Code::kInternal, "memory", std::to_string(bytes) + " bytes",
                            std::generic_category().message(errno));
  }
  if (bytes >= kHugeFrom) madvise(data, bytes, MADV_HUGEPAGE);  // a wish: older kernels may refuse
  arena.mapping_ = Mapping(data, bytes);
  return arena;
}

}  // namespace ballast
