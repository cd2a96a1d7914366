#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "app.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kQuiet = std::chrono::milliseconds(200);   // work shorter than this shows nothing
constexpr auto kRefresh = std::chrono::milliseconds(80);  // between two drawings
constexpr int kBarColumns = 24;

}  // namespace

struct Progress::State {
  std::string label;
  Clock::time_point started = Clock::now();
  Clock::time_point drawn_at;
  bool live = StyledStderr();
  bool drawn = false;

  // True when it is time to draw again.
  bool Due() {
    if (!live) return false;
    const auto now = Clock::now();
    if (now - started < kQuiet || (drawn && now - drawn_at < kRefresh)) return false;
    drawn_at = now;
    drawn = true;
    return true;
  }
};

Progress::Progress(const std::string& label) : state_(std::make_unique<State>()) {
  // A line that wraps could not be redrawn.
  const int room = TerminalColumns() - kBarColumns - 10;
  state_->label = label.substr(0, static_cast<size_t>(std::max(0, room)));
}
Progress::~Progress() { Done(); }

void Progress::Update(double share) {
  if (!state_->Due()) return;
  const std::string line = fmt::format("\r\x1b[K{}  {} {:3.0f}%", Paint(Ink::kDim, state_->label, true),
                                       Paint(Ink::kAccent, Bar(share, kBarColumns), true), share * 100);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Progress::Count(int64_t tokens) {
  if (!state_->Due()) return;
  const std::string line =
      fmt::format("\r\x1b[K{}", Paint(Ink::kDim, state_->label + "  " + Grouped(tokens) + " tokens", true));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Progress::Done() {
  if (state_->drawn) std::fputs("\r\x1b[K", stderr);
  state_->drawn = false;
  state_->live = false;
}

}  // namespace ballast::app
