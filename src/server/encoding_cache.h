// EncodingCache: a tokenizer that remembers the ids of long texts for as long as somebody holds it.
//
// Purpose: megabytes of a request are encoded beside the engine's thread, so that no reply waits for them,
// and found here when the request begins; which pieces of a prompt are encoded is the chat format's matter.
// Thread safety: any thread. Invariants: 1. ids are those of the wrapped tokenizer. 2. empty while nobody
// holds it, and never more than kMostBytes.
#ifndef BALLAST_SERVER_ENCODING_CACHE_H_
#define BALLAST_SERVER_ENCODING_CACHE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ballast::server {

class EncodingCache : public Tokenizer {
 public:
  static constexpr size_t kLongText = 32 << 10;            // bytes; shorter ones are encoded as they come
  static constexpr size_t kMostBytes = size_t{128} << 20;  // texts and ids together

  explicit EncodingCache(const Tokenizer& inner) : inner_(inner) {}  // which must outlive it

  // Long texts are remembered until the last of these is gone.
  std::shared_ptr<void> Hold();
  // From now on long texts are not encoded to their end: for a server that stops, whose requests are refused.
  void Stop() { stop_.store(true, std::memory_order_relaxed); }
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }
  // How many texts are remembered.
  size_t count() const;

  std::vector<Token> Encode(std::string_view text, const EncodeOptions& options) const override;
  using Tokenizer::Encode;
  std::string_view Piece(Token id, bool special) const override { return inner_.Piece(id, special); }
  std::string Decode(const std::vector<Token>& ids, bool special) const override {
    return inner_.Decode(ids, special);
  }
  int64_t size() const override { return inner_.size(); }
  const Vocab& vocab() const override { return inner_.vocab(); }
  bool IsControl(Token id) const override { return inner_.IsControl(id); }
  bool EndsTurn(Token id) const override { return inner_.EndsTurn(id); }
  Token Find(std::string_view text) const override { return inner_.Find(text); }

 private:
  struct Entry {
    std::string text;
    bool add_special, parse_special, leading_space;
    std::vector<Token> ids;
    size_t bytes() const { return text.size() + ids.size() * sizeof(Token); }
  };
  void Remember(Entry entry) const;

  const Tokenizer& inner_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  mutable std::list<Entry> entries_;  // the newest first
  mutable size_t bytes_ = 0;
  int holders_ = 0;
};

}  // namespace ballast::server

#endif  // BALLAST_SERVER_ENCODING_CACHE_H_
