// Pictures of an evaluation, as SVG text: curves over tokens, and a heat map of heads.
//
// They need no script and no font, and follow the reader's light or dark scheme. Axes are honest: a linear
// axis starts at 0, a logarithmic one says so. Thread safety: pure functions.
#ifndef BALLAST_EVAL_PLOT_H_
#define BALLAST_EVAL_PLOT_H_

#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct CurvePlot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  struct Curve {
    std::string label;
    int style = 0;                  // 0 to 5: colour and dashes; 0 is the solid one
    std::vector<PlotPoint> points;  // x rising; a point whose y is not a positive number breaks the line
  };
  std::vector<Curve> curves;  // the legend keeps their order
  struct Mark {
    double x = 0;
    std::string label;
  };
  std::vector<Mark> marks;  // vertical lines
};
// The y axis is logarithmic when the largest value is more than three times the smallest.
std::string RenderCurves(const CurvePlot& plot);

struct HeatPlot {
  std::string title;
  std::string subtitle;
  std::string row_label;
  std::string column_label;
  std::vector<std::vector<double>> values;  // (row, column), each in [0, 1]
  std::string scale_label;
};
std::string RenderHeatMap(const HeatPlot& plot);

// `text` with the characters XML reserves, and control characters, made harmless.
std::string EscapeXml(std::string_view text);

// Places of ticks in [low, high]: 1, 2 or 5 times a power of ten (also 3 and 7 on a short logarithmic axis).
std::vector<double> LinearTicks(double low, double high, int most);
std::vector<double> LogTicks(double low, double high);

}  // namespace ballast

#endif  // BALLAST_EVAL_PLOT_H_
