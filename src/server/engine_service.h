// The engine behind `ballast serve`: one model, one thread that computes, many sessions.
//
// Purpose: makes the Service that the HTTP layer talks to. Thread safety: see service.h. Invariants: 1. only
// the engine's thread touches streams, sessions and the batch; all else is a command posted to it. 2. an idle
// service burns no core. 3. a reply does not depend, bit for bit, on what else is being served: prompts are
// cut into pieces of one size, whatever the load.
#ifndef BALLAST_SERVER_ENGINE_SERVICE_H_
#define BALLAST_SERVER_ENGINE_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "engine/rescue.h"
#include "engine/stream.h"
#include "kernels/matmul.h"
#include "server/metrics.h"
#include "server/service.h"

namespace ballast::server {

struct EngineServiceOptions {
  std::string model_path;
  std::string model_id;     // as clients name it; "": the file's name without ".gguf"
  int threads = 0;          // 0: UsableCores()
  StreamOptions stream;     // of new sessions: context, pinned (sinks), kv, policy; `chunk` is ignored
  bool pin_system = false;  // of new sessions, also when a request does not ask for it
  Evict evict = Evict::kToken;
  // Of a reply whose stream collapses. With kRescue one that only repeats itself is ended.
  OnCollapse on_collapse = OnCollapse::kWarn;
  Compute compute = Compute::kFast;
  std::optional<DType> weights;  // LoadOptions::weights
  std::string chat_format;       // "": from the model's own template

  std::string sessions_dir;                   // "": sessions live in memory only
  int64_t sessions_bytes = int64_t{8} << 30;  // most the snapshots may take on disk
  int max_sessions = 64;                      // streams in memory; more spill to disk, or are forgotten
  double idle_seconds = 300;                  // sessions unused for so long spill; needs sessions_dir
  int max_queue = 256;                        // waiting requests; more are answered 503
  int max_active = 32;                        // requests in one batch
  int64_t prefill_chunk = 0;                  // prompt tokens of one session per step; 0: DefaultPrefillChunk
  int64_t default_max_tokens = -1;            // -1: min(2048, context)

  EngineCounters* counters = nullptr;  // may be null; must outlive the service

  // Called once, on the loader's thread: OK when requests are answered, else why they never will be.
  std::function<void(const Status&)> on_loaded;
  // Operator's notices (snapshots skipped, spills that failed), one line each, on the engine's thread.
  std::function<void(const std::string&)> on_notice;
};

// Prompt tokens of one session per step for a model of so many weights (Model::weight_count): a power of two
// from 8 to 128. A step cannot be taken back, so it must end soon: a cancelled request and everybody's next
// token wait for it. From the size alone, never from measured speed, or replies would depend on the machine's
// mood.
int64_t DefaultPrefillChunk(int64_t weights);

// Returns at once; the model loads in the background: state() is kLoading until then kReady or kFailed. Until
// kReady, model() is empty and tokenizer() must not be called. kUsage for options that make no sense. The
// destructor cancels what runs and saves nothing: Drain first.
Result<std::unique_ptr<Service>> MakeEngineService(const EngineServiceOptions& options);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_ENGINE_SERVICE_H_
