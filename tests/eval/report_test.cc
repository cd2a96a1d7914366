// The page: whole, escaped, and without anything to fetch.
#include "eval/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Report, TextsAreEscapedAndHtmlIsNot) {
  ReportPage page;
  page.title = "a <b> & \"c\"";
  page.verdict = "<failed>";
  page.tone = ReportPage::Tone::kBad;
  page.sections.push_back({"<h>", "<t>", "<svg></svg>", false});
  page.facts = {{"<k>", "<script>"}};
  const std::string html = RenderPage(page);
  EXPECT_THAT(html, HasSubstr("<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>"));
  EXPECT_THAT(html, HasSubstr("page-bad\">&lt;failed&gt;"));
  EXPECT_THAT(html, HasSubstr("<svg></svg>"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  for (const char* fetches : {"http:", "https:", "src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(html, Not(HasSubstr(fetches)));
  }
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
}

TEST(Report, BadCellsAreMarked) {
  const std::string table = HtmlTable({"policy", "ratio"}, {{"sinks", "1.0"}, {"window", "!2.0"}, {"", ""}});
  EXPECT_THAT(table, HasSubstr("<td class=\"page-alarm\">2.0</td>"));
  EXPECT_THAT(table, HasSubstr("<td>1.0</td>"));
  EXPECT_THAT(table, HasSubstr("<th></th><td></td>"));
}

}  // namespace
}  // namespace ballast
