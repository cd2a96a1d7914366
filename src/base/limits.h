// What this process may use of its machine: cores and memory, as its cgroups allow.
//
// Purpose: in a container the kernel reports the host's cores and memory; a pool or a cache sized by those is
// throttled or killed. Thread safety: pure reads of /proc and /sys; every function may be called from any
// thread.
#ifndef BALLAST_BASE_LIMITS_H_
#define BALLAST_BASE_LIMITS_H_

#include <cstdint>
#include <string>

namespace ballast {

struct CgroupLimits {
  int cores = 0;        // the CPU quota, rounded up; 0: none
  uint64_t memory = 0;  // bytes; 0: none
};

// Reads the quotas (v2: cpu.max, memory.max; v1: cpu.cfs_quota_us, memory.limit_in_bytes) of the cgroups
// named in `membership` (the text of /proc/self/cgroup) and of all their ancestors below the mount point
// `root`; the tightest counts. A container often sees its own group as the root: levels that do not exist are
// skipped.
CgroupLimits ReadCgroupLimits(const std::string& membership, const std::string& root);

// Bytes this process may hold: memory and swap of the machine, cut by the cgroup. 0 when unknown.
uint64_t UsableMemory();

}  // namespace ballast

#endif  // BALLAST_BASE_LIMITS_H_
