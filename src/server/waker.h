// Wakes one waiting coroutine of the HTTP thread from any thread.
//
// Thread safety: Wake from any thread; the rest on the HTTP thread. Invariants: 1. a wake between two waits
// is not lost. 2. many wakes before one wait are one. 3. the io_context lives as long as a Waker, so that the
// engine may wake after the server has gone.
#ifndef BALLAST_SERVER_WAKER_H_
#define BALLAST_SERVER_WAKER_H_

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <utility>  // before Boost 1.74's coroutines, which forget it

namespace ballast::server {

class Waker : public std::enable_shared_from_this<Waker> {
 public:
  explicit Waker(std::shared_ptr<boost::asio::io_context> io) : io_(std::move(io)), timer_(*io_) {}

  void Wake() {
    if (posted_.exchange(true)) return;
    // Weak: a handler left in a stopped io_context must not keep it alive.
    boost::asio::post(*io_, [weak = weak_from_this()] {
      if (const std::shared_ptr<Waker> self = weak.lock()) self->Notify();
    });
  }
  // The same, on the HTTP thread.
  void Notify() {
    posted_ = false;
    woken_ = true;
    timer_.cancel();
  }
  // false: nobody woke it for `time`.
  boost::asio::awaitable<bool> Wait(std::chrono::milliseconds time) {
    if (!std::exchange(woken_, false)) {
      timer_.expires_after(time);
      boost::system::error_code ignored;
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
      co_return std::exchange(woken_, false);
    }
    co_return true;
  }

 private:
  const std::shared_ptr<boost::asio::io_context> io_;
  boost::asio::steady_timer timer_;
  std::atomic<bool> posted_{false};
  bool woken_ = false;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_WAKER_H_
