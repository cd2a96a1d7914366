#include "support/temp_path.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace ballast::testing {
namespace {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("ballast-tests-" + std::to_string(owner_))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    if (getpid() == owner_) std::filesystem::remove_all(path_, ignored);  // not in the child of a death test
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  pid_t owner_ = getpid();
  std::filesystem::path path_;
};

}  // namespace

std::string TempPath(std::string_view name) {
  static const Folder folder;
  return (folder.path() / name).string();
}

}  // namespace ballast::testing
