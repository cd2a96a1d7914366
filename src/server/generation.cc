#include "server/generation.h"

#include <algorithm>
#include <iterator>

namespace ballast::server {
namespace {

using std::chrono::steady_clock;

double Seconds(steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

size_t Weight(const TokenReport& token) {
  return sizeof(TokenReport) + token.bytes.size() + token.top.size() * (sizeof(TokenScore) + 8);
}

// The longest start of `text` of at most `limit` bytes that ends between characters.
size_t CutAt(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text.size();
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

}  // namespace

Inbox::Inbox(std::function<void()> wake, HttpCounters* counters)
    : wake_(std::move(wake)), counters_(counters) {}

void Inbox::OnStart(const Usage& usage) {
  {
    const std::lock_guard lock(mutex_);
    news_.started = usage;
  }
  wake_();
}

void Inbox::OnProgress(int64_t done, int64_t total) {
  {
    const std::lock_guard lock(mutex_);
    news_.prompt_done = done;
    news_.prompt_total = total;
  }
  wake_();
}

void Inbox::Measure() {
  const steady_clock::time_point now = steady_clock::now();
  if (!last_text_) {
    counters_->time_to_first_token_seconds.Observe(Seconds(now - began_));
  } else {
    counters_->inter_token_seconds.Observe(Seconds(now - *last_text_));
  }
  last_text_ = now;
}

void Inbox::OnText(std::string_view text, const std::vector<TokenReport>& tokens) {
  std::function<void()> overflow;
  {
    const std::lock_guard lock(mutex_);
    if (counters_ != nullptr) Measure();
    text_ += text;
    held_bytes_ += text.size();
    for (const TokenReport& token : tokens) {
      held_bytes_ += Weight(token);
      tokens_.push_back(token);
    }
    if (held_bytes_ > kMaxHeldBytes) overflow = std::exchange(overflow_, nullptr);
  }
  if (overflow) overflow();
  wake_();
}

void Inbox::OnFinish(Finish finish, const Usage& usage) {
  {
    const std::lock_guard lock(mutex_);
    news_.finish = finish;
    news_.usage = usage;
  }
  wake_();
}

void Inbox::OnError(const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    news_.error = error;
  }
  wake_();
}

void Inbox::SetOverflow(std::function<void()> overflow) {
  const std::lock_guard lock(mutex_);
  overflow_ = std::move(overflow);
}

News Inbox::Take(size_t max_bytes, bool all) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = all ? text_.size() : CutAt(text_, max_bytes);
  const size_t count = all ? tokens_.size() : std::min(tokens_.size(), kMaxTokens);
  News taken = news_;
  news_ = News();
  taken.text = text_.substr(0, bytes);
  text_.erase(0, bytes);
  const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(count);
  taken.tokens.assign(std::make_move_iterator(tokens_.begin()), std::make_move_iterator(end));
  tokens_.erase(tokens_.begin(), end);
  held_bytes_ = text_.size();
  for (const TokenReport& token : tokens_) held_bytes_ += Weight(token);
  if (!text_.empty() || !tokens_.empty()) {  // the end comes last
    news_.finish = std::exchange(taken.finish, std::nullopt);
    news_.usage = taken.usage;
    news_.error = std::exchange(taken.error, std::nullopt);
  }
  return taken;
}

Generation::Generation(Service& service, HttpCounters* counters, std::vector<Request> requests, bool bounded)
    : service_(service), counters_(counters), bounded_(bounded), requests_(std::move(requests)) {}

Generation::~Generation() { CancelAll(); }

void Generation::Start(const std::function<void()>& wake) {
  for (Request& request : requests_) {
    Run run;
    run.inbox = std::make_shared<Inbox>(wake, counters_);
    run.ticket = service_.Submit(std::move(request), run.inbox);
    if (bounded_)
      run.inbox->SetOverflow([service = &service_, ticket = run.ticket] { service->Cancel(ticket); });
    runs_.push_back(std::move(run));
  }
  requests_.clear();
}

News Generation::Take(size_t i, size_t max_bytes, bool all) {
  News news = runs_[i].inbox->Take(max_bytes, all);
  if (news.finish || news.error) runs_[i].ended = true;
  return news;
}

void Generation::CancelAll() {
  for (Run& run : runs_) {
    if (!std::exchange(run.ended, true)) service_.Cancel(run.ticket);
  }
}

}  // namespace ballast::server
