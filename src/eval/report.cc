#include "eval/report.h"

#include <string_view>

#include "eval/plot.h"

namespace ballast {
namespace {

// Class names differ from those of the pictures, whose style sheets reach the whole page.
constexpr std::string_view kSheet = R"(<style>
:root{color-scheme:light dark;--paper:#fff;--text:#1f2328;--quiet:#59636e;--rule:#d8dee4;--good:#1a7f37;--bad:#cf222e;
--tint:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--text:#e6edf3;--quiet:#9198a1;--rule:#2b3138;--good:#3fb950;
--bad:#ff7b72;--tint:#151b23}}
body{margin:0;background:var(--paper);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
main{max-width:880px;margin:0 auto;padding:32px 16px 48px}
h1{font-size:26px;line-height:1.25;margin:0}h2{font-size:18px;margin:36px 0 8px}
.page-sub{color:var(--quiet);margin:4px 0 0}
.page-verdict{margin:20px 0 0;padding:12px 16px;border-left:5px solid var(--quiet);background:var(--tint);font-size:17px}
.page-good{border-color:var(--good)}.page-bad{border-color:var(--bad)}
.page-wide{overflow-x:auto}.page-wide svg{display:block;max-width:100%;height:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}thead th{color:var(--quiet);font-weight:600}
tbody th{font-weight:400}.page-alarm{color:var(--bad);font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0}dt{color:var(--quiet)}
dd{margin:0;overflow-wrap:anywhere}summary{cursor:pointer;color:var(--quiet);margin:8px 0}
footer{margin-top:40px;padding-top:12px;border-top:1px solid var(--rule);color:var(--quiet);font-size:13px}
@media (max-width:560px){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}}
@media print{body{background:#fff;color:#000}}
</style>
)";

std::string Element(std::string_view tag, std::string_view css, std::string_view text) {
  std::string out = "<" + std::string(tag);
  if (!css.empty()) out += " class=\"" + std::string(css) + "\"";
  return out + ">" + EscapeXml(text) + "</" + std::string(tag) + ">";
}

std::string SectionHtml(const ReportPage::Section& section) {
  std::string out = "<section>" + Element("h2", "", section.heading) + "\n";
  if (!section.text.empty()) out += Element("p", "", section.text) + "\n";
  if (section.folded) out += "<details><summary>Show</summary>";
  out += "<div class=\"page-wide\">" + section.html + "</div>";
  if (section.folded) out += "</details>";
  return out + "</section>\n";
}

}  // namespace

std::string RenderPage(const ReportPage& page) {
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  out += Element("title", "", page.title) + "\n";
  out += kSheet;
  out += "</head><body><main>\n" + Element("h1", "", page.title) + "\n";
  if (!page.subtitle.empty()) out += Element("p", "page-sub", page.subtitle) + "\n";
  if (!page.verdict.empty()) {
    const std::string_view tone = page.tone == ReportPage::Tone::kGood  ? " page-good"
                                  : page.tone == ReportPage::Tone::kBad ? " page-bad"
                                                                        : "";
    out += Element("p", "page-verdict" + std::string(tone), page.verdict) + "\n";
  }
  for (const ReportPage::Section& section : page.sections) out += SectionHtml(section);
  if (!page.facts.empty()) {
    out += "<section><h2>How this was made</h2><dl>\n";
    for (const auto& [name, value] : page.facts) {
      out += Element("dt", "", name) + Element("dd", "", value) + "\n";
    }
    out += "</dl></section>\n";
  }
  if (!page.footer.empty()) out += Element("footer", "", page.footer) + "\n";
  return out + "</main></body></html>\n";
}

std::string HtmlTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table><thead><tr>";
  for (const std::string& cell : head) out += Element("th", "", cell);
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool bad = !row[i].empty() && row[i].front() == '!';
      out += Element(i == 0 ? "th" : "td", bad ? "page-alarm" : "", std::string_view(row[i]).substr(bad));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table>";
}

}  // namespace ballast
