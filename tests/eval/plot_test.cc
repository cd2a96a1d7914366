// Pictures: honest axes, and no text of the outside world can break the XML.
#include "eval/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CurvePlot Plot(std::vector<PlotPoint> points) {
  CurvePlot plot;
  plot.title = "a < b & \"c\"";
  plot.x_label = "tokens";
  plot.y_label = "perplexity";
  plot.curves.push_back({"one", 0, std::move(points)});
  plot.marks.push_back({50, "full"});
  return plot;
}

TEST(Plot, LinearAxisStartsAtZeroAndLogSaysSo) {
  const std::string narrow = RenderCurves(Plot({{0, 10}, {100, 20}}));
  EXPECT_THAT(narrow, Not(HasSubstr("log scale")));
  EXPECT_THAT(narrow, HasSubstr(">0</text>"));
  const std::string wide = RenderCurves(Plot({{0, 10}, {100, 90}}));
  EXPECT_THAT(wide, HasSubstr("(log scale)"));
  EXPECT_THAT(wide, HasSubstr(">20</text>"));
  EXPECT_THAT(wide, HasSubstr(">50</text>"));
}

TEST(Plot, TextIsEscaped) {
  const std::string svg = RenderCurves(Plot({{0, 10}, {100, 20}}));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("a < b")));
  EXPECT_EQ(EscapeXml(std::string("x\0\n\x1by", 5)), "x   y");
}

TEST(Plot, BothSchemesAndNoScript) {
  const std::string svg = RenderCurves(Plot({{0, 10}, {100, 20}}));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
}

// A model that breaks down gives infinities; they leave a gap and no "inf" or "nan" in a path.
TEST(Plot, NonNumbersBreakTheLine) {
  const std::string svg = RenderCurves(Plot({{0, 10}, {25, 12}, {50, INFINITY}, {75, NAN}, {100, 11}}));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  const size_t path = svg.find("d=\"M", svg.find("one</text>"));
  ASSERT_NE(path, std::string::npos);
  const std::string d = svg.substr(path, svg.find("\"/>", path) - path);
  EXPECT_EQ(std::count(d.begin(), d.end(), 'M'), 2) << d;
  for (const auto& points : {std::vector<PlotPoint>{}, {{0, NAN}}, {{10, 5}}}) {
    EXPECT_THAT(RenderCurves(Plot(points)), HasSubstr("</svg>"));
  }
}

// Straight places of the curve's points, from the drawing itself: twice the value is twice the height.
TEST(Plot, HeightsAreProportional) {
  const std::string svg = RenderCurves(Plot({{0, 10}, {100, 20}}));
  const size_t at = svg.find("d=\"M", svg.find("one</text>")) + 4;
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  ASSERT_EQ(std::sscanf(svg.c_str() + at, "%lf %lfL%lf %lf", &x0, &y0, &x1, &y1), 4);
  const double zero = 420;  // the axis
  EXPECT_NEAR((zero - y1) / (zero - y0), 2.0, 0.01);
}

TEST(Plot, TicksAreRoundNumbers) {
  EXPECT_THAT(LinearTicks(0, 12000, 12),
              ElementsAre(0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 11000, 12000));
  EXPECT_THAT(LogTicks(9, 110), ElementsAre(10, 20, 30, 50, 70, 100));
  EXPECT_THAT(LogTicks(9, 1100), ElementsAre(10, 20, 50, 100, 200, 500, 1000));
  EXPECT_TRUE(LinearTicks(1, 1, 5).empty());
  EXPECT_TRUE(LogTicks(0, 10).empty());
}

TEST(Plot, HeatMapHasACellPerHead) {
  HeatPlot plot;
  plot.title = "map";
  plot.row_label = "layer";
  plot.column_label = "head";
  plot.values = {{0, 0.5, 1}, {2, -1, NAN}};
  const std::string svg = RenderHeatMap(plot);
  size_t cells = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++cells;
  EXPECT_EQ(cells, 6u);
  EXPECT_THAT(svg, HasSubstr("layer 0, head 1: 0.500"));
  EXPECT_THAT(RenderHeatMap(HeatPlot{}), HasSubstr("</svg>"));
}

// Long labels used to run out of the picture, and labels of neighbouring marks over each other.
TEST(Curves, LabelsKeepOutOfEachOthersWay) {
  CurvePlot plot;
  for (int i = 0; i < 4; ++i) {
    plot.curves.push_back({"a policy with rather a long name " + std::to_string(i), i, {{0, 1}, {1000, 2}}});
  }
  plot.marks = {{100, "cache of 128 full"}, {150, "trained length"}, {900, "far away"}};
  const std::string svg = RenderCurves(plot);
  std::map<std::string, std::pair<double, double>> places;  // label -> x, y
  for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1)) {
    double x = 0, y = 0;
    char label[80];
    if (std::sscanf(svg.c_str() + at,
                    "<text class=\"%*[a-z ]\" x=\"%lf\" y=\"%lf\" text-anchor=\"start\">%79[^<]<", &x, &y,
                    label) == 3) {
      places[label] = {x, y};
    }
  }
  for (const CurvePlot::Curve& curve : plot.curves) {
    EXPECT_LT(places[curve.label].first + 6.4 * static_cast<double>(curve.label.size()), 860) << curve.label;
  }
  EXPECT_GT(places[plot.curves[3].label].second, places[plot.curves[0].label].second);
  EXPECT_GT(places["trained length"].second, places["cache of 128 full"].second + 10);
  EXPECT_EQ(places["far away"].second, places["cache of 128 full"].second);
}

}  // namespace
}  // namespace ballast
