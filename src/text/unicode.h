// Unicode as tokenizers need it: classes of characters, normal forms, lower case.
//
// Thread safety: pure functions. Texts are UTF-8. Invariant: every function takes time linear in its text but
// for sorting runs of marks (n log n), whatever the text.
#ifndef BALLAST_TEXT_UNICODE_H_
#define BALLAST_TEXT_UNICODE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

// The code point at `at`, and its bytes. REQUIRES: a well-formed character begins there.
uint32_t DecodeUtf8(std::string_view text, size_t at, size_t* bytes);
void AppendUtf8(uint32_t c, std::string* out);

bool IsSpace(uint32_t c);          // White_Space
bool IsNumber(uint32_t c);         // Nd, Nl, No
bool IsPunctuation(uint32_t c);    // P*, and the ASCII symbols
bool IsMark(uint32_t c);           // Mn, Mc, Me
bool IsWordCharacter(uint32_t c);  // alphabetic, marks, decimal digits, connectors, joiners

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string Normalize(NormalForm form, std::string_view text);
std::string LowerCase(std::string_view text);  // character by character, without context

}  // namespace ballast

#endif  // BALLAST_TEXT_UNICODE_H_
