// The shape of a Jinja chat template: what it prints, in one normal form, so that formats can be told apart
// by their strings whatever quotes, spacing, tags or string concatenation the author chose.
//
// Nothing is evaluated. Any bytes are accepted; linear time. Thread safety: const after construction.
#ifndef BALLAST_TEXT_TEMPLATE_SHAPE_H_
#define BALLAST_TEXT_TEMPLATE_SHAPE_H_

#include <optional>
#include <string>
#include <string_view>

namespace ballast {

class TemplateShape {
 public:
  explicit TemplateShape(std::string_view jinja);

  // Whether the pattern occurs. In a pattern ` opens and ' closes a literal, and * is one expression:
  // "<|user|>'*`<|end|>" is that text, a printed value, then the other text. Adjacent literals are joined,
  // message['role'] reads message.role, and other code has lost its spaces.
  bool Has(std::string_view pattern) const;
  // The text between `before` and `after` where one literal holds all three and the text is not empty.
  std::optional<std::string> Between(std::string_view before, std::string_view after) const;

 private:
  bool MatchesAt(size_t at, std::string_view wanted) const;
  std::string shape_;  // literals between \1 and \2, blocks in {% %}, expressions
};

}  // namespace ballast

#endif  // BALLAST_TEXT_TEMPLATE_SHAPE_H_
