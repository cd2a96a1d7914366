#include "server/encoding_cache.h"

#include <algorithm>
#include <utility>

namespace ballast::server {

std::shared_ptr<void> EncodingCache::Hold() {
  const std::lock_guard lock(mutex_);
  ++holders_;
  return std::shared_ptr<void>(this, [this](void*) {
    const std::lock_guard release(mutex_);
    if (--holders_ > 0) return;
    entries_.clear();
    bytes_ = 0;
  });
}

size_t EncodingCache::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::vector<Token> EncodingCache::Encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() < kLongText) return inner_.Encode(text, options);
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.text == text && entry.add_special == options.add_special &&
          entry.parse_special == options.parse_special && entry.leading_space == options.leading_space) {
        return entry.ids;
      }
    }
  }
  EncodeOptions stoppable = options;
  stoppable.stop = &stop_;
  std::vector<Token> ids = inner_.Encode(text, stoppable);
  Remember({std::string(text), options.add_special, options.parse_special, options.leading_space, ids});
  return ids;
}

void EncodingCache::Remember(Entry entry) const {
  const std::lock_guard lock(mutex_);
  if (holders_ == 0 || stopped() || entry.bytes() > kMostBytes) return;
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (bytes_ > kMostBytes) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
}

}  // namespace ballast::server
