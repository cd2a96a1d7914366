#include "base/limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temp_path.h"

namespace ballast {
namespace {

// A cgroup file system of our own, built from plain files.
class Cgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempPath("cgroup");
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  CgroupLimits Read(const std::string& membership) { return ReadCgroupLimits(membership, root_.string()); }

  std::filesystem::path root_;
};

TEST_F(Cgroup, NoFilesMeanNoLimit) {
  EXPECT_EQ(Read("0::/\n").cores, 0);
  EXPECT_EQ(Read("0::/\n").memory, 0u);
  EXPECT_EQ(Read("").cores, 0);
}

TEST_F(Cgroup, V2QuotaIsRoundedUp) {
  Write("cpu.max", "150000 100000\n");
  Write("memory.max", "1073741824\n");
  EXPECT_EQ(Read("0::/\n").cores, 2);
  EXPECT_EQ(Read("0::/\n").memory, 1073741824u);
  Write("cpu.max", "200000 100000\n");
  EXPECT_EQ(Read("0::/\n").cores, 2);
  Write("cpu.max", "1000 100000\n");
  EXPECT_EQ(Read("0::/\n").cores, 1);
}

TEST_F(Cgroup, V2MaxIsNoLimit) {
  Write("a/cpu.max", "max 100000\n");
  Write("a/memory.max", "max\n");
  EXPECT_EQ(Read("0::/a\n").cores, 0);
  EXPECT_EQ(Read("0::/a\n").memory, 0u);
}

TEST_F(Cgroup, TheTightestAncestorCounts) {
  Write("a/cpu.max", "300000 100000\n");
  Write("a/b/cpu.max", "800000 100000\n");
  Write("a/memory.max", "5000\n");
  Write("a/b/c/memory.max", "7000\n");
  EXPECT_EQ(Read("0::/a/b/c\n").cores, 3);
  EXPECT_EQ(Read("0::/a/b/c\n").memory, 5000u);
  EXPECT_EQ(Read("0::/elsewhere\n").cores, 0);
}

// In a container /proc/self/cgroup may name the host's path while the mount shows the group as its root.
TEST_F(Cgroup, APathThatOnlyTheHostSeesFallsBackToTheRoot) {
  Write("cpu.max", "100000 100000\n");
  EXPECT_EQ(Read("0::/docker/0123456789abcdef\n").cores, 1);
}

TEST_F(Cgroup, V1QuotaAndItsUnlimitedValues) {
  const std::string membership = "4:memory:/m\n3:cpu,cpuacct:/c\n1:cpuset:/c\n";
  Write("cpu/c/cpu.cfs_quota_us", "250000\n");
  Write("cpu/c/cpu.cfs_period_us", "100000\n");
  Write("memory/m/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(Read(membership).cores, 3);
  EXPECT_EQ(Read(membership).memory, 4096u);
  Write("cpu/c/cpu.cfs_quota_us", "-1\n");
  Write("memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Read(membership).cores, 0);
  EXPECT_EQ(Read(membership).memory, 0u);
}

TEST_F(Cgroup, NonsenseIsNoLimit) {
  Write("cpu.max", "100000");
  EXPECT_EQ(Read("0::/\n").cores, 0);
  Write("cpu.max", "100000 0");
  EXPECT_EQ(Read("0::/\n").cores, 0);
  Write("cpu.max", "99999999999999999999999 100000");
  EXPECT_EQ(Read("0::/\n").cores, 0);
  EXPECT_EQ(Read("no colons here\n:\n::\n").cores, 0);
}

TEST(UsableMemory, IsKnownOnThisMachine) { EXPECT_GT(UsableMemory(), uint64_t{1} << 20); }

}  // namespace
}  // namespace ballast
