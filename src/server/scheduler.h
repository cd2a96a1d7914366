// Who computes next: pure decisions, no streams.
//
// Purpose: prompts are read in pieces between the tokens of running replies. Thread safety: none; the
// engine's thread owns both. Invariants: 1. while somebody decodes, prompts get at most half of the machine's
// time, measured. 2. prompts are served in turn, one piece each, whatever their lengths.
#ifndef BALLAST_SERVER_SCHEDULER_H_
#define BALLAST_SERVER_SCHEDULER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ballast::server {

// Decides from measured times when a step may carry a piece of a prompt.
class PrefillPacer {
 public:
  bool MayPrefill(bool decoding) const { return !decoding || debt_ <= 0; }
  // What a step took. Time that decoding streams lost to a prompt is a debt; steps without one pay it back.
  void Measured(bool decoding, int64_t prompt_tokens, double seconds);
  double debt() const { return debt_; }  // seconds

 private:
  double decode_seconds_ = 0;  // of a step without a prompt, lately
  double debt_ = 0;
};

// Round robin over prompts that are being read.
class PrefillTurns {
 public:
  struct Piece {
    uint64_t ticket = 0;  // ascending over the span given to Choose
    int64_t tokens = 0;   // of its next piece
  };
  // The pieces of the next step, by index: in turn after the last one served, while they fit `budget`; at
  // least one when there is any.
  std::vector<size_t> Choose(std::span<const Piece> pieces, int64_t budget);

 private:
  uint64_t last_ = 0;  // ticket served last
};

// A waiting request, as admission sees it.
struct Waiting {
  std::string tenant;
  uint64_t ticket = 0;
};
// The order in which waiting requests are tried: tenants with fewer running requests first, each tenant's in
// the order of arrival. Indices into `waiting`.
std::vector<size_t> AdmissionOrder(std::span<const Waiting> waiting, std::span<const std::string> running);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_SCHEDULER_H_
