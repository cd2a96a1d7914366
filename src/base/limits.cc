#include "base/limits.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/threads.h"

namespace ballast {
namespace {

constexpr char kCgroupRoot[] = "/sys/fs/cgroup";
constexpr char kMembership[] = "/proc/self/cgroup";

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The whole word as a number; nothing for "max", "-1", or a file that is not there.
std::optional<uint64_t> Number(std::string_view word) {
  while (!word.empty() && (word.back() == '\n' || word.back() == ' ')) word.remove_suffix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

void Tighten(std::optional<uint64_t> quota, std::optional<uint64_t> period, int* cores) {
  if (!quota || !period || *quota == 0 || *period == 0) return;
  const uint64_t ceiling = std::min<uint64_t>((*quota - 1) / *period + 1, std::numeric_limits<int>::max());
  *cores = *cores == 0 ? static_cast<int>(ceiling) : std::min(*cores, static_cast<int>(ceiling));
}

void Tighten(std::optional<uint64_t> bytes, uint64_t* memory) {
  // v1 says "no limit" as the largest multiple of the page size that fits 63 bits.
  if (!bytes || *bytes >= (uint64_t{1} << 62)) return;
  *memory = *memory == 0 ? *bytes : std::min(*memory, *bytes);
}

// Calls visit(folder) for base + path, its parent, ..., base.
template <typename Visit>
void Ascend(const std::string& base, std::string path, const Visit& visit) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    visit(base + path);
    if (path.empty()) return;
    const size_t slash = path.rfind('/');
    path.erase(slash == std::string::npos ? 0 : slash);
  }
}

void ReadV2(const std::string& folder, CgroupLimits* limits) {
  // cpu.max holds "<quota or max> <period>", in microseconds.
  const std::string cpu = ReadText(folder + "/cpu.max");
  const size_t space = cpu.find(' ');
  if (space != std::string::npos) {
    const std::string_view text = cpu;
    Tighten(Number(text.substr(0, space)), Number(text.substr(space + 1)), &limits->cores);
  }
  Tighten(Number(ReadText(folder + "/memory.max")), &limits->memory);
}

bool Names(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == wanted) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& membership, const std::string& root) {
  CgroupLimits limits;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // "<id>:<controllers, none in v2>:<path>"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      Ascend(root, path, [&](const std::string& folder) { ReadV2(folder, &limits); });
    }
    if (Names(controllers, "cpu")) {
      Ascend(root + "/cpu", path, [&](const std::string& folder) {
        Tighten(Number(ReadText(folder + "/cpu.cfs_quota_us")),
                Number(ReadText(folder + "/cpu.cfs_period_us")), &limits.cores);
      });
    }
    if (Names(controllers, "memory")) {
      Ascend(root + "/memory", path, [&](const std::string& folder) {
        Tighten(Number(ReadText(folder + "/memory.limit_in_bytes")), &limits.memory);
      });
    }
  }
  return limits;
}

uint64_t UsableMemory() {
  struct sysinfo info;
  uint64_t bytes = 0;
  if (sysinfo(&info) == 0) bytes = (uint64_t{info.totalram} + info.totalswap) * info.mem_unit;
  const uint64_t quota = ReadCgroupLimits(ReadText(kMembership), kCgroupRoot).memory;
  if (quota == 0) return bytes;
  return bytes == 0 ? quota : std::min(bytes, quota);
}

int UsableCores() {
  int cores = 0;
  // The kernel refuses a mask smaller than its own: grow until it fits.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20) && cores == 0; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    if (sched_getaffinity(0, bytes, set) == 0) cores = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
  }
  const int quota = ReadCgroupLimits(ReadText(kMembership), kCgroupRoot).cores;
  if (quota > 0) cores = cores == 0 ? quota : std::min(cores, quota);
  return std::max(cores, 1);
}

}  // namespace ballast
