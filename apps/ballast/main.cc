// The program: finds the command, and turns everything that can go wrong before it runs into one line.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "app.h"
#include "kernels/isa.h"

namespace ballast::app {
namespace {

// Edits (one character added, dropped or changed) from a to b.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row[b.size()];
}

// "did you mean X?", or where to look.
std::string Hint(const std::string& found, const std::vector<std::string>& known, const std::string& help) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return EditDistance(found, a) < EditDistance(found, b);
  });
  if (nearest != known.end() && EditDistance(found, *nearest) <= std::max<size_t>(2, found.size() / 3)) {
    return "did you mean " + *nearest + "?";
  }
  return help;
}

// Help without the environment twin beside every flag: one line says it for all.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() != 0 && option->get_expected_max() > 0 && !option->get_type_name().empty()
               ? " " + option->get_type_name()
               : "";
  }
  std::string make_footer(const CLI::App* app) const override {
    return CLI::Formatter::make_footer(app) +
           "\nEvery flag has an environment twin, e.g. BALLAST_CONTEXT for --context; the flag wins.\n";
  }
};

std::string HelpText(const CLI::App& app) {
  std::string text = app.help();
  for (size_t i = text.find("\n\n\n"); i != std::string::npos; i = text.find("\n\n\n", i)) text.erase(i, 1);
  return text;
}

// What CLI11 left over or refused, in our own words.
Status Explain(CLI::App& app, const CLI::ParseError& error) {
  CLI::App* command = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
  const std::string help = command ? "ballast " + command->get_name() + " --help" : "ballast --help";
  const std::vector<std::string> extra = app.remaining(true);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string text = error.what();
    return Status::Expected(Code::kUsage, text.substr(0, text.find(':')), "one value", "none or several",
                            help);
  }
  if (extra.empty()) return Status(Code::kUsage, error.what(), help);
  std::vector<std::string> known;
  if (extra[0].size() > 1 && extra[0][0] == '-') {
    CLI::App* owner = command ? command : &app;
    for (const CLI::Option* option : owner->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    const std::string flag = extra[0].substr(0, extra[0].find('='));
    if (command == nullptr) {
      return Status::Expected(Code::kUsage, "flags", "--help, --version or a command before them", flag,
                              Hint(flag, known, help));
    }
    // The command would have taken its own flag: this one stood before it.
    if (command->get_option_no_throw(flag) != nullptr) {
      return Status::Expected(Code::kUsage, command->get_name(), "its flags after the command",
                              flag + " before it", "ballast " + command->get_name() + " " + flag + " ...");
    }
    return Status::Expected(Code::kUsage, command->get_name(), "one of its flags", flag,
                            Hint(flag, known, help));
  }
  if (command) {
    return Status::Expected(Code::kUsage, command->get_name(), "flags", "\"" + extra[0] + "\"", help);
  }
  std::string list;
  for (const CLI::App* sub : app.get_subcommands({})) {
    known.push_back(sub->get_name());
    list += (list.empty() ? "" : ", ") + sub->get_name();
  }
  return Status::Expected(Code::kUsage, "command", "one of " + list, "\"" + extra[0] + "\"",
                          Hint(extra[0], known, help));
}

Status ChooseIsa() {
  const char* name = std::getenv("BALLAST_ISA");
  if (name == nullptr || *name == '\0') return Status();
  const Status status = ForceIsa(name);
  if (status.ok()) return status;
  return Status(Code::kUsage, "BALLAST_ISA: " + status.message(), status.hint());
}

int Dispatch(int argc, char** argv) {
  CLI::App app("Language models that talk for ever on a fixed-size cache.", "ballast");
  app.set_version_flag("--version", "ballast " BALLAST_VERSION, "Print the version");
  app.formatter(std::make_shared<HelpFormatter>());  // commands take theirs from here
  app.get_formatter()->column_width(30);
  app.set_help_flag("-h,--help", "Print this help");
  app.footer("`ballast COMMAND --help` says more.");
  const std::vector<std::pair<std::string, Runner>> commands = {
      {"chat", AddChat(app)},
      {"run", AddRun(app)},
      {"serve", AddServe(app)},
      {"watch", AddWatch(app)},
      {"eval", AddEval(app)},
      {"calibrate", AddCalibrate(app)},
      {"streameval", AddStreamEval(app)},
      {"probe", AddProbe(app)},
      {"trial", AddTrial(app)},
      {"bench", AddBench(app)},
      {"inspect", AddInspect(app)},
  };
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const Status printed = Print(HelpText(app));
    return printed.ok() ? 0 : Fail(printed);
  } catch (const CLI::CallForVersion&) {
    const Status printed = Print("ballast " BALLAST_VERSION "\n");
    return printed.ok() ? 0 : Fail(printed);
  } catch (const CLI::ParseError& error) {
    return Fail(Explain(app, error));
  }
  if (app.get_subcommands().empty()) {
    return Fail(Status::Expected(Code::kUsage, "command", "chat, run, serve, watch, eval, calibrate, ...",
                                 "none", "ballast --help"));
  }
  if (Status status = ChooseIsa(); !status.ok()) return Fail(status);
  const std::string chosen = app.get_subcommands().front()->get_name();
  for (const auto& [name, run] : commands) {
    if (name == chosen) return run();
  }
  return 1;
}

}  // namespace
}  // namespace ballast::app

int main(int argc, char** argv) {
  ballast::app::InstallSignalHandlers();
  try {
    return ballast::app::Dispatch(argc, argv);
  } catch (const std::bad_alloc&) {
    return ballast::app::Fail(ballast::Status::Expected(ballast::Code::kInternal, "memory",
                                                        "enough for this request", "none left"));
  } catch (const std::exception& error) {
    return ballast::app::Fail(
        ballast::Status(ballast::Code::kInternal, std::string("internal error: ") + error.what()));
  }
}
