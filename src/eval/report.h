// One self-contained HTML page about an evaluation: no script, no font, no address is fetched.
//
// It follows the reader's light or dark scheme, as the pictures in it do (eval/plot.h). Texts are escaped
// here; `html` parts are taken as they are. Thread safety: pure functions.
#ifndef BALLAST_EVAL_REPORT_H_
#define BALLAST_EVAL_REPORT_H_

#include <string>
#include <utility>
#include <vector>

namespace ballast {

struct ReportPage {
  std::string title;
  std::string subtitle;
  enum class Tone { kPlain, kGood, kBad };
  Tone tone = Tone::kPlain;
  std::string verdict;  // the one sentence to take away; empty: none
  struct Section {
    std::string heading;
    std::string text;  // a paragraph; empty: none
    std::string html;  // a picture or a table
    bool folded = false;
  };
  std::vector<Section> sections;
  std::vector<std::pair<std::string, std::string>> facts;  // name, value; shown last
  std::string footer;
};
std::string RenderPage(const ReportPage& page);

// The first cell of a row is its head. Cells that start with '!' are shown as bad, without it.
std::string HtmlTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows);

}  // namespace ballast

#endif  // BALLAST_EVAL_REPORT_H_
