// The files that `watch` writes and rereads: results, state, metrics, marks of what is normal.
#ifndef BALLAST_APPS_WATCH_FILES_H_
#define BALLAST_APPS_WATCH_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "app.h"

namespace ballast::app {

// Where results go: stdout, or a file whose length is known, so that it can be cut back to it.
class WatchOutput {
 public:
  ~WatchOutput();
  // "": stdout. kInput when the file cannot be written, or another watch writes it.
  Status Open(const std::string& path);
  // Where an earlier run left its results.
  struct Mark {
    uint64_t device = 0, inode = 0;  // 0: stdout
    int64_t bytes = 0;               // length of the file when the state was saved
    int64_t lines = 0;               // of the log, told by then
    bool closed = false;             // that run ended there: it wrote nothing more
  };
  // Goes on behind the mark: what that run wrote after it saved its state is cut off. Nothing else ever is:
  // another file, one that has become shorter, or one in which others wrote is kept, and `note` says what
  // that means for its end.
  Status GoOnAt(const Mark& mark, std::string* note);
  Status Write(std::string_view lines);
  Status Sync();                           // on the disk, or nothing to do
  bool failed() const { return failed_; }  // a write was not done whole
  uint64_t device() const { return device_; }
  uint64_t inode() const { return inode_; }
  int64_t bytes() const;  // length of the file

 private:
  int fd_ = -1;
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
  bool failed_ = false;
};

// A state file: replaced as a whole, on the disk before it counts, in use by one process. That process holds
// the lock of "PATH.lock" beside the file that all links lead to, and removes it at its end; one that a
// killed process left is taken over.
class StateFile {
 public:
  ~StateFile();
  // kInput when the folder is not there or another process uses it.
  Status Lock(const std::string& path);
  // nullopt when there is none yet. kInput for what is no file, or an empty one: it is not "none yet".
  Result<std::optional<std::string>> Read() const;
  Status Replace(std::string_view image) const;

  // What lies beside a state file while it is used.
  static std::string LockOf(const std::string& path) { return path + ".lock"; }
  static std::string NextOf(const std::string& path) { return path + ".tmp"; }

 private:
  std::string path_;  // absolute, links followed
  int lock_ = -1;
};

// Lines that a user calls normal: one a line, as in the log, or as in the results. Read again when it
// changes.
class NormalMarks {
 public:
  explicit NormalMarks(std::string path) : path_(std::move(path)) {}
  void Refresh();
  bool Has(uint64_t template_hash) const { return hashes_.count(template_hash) > 0; }
  size_t size() const { return hashes_.size(); }

 private:
  std::string path_;
  std::string version_;  // of the file that was read: inode, length, time
  std::set<uint64_t> hashes_;
};

struct WatchPaths {
  std::string log;      // "-": stdin
  std::string out;      // "": stdout
  std::string state;    // "": none
  std::string normal;   // "": none
  std::string metrics;  // "": none
};

// What is opened before a model is loaded, so that a path which cannot work is not noticed after it.
struct WatchFiles {
  WatchOutput output;
  StateFile state;
  std::optional<std::string> image;  // of the state, as the last run saved it
  // kUsage when two of the paths are one file; kInput for what cannot be read or written.
  Status Open(const WatchPaths& paths);
};

}  // namespace ballast::app

#endif  // BALLAST_APPS_WATCH_FILES_H_
