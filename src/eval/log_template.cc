#include "eval/log_template.h"

#include <xxhash.h>

#include <algorithm>

namespace ballast {
bool IsCalendarWord(std::string_view word) {
  constexpr std::string_view kWords =
      "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun";
  return word.size() == 3 && word.find(' ') == std::string_view::npos &&
         kWords.find(word) != std::string_view::npos;
}

std::string MaskLine(std::string_view line, size_t most) {
  std::string out;
  ForEachPart(line, [&](std::string_view part, bool masked) {
    if (out.size() >= most) return;
    if (masked) {
      out += '#';
    } else {
      out += part.substr(0, most - out.size());
    }
  });
  while (!out.empty() && (out.back() == ' ' || out.back() == '\t')) out.pop_back();
  return out;
}

std::vector<uint8_t> MaskedBytes(std::string_view line) {
  std::vector<uint8_t> bytes;
  bytes.reserve(line.size());
  ForEachPart(line,
              [&](std::string_view part, bool masked) { bytes.insert(bytes.end(), part.size(), masked); });
  return bytes;
}

uint64_t TemplateHash(std::string_view line) {
  const std::string masked = MaskLine(line);
  return XXH3_64bits(masked.data(), masked.size());
}

TemplateTable::Entry TemplateTable::Find(uint64_t hash) const {
  const auto found = entries_.find(hash);
  return found == entries_.end() ? Entry{.hash = hash} : found->second;
}

void TemplateTable::Observe(uint64_t hash) {
  ++total_;
  Entry& e = entries_[hash];
  e.hash = hash;
  ++e.count;
  e.last = total_;
  if (entries_.size() > kMostTemplates) Forget();
}

void TemplateTable::Forget() {
  std::vector<int64_t> last;
  last.reserve(entries_.size());
  for (const auto& [hash, entry] : entries_) last.push_back(entry.last);
  const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
  std::nth_element(last.begin(), middle, last.end());
  std::erase_if(entries_, [&](const auto& item) { return item.second.last < *middle; });
}

std::vector<TemplateTable::Entry> TemplateTable::Entries() const {
  std::vector<Entry> all;
  all.reserve(entries_.size());
  for (const auto& [hash, entry] : entries_) all.push_back(entry);
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.hash < b.hash; });
  return all;
}

void TemplateTable::Restore(int64_t total, std::span<const Entry> entries) {
  total_ = total;
  entries_.clear();
  for (const Entry& entry : entries) entries_[entry.hash] = entry;
}

}  // namespace ballast
