#include "server/scheduler.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace ballast::server {

void PrefillPacer::Measured(bool decoding, int64_t prompt_tokens, double seconds) {
  if (!decoding) {
    debt_ = 0;
    return;
  }
  if (prompt_tokens == 0) {
    decode_seconds_ = decode_seconds_ == 0 ? seconds : 0.8 * decode_seconds_ + 0.2 * seconds;
    debt_ = std::max(0.0, debt_ - seconds);
    return;
  }
  const double decode = std::min(seconds, decode_seconds_);
  debt_ = std::max(0.0, debt_ + (seconds - decode) - decode);
}

std::vector<size_t> PrefillTurns::Choose(std::span<const Piece> pieces, int64_t budget) {
  std::vector<size_t> out;
  if (pieces.empty()) return out;
  size_t first = 0;
  while (first < pieces.size() && pieces[first].ticket <= last_) ++first;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t at = (first + i) % pieces.size();
    if (!out.empty() && pieces[at].tokens > budget) break;
    out.push_back(at);
    budget -= pieces[at].tokens;
    last_ = pieces[at].ticket;
  }
  return out;
}

std::vector<size_t> AdmissionOrder(std::span<const Waiting> waiting, std::span<const std::string> running) {
  // The k-th request of a tenant counts as if the k - 1 before it ran already.
  std::map<std::string, int64_t> share;
  for (const std::string& tenant : running) ++share[tenant];
  std::vector<int64_t> rank(waiting.size());
  for (size_t i = 0; i < waiting.size(); ++i) rank[i] = share[waiting[i].tenant]++;
  std::vector<size_t> order(waiting.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
  return order;
}

}  // namespace ballast::server
