// The law of the cache against a dumb model: a deque that really moves things.
#include "cache/layout.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace ballast {
namespace {

// What the paper does: a list of kept tokens; eviction removes the oldest unpinned one; a token's position is
// its index.
class DumbCache {
 public:
  DumbCache(int64_t pinned, int64_t window) : pinned_(pinned), window_(window) {}
  void Append() {
    if (next_ < pinned_) {
      sinks_.push_back(next_);
    } else {
      recent_.push_back(next_);
      if (static_cast<int64_t>(recent_.size()) > window_) recent_.pop_front();
    }
    ++next_;
  }
  void DropBefore(int64_t x) {
    while (!recent_.empty() && recent_.front() < x) recent_.pop_front();
  }
  std::vector<int64_t> Live() const {
    std::vector<int64_t> all(sinks_.begin(), sinks_.end());
    all.insert(all.end(), recent_.begin(), recent_.end());
    return all;
  }
  const std::deque<int64_t>& recent() const { return recent_; }
  int64_t next() const { return next_; }

 private:
  int64_t pinned_, window_, next_ = 0;
  std::deque<int64_t> sinks_, recent_;
};

void CheckMoment(const Layout& law, const DumbCache& dumb, int64_t floor, std::vector<int64_t>& slot_owner) {
  const int64_t t = dumb.next() - 1;  // the newest token
  const int64_t start = law.Start(t, floor);
  const std::vector<int64_t> live = dumb.Live();
  // Live positions, by the law.
  std::vector<int64_t> lawful;
  for (int64_t p = 0; p < std::min(law.pinned, t + 1); ++p) lawful.push_back(p);
  for (int64_t p = start; p <= t; ++p) lawful.push_back(p);
  ASSERT_EQ(lawful, live) << "at position " << t;
  // Slots are distinct, in range, and still hold the token they were given.
  for (size_t i = 0; i < live.size(); ++i) {
    const int64_t slot = law.Slot(live[i]);
    ASSERT_GE(slot, 0);
    ASSERT_LT(slot, law.capacity());
    ASSERT_EQ(slot_owner[static_cast<size_t>(slot)], live[i]);
    // In-cache positions run 0, 1, 2, ... in list order.
    ASSERT_EQ(law.InCache(live[i], start), static_cast<int64_t>(i));
  }
  // Runs cover exactly the window, in order.
  std::vector<int64_t> from_runs;
  for (const Layout::Run& run : law.Runs(start, t + 1)) {
    for (int64_t i = 0; i < run.count; ++i) {
      ASSERT_EQ(law.Slot(run.first_position + i), run.slot + i);
      from_runs.push_back(run.first_position + i);
    }
  }
  ASSERT_EQ(from_runs, std::vector<int64_t>(dumb.recent().begin(), dumb.recent().end()));
}

TEST(Layout, AgreesWithADequeOver100000RandomSteps) {
  std::mt19937_64 rng(1);
  int64_t steps = 0;
  while (steps < 100000) {
    const Layout law{static_cast<int64_t>(rng() % 9), static_cast<int64_t>(1 + rng() % 40)};
    DumbCache dumb(law.pinned, law.window);
    std::vector<int64_t> slot_owner(static_cast<size_t>(law.capacity()), -1);
    int64_t floor = 0;
    for (int i = 0; i < 500; ++i, ++steps) {
      slot_owner[static_cast<size_t>(law.Slot(dumb.next()))] = dumb.next();
      dumb.Append();
      if (rng() % 50 == 0) {  // drop whole turns
        floor = std::max(floor, static_cast<int64_t>(rng() % static_cast<uint64_t>(dumb.next() + 1)));
        floor = std::min(floor, dumb.next() - 1);
        dumb.DropBefore(floor);
      }
      CheckMoment(law, dumb, floor, slot_owner);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Layout, ASlotIsReusedExactlyOneWindowLater) {
  const Layout law{4, 10};
  for (int64_t t = 4; t < 100; ++t) {
    EXPECT_EQ(law.Slot(t), law.Slot(t + law.window));
    for (int64_t d = 1; d < law.window; ++d) EXPECT_NE(law.Slot(t), law.Slot(t + d));
  }
}

TEST(Layout, PinnedSlotsAreNeverReused) {
  const Layout law{4, 7};
  for (int64_t t = 4; t < 1000; ++t) EXPECT_GE(law.Slot(t), 4);
}

TEST(Layout, WorksAtPositionsFarBeyondInt32) {
  const Layout law{4, 1020};
  const int64_t t = int64_t{1} << 50;
  EXPECT_EQ(law.Start(t), t - 1019);
  EXPECT_EQ(law.InCache(t, law.Start(t)), 1023);
  EXPECT_EQ(law.Slot(t), 4 + (t - 4) % 1020);
}

// The law is usable at compile time: pure integers, no memory.
static_assert(Layout{4, 3}.Slot(7) == 4);
static_assert(Layout{4, 3}.InCache(9, 7) == 6);

}  // namespace
}  // namespace ballast
