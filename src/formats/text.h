// Text from a hostile file, made fit for a one-line message.
#ifndef BALLAST_FORMATS_TEXT_H_
#define BALLAST_FORMATS_TEXT_H_

#include <string>
#include <string_view>

namespace ballast {

// 'name' in quotes: bytes outside printable ASCII as \xNN, quote and backslash escaped, cut after 80 bytes.
std::string QuoteName(std::string_view name);

}  // namespace ballast

#endif  // BALLAST_FORMATS_TEXT_H_
