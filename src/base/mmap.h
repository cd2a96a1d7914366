// Mapped memory: a file's bytes, read only, and zeroed anonymous memory.
// Thread safety: const after Open.
#ifndef BALLAST_BASE_MMAP_H_
#define BALLAST_BASE_MMAP_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace ballast {

// The owner of one range of mapped memory.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, size_t size) : data_(static_cast<uint8_t*>(data)), size_(size) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class MappedFile {
 public:
  // Maps the regular file at `path`. Refuses directories, pipes and empty or unreadable files with `code`.
  static Result<MappedFile> Open(const std::string& path, Code code = Code::kModel);
  MappedFile() = default;

  std::span<const uint8_t> bytes() const { return {mapping_.data(), mapping_.size()}; }
  // Tells the kernel that [offset, offset + length) will be read soon / is no longer needed.
  void WillNeed(size_t offset, size_t length) const;
  void DontNeed(size_t offset, size_t length) const;
  // Reads a byte of every page of the range now, so that later reads do not change how much memory is
  // resident.
  void Touch(size_t offset, size_t length) const;

 private:
  Mapping mapping_;  // read only
};

// Zeroed anonymous memory, touched lazily: pages cost nothing until written. Freed with the object.
class Arena {
 public:
  Arena() = default;
  // Aligned to 64 bytes at least. Fails with kInternal when the machine has no such memory.
  static Result<Arena> Allocate(size_t bytes);
  uint8_t* data() const { return mapping_.data(); }
  size_t size() const { return mapping_.size(); }

 private:
  Mapping mapping_;
};

}  // namespace ballast

#endif  // BALLAST_BASE_MMAP_H_
