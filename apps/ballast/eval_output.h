// What `eval` shows of its results: JSON, a table, a picture, a page.
#ifndef BALLAST_APPS_EVAL_OUTPUT_H_
#define BALLAST_APPS_EVAL_OUTPUT_H_

#include <optional>
#include <string>
#include <vector>

#include "app.h"
#include "eval/gate.h"
#include "eval/probe.h"
#include "eval/rollover.h"

namespace ballast::app {

struct Gate {
  GateVerdict verdict;
  RolloverRun reference;
  bool reference_is_a_run = false;  // one of Evaluation::runs
};

struct Evaluation {
  std::vector<RolloverRun> runs;  // never empty
  std::optional<Gate> gate;
  std::optional<SinkMap> sink_map;  // for a report
};

nlohmann::json EvaluationJson(const Evaluation& evaluation, const Loaded& loaded, bool per_token);
std::string EvaluationTable(const Evaluation& evaluation, const Loaded& loaded, bool colour);
std::string EvaluationSvg(const Evaluation& evaluation, const Loaded& loaded);
// One self-contained HTML page, with the machine, the date and this process's command line.
std::string EvaluationPage(const Evaluation& evaluation, const Loaded& loaded);
std::string RunLabel(const RolloverRun& run);  // "sinks: 4 + 1,020"
// One sentence: passed or failed, by how much, how certain.
std::string GateSentence(const Gate& gate);

}  // namespace ballast::app

#endif  // BALLAST_APPS_EVAL_OUTPUT_H_
