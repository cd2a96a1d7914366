// What the terminal can show. Everything here is false or plain off a terminal, under NO_COLOR and TERM=dumb.
#ifndef BALLAST_APPS_TERMINAL_H_
#define BALLAST_APPS_TERMINAL_H_

#include <string>
#include <string_view>

namespace ballast::app {

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();
bool StyledStderr();    // colour and redrawing are welcome on stderr
bool StyledStdout();    // and on stdout
bool Utf8Locale();      // the terminal shows more than ASCII
int TerminalColumns();  // of stderr, at least 40

enum class Ink { kDim, kBold, kAccent, kWarn };
std::string Paint(Ink ink, std::string_view text, bool styled);

std::string Bytes(double bytes);               // "11.2 MiB"
std::string Grouped(int64_t number);           // "1,234,567"
std::string Number(double value, int digits);  // "3.14"; what is not finite is "no number"
std::string Bar(double share, int columns);    // "━━━━────"

}  // namespace ballast::app

#endif  // BALLAST_APPS_TERMINAL_H_
