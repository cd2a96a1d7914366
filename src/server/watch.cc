#include "server/watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/utf8.h"

namespace ballast::server {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);

// A token's own bytes may be a part of a character.
std::string ShownText(const Tokenizer& tokenizer, Token token) {
  Utf8Stream whole;
  std::string text = whole.Push(tokenizer.Piece(token, true));
  return text + whole.Finish();
}

}  // namespace

double LogSumExp(std::span<const float> logits) {
  float top = -INFINITY;
  for (const float x : logits) top = std::max(top, x);
  if (!std::isfinite(top)) return top;
  double sum = 0;
  for (const float x : logits) {
    if (!std::isnan(x)) sum += std::exp(static_cast<double>(x - top));
  }
  return static_cast<double>(top) + std::log(sum);
}

double SurpriseBits(std::span<const float> logits, Token token) {
  return (LogSumExp(logits) - static_cast<double>(logits[static_cast<size_t>(token)])) / std::log(2.0);
}

void Watchers::Add(uint64_t watch, SlotPtr slot, std::function<bool(const CacheView&)> view,
                   std::function<void(ApiError)> ended) {
  Watcher w;
  w.slot = std::move(slot);
  w.view = std::move(view);
  w.ended = std::move(ended);
  watchers_[watch] = std::move(w);
}

void Watchers::Remove(uint64_t watch) { watchers_.erase(watch); }

void Watchers::End(const Slot& slot, const ApiError& why) {
  std::erase_if(watchers_, [&](const auto& watcher) {
    if (watcher.second.slot.get() != &slot) return false;
    watcher.second.ended(why);
    return true;
  });
}

bool Watchers::Watches(const Slot& slot) const {
  return std::any_of(watchers_.begin(), watchers_.end(),
                     [&](const auto& w) { return w.second.slot.get() == &slot; });
}

void Watchers::Fed(const Slot& slot, const Batch::Entry& entry, int64_t tokens) {
  for (auto& [id, w] : watchers_) {
    if (w.slot.get() != &slot) continue;
    w.fed += tokens;
    if (entry.sink_mass == nullptr) continue;
    const ModelConfig& config = entry.stream->model().config();
    w.sink_mass.resize(static_cast<size_t>(config.layers) * static_cast<size_t>(config.heads));
    auto mass = w.sink_mass.begin();
    for (int layer = 0; layer < config.layers; ++layer) {
      for (int head = 0; head < config.heads; ++head) *mass++ += entry.SinkMass(layer, head);
    }
    ++w.steps;
  }
}

void Watchers::Sampled(const Slot& slot, Token token, std::span<const float> logits) {
  for (auto& [id, w] : watchers_) {
    if (w.slot.get() != &slot) continue;
    w.bits += SurpriseBits(logits, token);
    ++w.sampled;
  }
}

void Watchers::WentBack(const Slot& slot, int64_t position) {
  for (auto& [id, w] : watchers_) {
    if (w.slot.get() == &slot) w.position = std::min(w.position, position);
  }
}

bool Watchers::Changed(const Watcher& w) {
  if (w.slot->session == nullptr) return w.slot->gone;
  return !w.ever || w.version != w.slot->version || w.position != w.slot->session->stream().position() ||
         w.slot->gone;
}

std::optional<Clock::time_point> Watchers::Deadline() const {
  std::optional<Clock::time_point> due;
  for (const auto& [id, w] : watchers_) {
    if (Changed(w) && (!due || w.shown + kInterval < *due)) due = w.shown + kInterval;
  }
  return due;
}

void Watchers::Show() {
  if (watchers_.empty()) return;
  const Clock::time_point now = Clock::now();
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    Watcher& w = it->second;
    bool keep = !w.slot->gone;
    if (!keep) w.ended(NoSuchSession(w.slot->id));
    if (keep && Changed(w) && (!w.ever || now - w.shown >= kInterval)) keep = w.view(Make(w));
    it = keep ? std::next(it) : watchers_.erase(it);
  }
}

CacheView Watchers::Make(Watcher& w) const {
  const Session& session = *w.slot->session;
  const Stream& stream = session.stream();
  const Clock::time_point now = Clock::now();
  CacheView v;
  v.position = stream.position();
  v.start = stream.start();
  v.sinks = stream.pinned();
  v.context = stream.context();
  v.live = stream.live();
  v.evicted_tokens = stream.evicted();
  v.write_slot = stream.cache().plan().layout.Slot(v.position);
  v.policy = PolicyName(stream.policy());
  const auto show = [&](int64_t t) { v.fresh.push_back({t, ShownText(tokenizer_, session.TokenAt(t))}); };
  // After a roll back the newest tokens are others than those shown.
  const int64_t from = w.ever ? std::min(w.position, v.position) : 0;
  for (int64_t t = from; t < std::min(v.sinks, v.position); ++t) show(t);
  for (int64_t t = std::max({from, v.start, v.sinks}); t < v.position; ++t) show(t);
  v.health = session.health();
  v.layers = stream.model().config().layers;
  v.heads = stream.model().config().heads;
  for (const double mass : w.sink_mass) {
    v.sink_mass.push_back(static_cast<float>(mass / static_cast<double>(std::max<int64_t>(1, w.steps))));
  }
  const double seconds = std::chrono::duration<double>(now - w.shown).count();
  if (w.ever && seconds > 0) v.tokens_per_second = static_cast<double>(w.fed) / std::max(seconds, 0.1);
  if (w.sampled > 0) v.surprise = w.bits / static_cast<double>(w.sampled);
  w.shown = now;
  w.ever = true;
  w.position = v.position;
  w.version = w.slot->version;
  w.sink_mass.clear();
  w.steps = w.sampled = w.fed = 0;
  w.bits = 0;
  return v;
}

}  // namespace ballast::server
