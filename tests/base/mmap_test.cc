#include "base/mmap.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/limits.h"
#include "support/temp_path.h"

namespace ballast {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempPath("mmap");
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  // One kModel line that names the path, the expectation and the finding.
  static void ExpectRefusal(const std::string& path, const std::string& found) {
    const Result<MappedFile> file = MappedFile::Open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.status().code(), Code::kModel);
    const std::string& message = file.status().message();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_NE(message.find(": expected "), std::string::npos) << message;
    EXPECT_NE(message.find("found " + found), std::string::npos) << message;
    const bool plain = path.find("\n") == std::string::npos;
    EXPECT_TRUE(!plain || message.find(path) != std::string::npos) << message;
  }

  std::filesystem::path folder_;
};

int OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  std::string text(100'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  const Result<MappedFile> file = MappedFile::Open(Write("a", text));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(
      std::ranges::equal(file->bytes(), text, {}, {}, [](char c) { return static_cast<uint8_t>(c); }));
}

TEST_F(MappedFileTest, RefusesWhatIsNoModelFile) {
  ExpectRefusal(Path("missing"), "no such file");
  ExpectRefusal(Write("plain", "x") + "/below", "no such file");
  ExpectRefusal(folder_.string(), "a directory");
  ExpectRefusal(Write("empty", ""), "an empty file");
  ExpectRefusal("/dev/null", "a device");
  ExpectRefusal("", "no such file");
  ExpectRefusal(Path("two\nlines"), "no such file");
}

// Opening a pipe that nobody writes to would hang for ever.
TEST_F(MappedFileTest, RefusesAPipeAtOnce) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectRefusal(Path("pipe"), "a pipe");
}

TEST_F(MappedFileTest, RefusesAnUnreadableFile) {
  const std::string path = Write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  if (geteuid() != 0) {
    ExpectRefusal(path, "permission denied");
    return;
  }
  // Root reads everything: look as somebody else, in a process of its own.
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    const Result<MappedFile> file = MappedFile::Open(path);
    const bool refused = !file.ok() && file.status().code() == Code::kModel &&
                         file.status().message().find("permission denied") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
}

TEST_F(MappedFileTest, MovesAndKeepsNoDescriptorOpen) {
  const int before = OpenDescriptors();
  Result<MappedFile> first = MappedFile::Open(Write("a", "alpha"));
  Result<MappedFile> second = MappedFile::Open(Write("b", "beta"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(MappedFile::Open(Write("empty", "")).ok());
  EXPECT_EQ(OpenDescriptors(), before);
  MappedFile moved = std::move(*first);
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_TRUE(first->bytes().empty());  // NOLINT(bugprone-use-after-move): the promise under test
  moved = std::move(*second);
  EXPECT_EQ(moved.bytes()[0], 'b');
  MappedFile* self = &moved;
  moved = std::move(*self);
  EXPECT_EQ(moved.bytes().size(), 4u);
}

TEST_F(MappedFileTest, AdviceNeverChangesBytesNorReachesPastTheEnd) {
  const std::string text(3 * 4096 + 17, 'q');
  const Result<MappedFile> file = MappedFile::Open(Write("a", text));
  ASSERT_TRUE(file.ok());
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  for (const auto& [offset, length] :
       {std::pair<size_t, size_t>{0, kAll}, {1, 5000}, {4095, 2}, {text.size(), 1}, {kAll, kAll}, {100, 0}}) {
    file->WillNeed(offset, length);
    file->Touch(offset, length);
    file->DontNeed(offset, length);
  }
  MappedFile().WillNeed(0, 1);
  EXPECT_EQ(std::ranges::count(file->bytes(), 'q'), static_cast<ptrdiff_t>(text.size()));
}

TEST(Arena, IsZeroedAlignedAndWritableToTheLastByte) {
  for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{5} << 20}) {
    const Result<Arena> arena = Arena::Allocate(bytes);
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    ASSERT_EQ(arena->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % 64, 0u);
    EXPECT_TRUE(std::all_of(arena->data(), arena->data() + bytes, [](uint8_t b) { return b == 0; }));
    std::fill_n(arena->data(), bytes, uint8_t{0xab});
    EXPECT_EQ(arena->data()[bytes - 1], 0xab);
  }
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Arena, CostsNothingUntilWritten) {
  const size_t before = ResidentBytes();
  const Result<Arena> arena = Arena::Allocate(size_t{256} << 20);
  ASSERT_TRUE(arena.ok());
  arena->data()[size_t{100} << 20] = 1;
  EXPECT_LT(ResidentBytes(), before + (size_t{32} << 20));
}

TEST(Arena, NothingIsAnEmptyArena) {
  const Result<Arena> arena = Arena::Allocate(0);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->size(), 0u);
}

// Unreserved memory is always promised; the process is killed when it is used. So more than there is at all
// must be refused, not handed out.
TEST(Arena, RefusesMoreThanTheMachineHas) {
  for (const uint64_t bytes : {std::numeric_limits<uint64_t>::max(), UsableMemory() + 1}) {
    const Result<Arena> arena = Arena::Allocate(bytes);
    ASSERT_FALSE(arena.ok());
    EXPECT_EQ(arena.status().code(), Code::kInternal);
    EXPECT_NE(arena.status().message().find(": expected "), std::string::npos);
  }
}

TEST(Arena, Moves) {
  Result<Arena> first = Arena::Allocate(100);
  Result<Arena> second = Arena::Allocate(200);
  ASSERT_TRUE(first.ok() && second.ok());
  uint8_t* data = second->data();
  Arena arena = std::move(*first);
  EXPECT_EQ(arena.size(), 100u);
  arena = std::move(*second);
  EXPECT_EQ(arena.data(), data);
  EXPECT_EQ(second->data(), nullptr);  // NOLINT(bugprone-use-after-move): the promise under test
}

}  // namespace
}  // namespace ballast
