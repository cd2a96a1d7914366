// MarkedText: UTF-8 text that remembers which of its bytes came from outside the template.
//
// Purpose: a rendered prompt must say which control tokens the template wrote and which a user typed. Every
// string of the interpreter is a MarkedText, and every operation carries the marks along, so the answer does
// not depend on what a template does with a message (trim, split, concatenate, slice).
// Thread safety: a plain value. Invariants: 1. `flips` is strictly increasing and below size(); the text
// opens as the template's own and changes sides at each flip. 2. An operation that cannot say which byte came
// from where marks its whole result as data: data never becomes template text.
#ifndef BALLAST_TEXT_JINJA_TEXT_H_
#define BALLAST_TEXT_JINJA_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ballast {

class MarkedText {
 public:
  MarkedText() = default;
  explicit MarkedText(std::string text, bool data = false) : text_(std::move(text)) {
    if (data && !text_.empty()) flips_.push_back(0);
  }

  const std::string& str() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  bool HasData() const { return !flips_.empty(); }
  size_t MemoryBytes() const { return text_.size() + flips_.size() * sizeof(uint32_t); }

  void Append(const MarkedText& other) { AppendRange(other, 0, other.size()); }
  void AppendRange(const MarkedText& other, size_t from, size_t count);
  void Append(std::string_view text, bool data);
  // REQUIRES: from + count <= size().
  MarkedText Sub(size_t from, size_t count) const;

  struct Run {
    std::string_view text;
    bool data = false;
  };
  // Maximal runs of one side, in order.
  std::vector<Run> Runs() const;

 private:
  void SetSide(bool data) {
    if (data != ((flips_.size() & 1) != 0)) flips_.push_back(static_cast<uint32_t>(text_.size()));
  }

  std::string text_;
  std::vector<uint32_t> flips_;  // strings are bounded far below 4 GiB by the interpreter's budget
};

// Characters as Python counts them; a byte that belongs to no well-formed character counts as one.
size_t JinjaCharBytes(std::string_view text, size_t at);                // of the character at `at`
char32_t JinjaDecode(std::string_view text, size_t at, size_t* bytes);  // a stray byte decodes to itself
void JinjaEncode(char32_t c, std::string* out);                         // appends UTF-8
size_t JinjaCountChars(std::string_view text);
bool JinjaIsSpace(char32_t c);  // Python's str.isspace

}  // namespace ballast

#endif  // BALLAST_TEXT_JINJA_TEXT_H_
