#include "collapse.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal.h"

namespace ballast::app {
namespace {

std::string Describe(const Verdict& verdict) {
  const char* cause = "";
  if (verdict.reason == Ailment::kSinkLoss) {
    cause = ": the attention sinks have left the cache (the policy sinks keeps them)";
  } else if (verdict.reason == Ailment::kRepetition) {
    cause = ": the text repeats itself (a --repeat-penalty above 1 may help)";
  } else if (verdict.reason == Ailment::kOutOfDistribution) {
    cause = ": the model makes nothing of its own text any more";
  } else if (verdict.reason == Ailment::kNonFinite) {
    cause = ": logits that are not numbers";
  }
  return fmt::format("{} since token {}{}", AilmentName(verdict.reason), Grouped(verdict.since), cause);
}

}  // namespace

void AddCollapseFlag(CLI::App& app, std::string& value) {
  AddFlag(app, "--on-collapse", "ON_COLLAPSE", value,
          "When the text collapses: warn, stop, or rescue by encoding its end again (warn)")
      ->type_name("WHAT");
}

Result<OnCollapse> ParseOnCollapse(const std::string& name) {
  if (name == "warn") return OnCollapse::kWarn;
  if (name == "stop") return OnCollapse::kStop;
  if (name == "rescue") return OnCollapse::kRescue;
  return Status::Expected(Code::kUsage, "--on-collapse", "warn, stop or rescue", "\"" + name + "\"");
}

CollapseGuard::CollapseGuard(OnCollapse action, const Loaded& loaded, int64_t pinned)
    : action_(action), loaded_(loaded), pinned_(pinned), monitor_(*loaded.model) {
  newest_.reserve(2 * kRescueTokens);
  first_.reserve(static_cast<size_t>(std::clamp<int64_t>(pinned, 0, 1 << 16)));
}

void CollapseGuard::Begin() {
  monitor_ = Monitor(*loaded_.model);
  told_ = Health::kOk;
  first_.clear();
  newest_.clear();
  rescued_at_ = -1;
}

void CollapseGuard::Saw(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    if (static_cast<int64_t>(first_.size()) < pinned_) first_.push_back(token);
    if (static_cast<int64_t>(newest_.size()) == 2 * kRescueTokens) {
      newest_.erase(newest_.begin(), newest_.begin() + kRescueTokens);
    }
    newest_.push_back(token);
  }
}

void CollapseGuard::OnRow(const Stream::Row& row) {
  monitor_.Fed(row.position + 1, 1, row.sink_mass, row.layer_stride);
}

void CollapseGuard::Watch(Stream& stream, GenerateOptions& options) {
  options.monitor = &monitor_;
  options.on_token = [this, inner = std::move(options.on_token)](Token token) {
    Saw({&token, 1});
    return !inner || inner(token);
  };
  options.on_verdict = [this, &stream](const Verdict& verdict) { return OnVerdict(stream, verdict); };
}

Result<bool> CollapseGuard::OnVerdict(Stream& stream, const Verdict& verdict) {
  const Health before = std::exchange(told_, verdict.state);
  if (verdict.state != Health::kCollapsed) return true;
  if (action_ == OnCollapse::kStop) {
    stopped_ = true;
    return false;
  }
  if (before != Health::kCollapsed) Warn("the text collapses, " + Describe(verdict));
  if (action_ == OnCollapse::kWarn || stream.policy() == Policy::kRecompute) return true;
  if (rescued_at_ >= 0 && stream.position() - rescued_at_ < kRescueGap) return true;
  // Encoding a loop again would only go on with it: the text goes on from before it.
  std::span<const Token> newest(newest_);
  if (verdict.reason == Ailment::kRepetition) {
    const auto loop = stream.position() - verdict.since + static_cast<int64_t>(RepetitionPart::kMemory);
    newest = newest.first(newest.size() - static_cast<size_t>(std::clamp<int64_t>(
                                              loop, 0, static_cast<int64_t>(newest.size()) - 1)));
  }
  const Vocab& vocab = loaded_.tokenizer->vocab();
  const RescuePlan plan = PlanRescue(stream, first_, newest, pinned_, vocab.add_bos ? vocab.bos : -1);
  const auto feed = [&stream](std::span<const Token> tokens) { return stream.Append(tokens); };
  BALLAST_RETURN_IF_ERROR(Rescue(stream, plan, feed));
  newest_.assign(plan.tail.begin(), plan.tail.end());
  first_ = plan.sinks;
  monitor_.Rescued();
  told_ = Health::kOk;
  ++rescues_;
  rescued_at_ = stream.position();
  Note(fmt::format("[rescued: the newest tokens ({}) were encoded again behind {} sinks]", plan.tail.size(),
                   plan.sinks.size()));
  return true;
}

Status CollapseGuard::StoppedStatus() const {
  if (!stopped_) return Status();
  return Status(Code::kGate, "stopped: the text collapsed, " + Describe(monitor_.verdict()));
}

nlohmann::json CollapseGuard::Json() const {
  const Verdict& v = monitor_.verdict();
  const bool well = v.state == Health::kOk;
  return {{"state", HealthName(v.state)},
          {"reason", well ? nlohmann::json(nullptr) : nlohmann::json(AilmentName(v.reason))},
          {"since", well ? nlohmann::json(nullptr) : nlohmann::json(v.since)},
          {"rescues", rescues_}};
}

}  // namespace ballast::app
