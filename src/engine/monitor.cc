#include "engine/monitor.h"

#include <algorithm>
#include <cmath>

#include "kernels/logits.h"

namespace ballast {
namespace {

// One token in so many is looked at as there are this many entries in the vocabulary: a fraction of a percent
// of a step, also where many streams share one.
constexpr int64_t kEntriesPerLook = 12288;

}  // namespace

std::string_view HealthName(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kSuspect:
      return "suspect";
    case Health::kCollapsed:
      return "collapsed";
  }
  return "";
}

std::string_view AilmentName(Ailment ailment) {
  switch (ailment) {
    case Ailment::kNone:
      return "";
    case Ailment::kNonFinite:
      return "non-finite";
    case Ailment::kSinkLoss:
      return "sink loss";
    case Ailment::kRepetition:
      return "repetition";
    case Ailment::kOutOfDistribution:
      return "out of distribution";
  }
  return "";
}

Monitor::Monitor(const Model& model) : heads_(model.config().heads) {
  const std::vector<KvCache::LayerShape> shape = model.CacheShape();
  for (size_t layer = 0; layer < shape.size(); ++layer) {
    if (shape[layer].local_window == 0) layers_.push_back(static_cast<int>(layer));
  }
  stride_ = std::max<int64_t>(1, model.config().vocab / kEntriesPerLook);
}

void Monitor::BeginReply() {
  repetition_.Begin();
  if (verdict_.reason == Ailment::kRepetition) verdict_ = Verdict();
}

void Monitor::Drawn(std::span<const float> logits, Token token, bool generated) {
  if (generated) repetition_.Add(token);
  if (logits.empty() || drawn_++ % stride_ != 0) return;
  const LogitStats stats = DescribeLogits(logits.data(), static_cast<int64_t>(logits.size()));
  broken_ = !stats.finite;
  // What is usual is not learnt while something is wrong.
  if (!broken_) entropy_.Add(stats.entropy, stride_, verdict_.state == Health::kOk);
}

void Monitor::Broken() {
  broken_ = true;
  Judge(0);
}

float Monitor::Share(const float* sink_mass, int64_t layer_stride) const {
  if (sink_mass == nullptr || layers_.empty()) return NAN;
  float sum = 0;
  for (const int layer : layers_) {
    const float* row = sink_mass + layer * layer_stride;
    for (int head = 0; head < heads_; ++head) sum += row[head];
  }
  return sum / static_cast<float>(static_cast<int64_t>(layers_.size()) * heads_);
}

void Monitor::Fed(int64_t position, int64_t tokens, const float* sink_mass, int64_t layer_stride) {
  position_ = position;
  if (sink_mass != nullptr) sinks_.Add(Share(sink_mass, layer_stride), tokens);
  Judge(tokens);
}

// The worst of the parts, the one nearest to the cause first: a stream without sinks repeats itself too.
void Monitor::Judge(int64_t tokens) {
  Level worst = Level::kNone;
  Ailment reason = Ailment::kNone;
  const auto hear = [&](Level level, Ailment ailment) {
    if (level > worst) worst = level, reason = ailment;
  };
  hear(broken_ ? Level::kFull : Level::kNone, Ailment::kNonFinite);
  hear(sinks_.level(), Ailment::kSinkLoss);
  hear(repetition_.level(), Ailment::kRepetition);
  hear(entropy_.level(), Ailment::kOutOfDistribution);
  crying_ = worst == Level::kFull ? crying_ + tokens : 0;
  if (worst == Level::kNone) {
    quiet_ += tokens;
    const int64_t hold = verdict_.state == Health::kCollapsed ? kHold : 0;
    if (quiet_ >= hold) verdict_ = Verdict();
    return;
  }
  quiet_ = 0;
  if (verdict_.state == Health::kCollapsed) {
    // Its first reason is the one to know, unless one nearer to the cause comes: loops come and go, sinks do
    // not.
    const bool nearer = worst == Level::kFull && reason < verdict_.reason;
    if (nearer) verdict_ = {Health::kCollapsed, reason, position_ - 1};
    return;
  }
  const bool alarm = crying_ >= kSustain || (worst == Level::kFull && reason == Ailment::kNonFinite);
  if (verdict_.state == Health::kOk) verdict_.since = position_ - 1;
  verdict_.state = alarm ? Health::kCollapsed : Health::kSuspect;
  verdict_.reason = reason;
}

void Monitor::Rescued() {
  sinks_.Forgive();
  entropy_.Forgive();
  repetition_.Begin();
  broken_ = false;
  crying_ = 0;
  verdict_ = Verdict();
}

Status Monitor::Import(const State& state) {
  const bool sane = sinks_.MayImport(state.sinks) && entropy_.MayImport(state.entropy) &&
                    state.verdict.state <= Health::kCollapsed &&
                    state.verdict.reason <= Ailment::kOutOfDistribution && state.verdict.since >= -1;
  if (!sane) return Status::Expected(Code::kInput, "monitor state", "numbers that a monitor has", "others");
  sinks_.Import(state.sinks);
  entropy_.Import(state.entropy);
  verdict_ = state.verdict;
  return Status();
}

}  // namespace ballast
