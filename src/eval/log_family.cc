#include "eval/log_family.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace ballast {
namespace {

constexpr size_t kMostDigits = 5;  // of a generation's number: what has more is a time

// Where the log really is: a link to it may lie in another folder than its generations.
std::string Target(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) != nullptr) return resolved;
  // It leads to what is not there now, between a rotation and its successor.
  char target[PATH_MAX];
  const ssize_t n = readlink(path.c_str(), target, sizeof(target));
  if (n <= 0 || n == static_cast<ssize_t>(sizeof(target))) return path;
  const std::string name(target, static_cast<size_t>(n));
  const size_t slash = path.rfind('/');
  return name[0] == '/' || slash == std::string::npos ? name : path.substr(0, slash + 1) + name;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Of the part of a name behind the log's.
LogMember::Kind KindOf(std::string_view ending) {
  if (ending.empty()) return LogMember::Kind::kLog;
  ending.remove_prefix(1);
  if (ending.empty() || !IsDigit(ending[0])) return LogMember::Kind::kOther;
  if (std::all_of(ending.begin(), ending.end(), IsDigit)) {
    return ending.size() <= kMostDigits ? LogMember::Kind::kNumber : LogMember::Kind::kTime;
  }
  const bool time = ending.find_first_not_of("0123456789-_.:T") == std::string_view::npos;
  return time ? LogMember::Kind::kTime : LogMember::Kind::kOther;
}

bool IsPacked(std::string_view name) {
  for (const std::string_view ending : {".gz", ".xz", ".bz2", ".zst"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace

std::vector<LogMember> LogFamily::Members() const {
  std::vector<LogMember> members;
  const std::string log = Target(path_);
  const size_t slash = log.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : log.substr(0, slash + 1);
  const std::string name = log.substr(folder.size());
  DIR* list = opendir(folder.empty() ? "." : folder.c_str());
  if (list == nullptr) return members;
  while (const dirent* entry = readdir(list)) {
    const std::string_view found = entry->d_name;
    if (!found.starts_with(name) || IsPacked(found)) continue;
    const std::string_view ending = found.substr(name.size());
    if (!ending.empty() && ending[0] != '.' && ending[0] != '-') continue;
    LogMember member;
    member.path = folder + entry->d_name;
    struct stat info {};
    if (stat(member.path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    member.kind = KindOf(ending);
    if (member.kind == LogMember::Kind::kNumber) member.number = std::atoll(ending.data() + 1);
    member.device = info.st_dev;
    member.inode = info.st_ino;
    member.size = info.st_size;
    member.modified = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    members.push_back(std::move(member));
  }
  closedir(list);
  std::sort(members.begin(), members.end(), [](const LogMember& a, const LogMember& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    if (a.number != b.number) return a.number > b.number;
    return a.path < b.path;
  });
  return members;
}

std::vector<LogMember> LogFamily::After(const std::vector<LogMember>& members, size_t index) {
  std::vector<LogMember> later;
  for (size_t i = index + 1; i < members.size(); ++i) {
    const LogMember::Kind kind = members[i].kind;
    const bool same = kind == members[index].kind && kind != LogMember::Kind::kOther;
    if (same || kind == LogMember::Kind::kLog) later.push_back(members[i]);
  }
  return later;
}

}  // namespace ballast
