#include "eval/line_assembler.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace ballast {

Fingerprint FingerprintOf(std::string_view bytes) {
  const size_t n = std::min<size_t>(bytes.size(), Fingerprint::kBytes);
  const std::string_view last = bytes.substr(bytes.size() - n);
  return {static_cast<int64_t>(n), XXH3_64bits(last.data(), last.size())};
}

void LineAssembler::StartAt(int64_t offset, std::string_view before) {
  head_.clear();
  length_ = 0;
  offset_ = offset;
  tail_ = before;
  last_ = 0;
}

void LineAssembler::Push(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return Take(bytes);
    Take(bytes.substr(0, end + 1));
    Emit(1);
    bytes.remove_prefix(end + 1);
  }
}

void LineAssembler::Finish() {
  if (length_ > 0) Emit(0);
}

LogLine LineAssembler::Pop() {
  LogLine line = std::move(lines_.front());
  lines_.pop_front();
  queued_ -= line.bytes;
  return line;
}

void LineAssembler::Take(std::string_view bytes) {
  if (head_.size() < keep_) head_ += bytes.substr(0, keep_ - head_.size());
  length_ += static_cast<int64_t>(bytes.size());
  offset_ += static_cast<int64_t>(bytes.size());
  const bool ends = bytes.back() == '\n';
  if (bytes.size() > (ends ? 1 : 0)) last_ = bytes[bytes.size() - (ends ? 2 : 1)];
  tail_ += bytes.substr(bytes.size() - std::min<size_t>(bytes.size(), Fingerprint::kBytes));
  if (tail_.size() > Fingerprint::kBytes) tail_.erase(0, tail_.size() - Fingerprint::kBytes);
}

// The unfinished line ends here, with `end_bytes` of line end.
void LineAssembler::Emit(int64_t end_bytes) {
  LogLine line;
  line.offset = offset_ - length_;
  line.bytes = length_;
  line.partial = end_bytes == 0;
  const int64_t cr = end_bytes > 0 && length_ > 1 && last_ == '\r' ? 1 : 0;
  const auto text = static_cast<size_t>(length_ - end_bytes - cr);
  line.truncated = text > keep_;
  line.text = std::move(head_);
  line.text.resize(std::min(text, line.text.size()));
  line.after = place();
  queued_ += line.bytes;
  lines_.push_back(std::move(line));
  head_.clear();
  length_ = 0;
  last_ = 0;
}

}  // namespace ballast
