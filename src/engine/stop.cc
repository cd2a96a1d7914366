#include "engine/stop.h"

#include <algorithm>
#include <utility>

namespace ballast {

void StopFilter::Pattern::Step(char c) {
  while (matched > 0 && text[matched] != c) matched = border[matched - 1];
  if (text[matched] == c) ++matched;
}

StopFilter::StopFilter(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern pattern;
    pattern.text = std::move(stop);
    pattern.border.assign(pattern.text.size(), 0);
    // The border table is the automaton run over the pattern itself.
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      pattern.Step(pattern.text[i]);
      pattern.border[i] = pattern.matched;
    }
    pattern.matched = 0;
    patterns_.push_back(std::move(pattern));
  }
}

uint64_t StopFilter::Certain() const {
  uint64_t certain = std::min(seen_, cut_);
  for (const Pattern& p : patterns_) {
    if (!p.found) certain = std::min(certain, seen_ - p.matched);
  }
  return certain;
}

std::string StopFilter::Push(std::string_view text) {
  if (stopped_) return "";
  for (const char c : text) {
    ++seen_;
    for (Pattern& p : patterns_) {
      if (p.found) continue;
      p.Step(c);
      if (p.matched < p.text.size()) continue;
      p.found = true;
      cut_ = std::min(cut_, seen_ - p.text.size());
    }
    if (cut_ != UINT64_MAX && Certain() == cut_) {
      stopped_ = true;
      break;
    }
  }
  held_ += text;
  const auto count = static_cast<size_t>(Certain() - shown_);
  std::string out = held_.substr(0, count);
  held_.erase(0, count);
  shown_ += count;
  if (stopped_) held_.clear();
  return out;
}

std::string StopFilter::Finish() {
  if (stopped_) return "";
  std::string out = std::move(held_);
  held_.clear();
  if (cut_ != UINT64_MAX) {
    stopped_ = true;
    out.resize(static_cast<size_t>(cut_ - shown_));
  }
  shown_ = seen_;
  for (Pattern& p : patterns_) p.matched = 0;  // nothing given back can begin a stop any more
  return out;
}

}  // namespace ballast
