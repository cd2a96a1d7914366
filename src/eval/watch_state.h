// Watch state: all that `watch` must remember to go on after a restart as if there had been none.
//
// File: kMagic, version, length of the description; the description (JSON: place in the log, counters,
// shape); then, each aligned to 8 bytes, templates, words, newest lines, lost rows per layer, logits, rows of
// the cache (KvCache::ExportRows); then XXH3-128 of all before it. Little-endian, as the machine. Thread
// safety: pure functions. Invariants: 1. nothing is taken over before length, checksum and model are
// verified. 2. restored, stream and judge go on bit for bit as the originals would have.
#ifndef BALLAST_EVAL_WATCH_STATE_H_
#define BALLAST_EVAL_WATCH_STATE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/stream.h"
#include "eval/line_assembler.h"
#include "eval/novelty.h"

namespace ballast {

struct WatchProgress {
  std::string input;          // the name it was started with
  LogPlace place;             // where the next line begins
  int64_t lines = 0;          // ever seen, skipped ones included
  int64_t bytes = 0;          // likewise
  int64_t skipped_lines = 0;  // by --max-lag
  int64_t skipped_bytes = 0;
  int64_t alarms = 0;
  int64_t since_alarm = 1 << 20;           // lines since the last one
  uint64_t out_device = 0, out_inode = 0;  // the file that the results went to; 0: stdout
  int64_t out_bytes = 0;                   // its length
  bool out_closed = false;                 // nothing was written to it after this was saved
};

// `model`: a text that names model, weights and compute; another one refuses the file.
std::string EncodeWatchState(const WatchProgress& progress, const NoveltyJudge& judge, const Stream& stream,
                             const std::string& model);
// Fills all three. kInput, with nothing changed, when the file is damaged, of another model, or of another
// shape of cache.
Status DecodeWatchState(std::string_view image, const std::string& model, WatchProgress* progress,
                        NoveltyJudge* judge, Stream* stream);

}  // namespace ballast

#endif  // BALLAST_EVAL_WATCH_STATE_H_
