// Log templates: what stays of a line when its numbers and ids are masked, and what is known of each.
//
// Template: every run of letters and digits that holds a digit becomes '#', and so does an English month's or
// weekday's short name, so that "Nov 30 worker 3570 exited" and "Dec 1 worker 81 exited" are one. Thread
// safety: one thread. Invariants: 1. memory is bounded: at most kMostTemplates are known; beyond that the
// half that was not seen for longest is forgotten. 2. what the table holds depends only on the lines, in
// order.
#ifndef BALLAST_EVAL_LOG_TEMPLATE_H_
#define BALLAST_EVAL_LOG_TEMPLATE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ballast {

// "Jan" to "Dec", "Mon" to "Sun": they change with the calendar, not with what happens.
bool IsCalendarWord(std::string_view word);

// Cuts a line into words (runs of letters, digits and bytes beyond ASCII) and single other bytes, and calls
// visit(part, whether it is masked: a word with a digit or of the calendar) for each. Parts point into the
// line.
template <typename Visit>
void ForEachPart(std::string_view line, const Visit& visit) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto word = [&](char c) {
    return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  for (size_t i = 0; i < line.size();) {
    size_t end = i;
    bool digits = false;
    for (; end < line.size() && word(line[end]); ++end) digits = digits || digit(line[end]);
    if (end == i) ++end;
    const std::string_view part = line.substr(i, end - i);
    visit(part, digits || IsCalendarWord(part));
    i = end;
  }
}

// At most `most` bytes of the masked line; blanks at its end are dropped.
std::string MaskLine(std::string_view line, size_t most = 512);
uint64_t TemplateHash(std::string_view line);
// For each byte of the line: 1 when it is masked, else 0.
std::vector<uint8_t> MaskedBytes(std::string_view line);

class TemplateTable {
 public:
  static constexpr size_t kMostTemplates = 1 << 16;

  // A trivially copyable record, saved as it is.
  struct Entry {
    uint64_t hash = 0;
    int64_t count = 0;  // lines of this template so far
    int64_t last = 0;   // total() when it was seen last
  };

  // What is known of the template before this line; count 0 when it is new.
  Entry Find(uint64_t hash) const;
  // Counts a line of it.
  void Observe(uint64_t hash);
  int64_t total() const { return total_; }  // lines ever

  // For snapshots: every entry, by hash.
  std::vector<Entry> Entries() const;
  void Restore(int64_t total, std::span<const Entry> entries);

 private:
  void Forget();
  int64_t total_ = 0;
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace ballast

#endif  // BALLAST_EVAL_LOG_TEMPLATE_H_
