// Which file a path names, whatever links lead there, and files that are asked to be two things at once.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "app.h"

namespace ballast::app {
namespace {

// Only regular files: a terminal, a pipe or /dev/null may well be several things.
bool SameFile(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  const bool a_there = stat(a.c_str(), &first) == 0;
  const bool b_there = stat(b.c_str(), &second) == 0;
  if (a_there != b_there) return false;
  if (!a_there) return ResolvePath(a) == ResolvePath(b);
  return S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

std::string ResolvePath(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  // Link by link, since the last one may lead to a file that is not there yet.
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(at, error)); ++i) {
    const fs::path to = fs::read_symlink(at, error);
    if (error) return path;
    at = at.parent_path() / to;
  }
  const fs::path whole = fs::weakly_canonical(at, error);
  return error ? path : whole.string();
}

Status CheckApart(const std::vector<NamedFile>& written, const std::vector<NamedFile>& others) {
  for (size_t i = 0; i < written.size(); ++i) {
    std::vector<NamedFile> rest(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(i));
    rest.insert(rest.end(), others.begin(), others.end());
    for (const NamedFile& other : rest) {
      const std::string path = other.path == "-" ? "/dev/stdin" : other.path;
      if (written[i].path.empty() || path.empty() || !SameFile(written[i].path, path)) continue;
      return Status::Expected(Code::kUsage, written[i].name, "a file of its own",
                              fmt::format("that of {}, {}", other.name, written[i].path));
    }
  }
  return Status();
}

}  // namespace ballast::app
