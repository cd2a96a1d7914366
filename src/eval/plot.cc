#include "eval/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace ballast {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 70;
constexpr double kRight = 24;
constexpr double kTop = 96;  // of the axes, under a legend of one row
constexpr double kLegendRow = 18;

// Hues of Okabe and Ito, which colour-blind readers can tell apart; dashes tell the curves apart in print.
constexpr int kStyles = 6;
constexpr std::string_view kStyle = R"(<style>
.bg{fill:#fff}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d8dee4}.axis{stroke:#59636e}
text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
.title{font-size:17px;font-weight:600}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.mark{stroke:#9a6700;stroke-width:1.2;stroke-dasharray:3 4}.marktext{fill:#9a6700}
.c0{stroke:#0072b2}.c1{stroke:#d55e00}.c2{stroke:#6e7781}.c3{stroke:#009e73}.c4{stroke:#cc79a7}.c5{stroke:#b58900}
.c1{stroke-dasharray:9 4}.c2{stroke-dasharray:2 4}.c3{stroke-dasharray:10 3 2 3}.c4{stroke-dasharray:5 3}
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#2b3138}
.axis{stroke:#9198a1}.mark{stroke:#d29922}.marktext{fill:#d29922}.c0{stroke:#56b4e9}.c1{stroke:#ff8a3d}
.c2{stroke:#b1bac4}.c3{stroke:#2fd6a5}.c4{stroke:#e9a3cb}.c5{stroke:#f0e442}}
</style>
)";

// Appends SVG elements; coordinates are in pixels.
class Canvas {
 public:
  Canvas(double width, double height, std::string_view title) {
    Raw(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}")"
        R"( role="img" aria-label="{2}">)"
        "\n",
        width, height, EscapeXml(title));
    out_ += kStyle;
    Raw("<rect class=\"bg\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n", width, height);
  }
  template <typename... Args>
  void Raw(std::string_view format, const Args&... args) {
    fmt::vformat_to(std::back_inserter(out_), format, fmt::make_format_args(args...));
  }
  void Line(std::string_view css, double x1, double y1, double x2, double y2) {
    Raw("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", css, x1, y1, x2,
        y2);
  }
  void Text(std::string_view css, double x, double y, std::string_view anchor, std::string_view text) {
    Raw("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", css, x, y, anchor,
        EscapeXml(text));
  }
  void SidewaysText(std::string_view css, double x, double y, std::string_view text) {
    Raw("<text class=\"{0}\" transform=\"translate({1:.1f} {2:.1f}) rotate(-90)\" "
        "text-anchor=\"middle\">{3}</text>\n",
        css, x, y, EscapeXml(text));
  }
  std::string Finish() {
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  std::string out_;
};

bool Drawable(const PlotPoint& p) { return std::isfinite(p.x) && std::isfinite(p.y) && p.y > 0; }

// Values to pixels.
struct Axis {
  double low = 0, high = 1;  // values at the ends
  double from = 0, to = 1;   // pixels at the ends
  bool log = false;
  double At(double v) const {
    const double share = log          ? std::log(v / low) / std::log(high / low)
                         : high > low ? (v - low) / (high - low)
                                      : 0;
    return from + share * (to - from);
  }
};

struct Range {
  double low = INFINITY;
  double high = -INFINITY;
  void Add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

std::string TickText(double v) {
  if (v >= 10000 && std::fmod(v, 1000) == 0) return fmt::format("{:g}k", v / 1000);
  return fmt::format("{:g}", v);
}

void DrawGrid(Canvas& canvas, const Axis& x, const Axis& y) {
  const std::vector<double> ticks = y.log ? LogTicks(y.low, y.high) : LinearTicks(y.low, y.high, 8);
  for (const double v : ticks) {
    canvas.Line("grid", x.from, y.At(v), x.to, y.At(v));
    canvas.Text("soft", x.from - 8, y.At(v) + 4.5, "end", TickText(v));
  }
  for (const double v : LinearTicks(x.low, x.high, 12)) {
    canvas.Line("axis", x.At(v), y.from, x.At(v), y.from + 5);
    canvas.Text("soft", x.At(v), y.from + 20, "middle", TickText(v));
  }
  canvas.Line("axis", x.from, y.from, x.to, y.from);
  canvas.Line("axis", x.from, y.from, x.from, y.to);
}

int StyleOf(const CurvePlot::Curve& curve) { return std::clamp(curve.style, 0, kStyles - 1); }

void DrawCurve(Canvas& canvas, const Axis& x, const Axis& y, const CurvePlot::Curve& curve) {
  std::string path;
  bool pen_down = false;
  size_t drawn = 0;
  for (const PlotPoint& p : curve.points) {
    if (!Drawable(p)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.At(p.x), y.At(p.y));
    pen_down = true;
    ++drawn;
  }
  if (drawn == 1) path += "h4";  // a single block is still worth seeing
  if (drawn > 0) canvas.Raw("<path class=\"line c{}\" d=\"{}\"/>\n", StyleOf(curve), path);
}

// Where the legend's entries go: (x, row), as many rows as their labels need.
std::vector<std::pair<double, int>> LegendPlaces(const CurvePlot& plot) {
  std::vector<std::pair<double, int>> places;
  double at = kLeft;
  int row = 0;
  for (const CurvePlot::Curve& curve : plot.curves) {
    const double width = 46 + 6.6 * static_cast<double>(curve.label.size());
    if (at > kLeft && at + width > kWidth - kRight + 14) {  // the last one needs no gap behind it
      at = kLeft;
      ++row;
    }
    places.emplace_back(at, row);
    at += width;
  }
  return places;
}

void DrawLegend(Canvas& canvas, const CurvePlot& plot, const std::vector<std::pair<double, int>>& places) {
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    const double x = places[i].first;
    const double y = 74 + kLegendRow * places[i].second;
    canvas.Raw("<path class=\"line c{}\" d=\"M{:.1f} {:.1f}h26\"/>\n", StyleOf(plot.curves[i]), x, y);
    canvas.Text("ink", x + 32, y + 4.5, "start", plot.curves[i].label);
  }
}

// Colour of a share in [0, 1]: dark blue over green to yellow, even in lightness.
std::string HeatColour(double share) {
  static constexpr int kStops[][3] = {
      {26, 28, 77}, {38, 92, 132}, {45, 155, 128}, {140, 204, 84}, {250, 230, 60}};
  const double at = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * 4;
  const int low = std::min(static_cast<int>(at), 3);
  int rgb[3];
  for (int i = 0; i < 3; ++i) {
    rgb[i] =
        static_cast<int>(std::lround(kStops[low][i] + (kStops[low + 1][i] - kStops[low][i]) * (at - low)));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

void DrawHeatScale(Canvas& canvas, double y, const std::string& label) {
  constexpr int kSteps = 50;
  constexpr double kStep = 5;
  for (int i = 0; i < kSteps; ++i) {
    canvas.Raw("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"12\" fill=\"{}\"/>\n",
               kLeft + i * kStep, y, kStep + 0.3, HeatColour((i + 0.5) / kSteps));
  }
  for (const double v : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    canvas.Text("soft", kLeft + v * kSteps * kStep, y + 28, "middle", fmt::format("{:g}", v));
  }
  canvas.Text("soft", kLeft + kSteps * kStep + 20, y + 11, "start", label);
}

}  // namespace

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::vector<double> LinearTicks(double low, double high, int most) {
  std::vector<double> ticks;
  if (!(high > low) || most < 2) return ticks;
  const double raw = (high - low) / most;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double lead = raw / power;
  const double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  if (!(low > 0) || !(high > low)) return ticks;
  const double span = high / low;
  std::vector<double> leads = {1};  // powers of ten alone
  if (span <= 1e4) leads = {1, 2, 5};
  if (span <= 30) leads = {1, 2, 3, 5, 7};
  for (int exponent = static_cast<int>(std::floor(std::log10(low))); std::pow(10, exponent) <= high;
       ++exponent) {
    for (const double lead : leads) {
      const double tick = lead * std::pow(10, exponent);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string RenderCurves(const CurvePlot& plot) {
  const std::vector<std::pair<double, int>> places = LegendPlaces(plot);
  const double extra = places.empty() ? 0 : kLegendRow * places.back().second;
  const double top = kTop + extra;
  const double height = 480 + extra;
  const double bottom = height - 60;
  Range xs, ys;
  xs.Add(0);
  for (const CurvePlot::Curve& curve : plot.curves) {
    for (const PlotPoint& p : curve.points) {
      if (!Drawable(p)) continue;
      xs.Add(p.x);
      ys.Add(p.y);
    }
  }
  const bool any = ys.high >= ys.low;
  Axis y{0, any ? ys.high * 1.08 : 1, bottom, top, any && ys.high > 3 * ys.low};
  if (y.log) y.low = ys.low / 1.08;
  const Axis x{0, xs.high > 0 ? xs.high * 1.02 : 1, kLeft, kWidth - kRight, false};

  Canvas canvas(kWidth, height, plot.title);
  canvas.Text("ink title", kLeft, 30, "start", plot.title);
  canvas.Text("soft", kLeft, 52, "start", plot.subtitle);
  DrawGrid(canvas, x, y);
  DrawLegend(canvas, plot, places);
  double label_end = 0;  // labels that would meet stand below each other
  int label_row = 0;
  for (const CurvePlot::Mark& mark : plot.marks) {
    if (!(mark.x >= x.low && mark.x <= x.high)) continue;
    const double at = x.At(mark.x);
    canvas.Line("mark", at, bottom, at, top);
    label_row = at < label_end ? label_row + 1 : 0;
    canvas.Text("marktext", at + 6, top + 12 + 16 * label_row, "start", mark.label);
    label_end = at + 14 + 6.8 * static_cast<double>(mark.label.size());
  }
  for (const CurvePlot::Curve& curve : plot.curves) DrawCurve(canvas, x, y, curve);
  canvas.Text("soft", (x.from + x.to) / 2, height - 18, "middle", plot.x_label);
  canvas.SidewaysText("soft", 20, (y.from + y.to) / 2, plot.y_label + (y.log ? " (log scale)" : ""));
  return canvas.Finish();
}

std::string RenderHeatMap(const HeatPlot& plot) {
  const size_t rows = plot.values.size();
  size_t columns = 0;
  for (const auto& row : plot.values) columns = std::max(columns, row.size());
  // Cells are as wide as the page lets them be, within reason.
  const double cell_w =
      std::clamp((kWidth - kLeft - kRight) / std::max<double>(1, static_cast<double>(columns)), 4.0, 44.0);
  constexpr double kCellH = 14;
  constexpr double kHead = 84;
  const double width = std::max(kWidth, kLeft + cell_w * static_cast<double>(columns) + kRight);
  const double bottom = kHead + kCellH * static_cast<double>(rows);
  Canvas canvas(width, bottom + 100, plot.title);
  canvas.Text("ink title", kLeft, 30, "start", plot.title);
  canvas.Text("soft", kLeft, 52, "start", plot.subtitle);
  for (size_t row = 0; row < rows; ++row) {
    const double y = kHead + kCellH * static_cast<double>(row);
    if (row % 5 == 0) canvas.Text("soft", kLeft - 8, y + 11, "end", fmt::format("{}", row));
    for (size_t column = 0; column < plot.values[row].size(); ++column) {
      const double value = plot.values[row][column];
      canvas.Raw(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>{} {}, {} "
          "{}: "
          "{:.3f}</title></rect>\n",
          kLeft + cell_w * static_cast<double>(column), y, cell_w - 1, kCellH - 1, HeatColour(value),
          EscapeXml(plot.row_label), row, EscapeXml(plot.column_label), column, value);
    }
  }
  const size_t every = std::max<size_t>(1, (columns + 31) / 32);
  for (size_t column = 0; column < columns; column += every) {
    canvas.Text("soft", kLeft + cell_w * (static_cast<double>(column) + 0.5), kHead - 6, "middle",
                fmt::format("{}", column));
  }
  canvas.SidewaysText("soft", 20, (kHead + bottom) / 2, plot.row_label);
  canvas.Text("soft", kLeft + cell_w * static_cast<double>(columns) / 2, bottom + 18, "middle",
              plot.column_label);
  DrawHeatScale(canvas, bottom + 40, plot.scale_label);
  return canvas.Finish();
}

}  // namespace ballast
