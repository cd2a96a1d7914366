// What every command shares: common flags, loading, printing, exit codes. One file per command beside this
// one.
#ifndef BALLAST_APPS_APP_H_
#define BALLAST_APPS_APP_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "base/threads.h"
#include "engine/sampler.h"
#include "engine/stream.h"
#include "formats/tensor_file.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ballast::app {

// Exit codes (INTERFACES): 0 done, 1 our own fault, 2 usage, 3 model refused, 4 input refused, 5 gate failed,
// 130 interrupted.
int ExitCode(const Status& status);
// Prints "ballast: <message>" and "hint: ..." on stderr; returns ExitCode.
int Fail(const Status& status);

// -m -t -c --sinks --pin-system --policy --kv --compute --weights --json --verbose, with their BALLAST_*
// twins.
struct CommonFlags {
  std::string model;
  int threads = 0;      // 0: UsableCores()
  int64_t context = 0;  // 0: min(8192, trained length)
  int64_t sinks = 4;
  bool sinks_given = false;
  bool pin_system = false;
  std::vector<std::string> policies;  // empty: {"sinks"}; only eval accepts several
  std::string kv = "q8";              // q8 | f16 | f32
  std::string compute = "fast";       // fast | f32
  std::string weights = "stored";     // stored | q8 | q4
  bool json = false;
  bool verbose = false;
};
void AddCommonFlags(CLI::App& app, CommonFlags& flags);

// Strict conversions: the whole text must be the value. Return null when done, else what was expected.
const char* ParseValue(const std::string& text, int& value);
const char* ParseValue(const std::string& text, int64_t& value);
const char* ParseValue(const std::string& text, uint64_t& value);
const char* ParseValue(const std::string& text, double& value);
const char* ParseValue(const std::string& text, bool& value);  // 1/0, true/false, on/off, yes/no
// A path, a name, a host: "" is none of them. What may be empty is AddTextFlag's.
const char* ParseValue(const std::string& text, std::string& value);
const char* ParseValue(const std::string& text, std::vector<std::string>& value);  // appends
const char* ParseValue(const std::string& text, std::map<Token, double>& value);   // "ID=BIAS", appends

enum class FlagKind { kSwitch, kLast, kRepeated };  // no value; the last one given counts; all count
CLI::Option* AddParsedFlag(CLI::App& app, const std::string& names, const std::string& env, FlagKind kind,
                           const std::function<const char*(const std::string&)>& parse,
                           const std::string& help);

// Adds an option with its environment twin BALLAST_<NAME>; the flag wins. bool: a switch; vector, map: may be
// repeated. Bad values are usage errors that name the flag, or the variable when it came from there.
template <typename T>
CLI::Option* AddFlag(CLI::App& app, const std::string& names, const std::string& env, T& value,
                     const std::string& help) {
  constexpr bool kMany =
      std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, std::map<Token, double>>;
  const FlagKind kind = std::is_same_v<T, bool> ? FlagKind::kSwitch
                        : kMany                 ? FlagKind::kRepeated
                                                : FlagKind::kLast;
  CLI::Option* option = AddParsedFlag(
      app, names, env, kind, [&value](const std::string& text) { return ParseValue(text, value); }, help);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) option->type_name("N");
  if constexpr (std::is_floating_point_v<T>) option->type_name("X");
  return option;
}

// The same for text that may be empty: "" is a prompt, and no system prompt.
CLI::Option* AddTextFlag(CLI::App& app, const std::string& names, const std::string& env, std::string& value,
                         const std::string& help);

// The same status in the name of another flag, where `status` names `from`.
Status RenameFlag(const Status& status, std::string_view from, std::string_view to);
// kUsage, naming the flag, unless low <= value <= high. `unit` is for the message.
Status CheckCount(std::string_view flag, int64_t value, int64_t low, int64_t high,
                  std::string_view unit = "");

// One of two flags that exclude each other, such as -p and -f.
struct RivalFlag {
  const char* variable;  // its environment twin, "BALLAST_..."
  std::string value{};
  CLI::Option* option = nullptr;
  bool given = false;  // set by ChooseOne
};
// Which of the two were given: a flag on the command line wins over the other one's variable. Both stay given
// when both came from the same place.
void ChooseOne(RivalFlag& a, RivalFlag& b);

struct Loaded;

// -n -s/--seed --temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n --presence-penalty
// --frequency-penalty --dry-*
// --logit-bias --stop
struct SamplingFlags {
  SamplerOptions options;
  int64_t max_tokens = -1;
  bool max_tokens_given = false;  // an explicit -1 is "no limit", also where there is a default one
  std::vector<std::string> stops;
};
void AddSamplingFlags(CLI::App& app, SamplingFlags& flags);
// Refuses what no model could accept, before one is loaded.
Status CheckSamplingFlags(const SamplingFlags& flags);
Result<Sampler> MakeSampler(const SamplingFlags& flags, const Loaded& loaded, int64_t capacity);

// A model ready to stream. Members in the order in which they may be used by later ones.
struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<TensorFile> file;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const Model> model;
  std::string sha256;  // of the file; empty unless asked for
};
// --compute and --weights.
LoadOptions MakeLoadOptions(const CommonFlags& flags);
// Loads with a progress bar on stderr (terminals only; nothing otherwise unless --verbose). `hash`: for
// ModelJson.
Result<Loaded> LoadModel(const CommonFlags& flags, bool hash = false);
// TensorFile::ContentHash, until Ctrl-C.
Result<std::string> HashModel(const TensorFile& file);
Result<StreamOptions> MakeStreamOptions(const CommonFlags& flags, const std::string& policy);
// For commands without a system prompt: kUsage when --pin-system asks to keep it.
Status RefusePinSystem(const CommonFlags& flags, const std::string& command);
// For commands that take one policy: the last one given, else "sinks".
Result<std::string> OnePolicy(const CommonFlags& flags);
// The path to load: -m, else the default model beside the current directory or the program.
Result<std::string> FindModel(const CommonFlags& flags);
// Says on stderr when `context` asks for more than the model was trained on.
void WarnBeyondTraining(const Stream& stream);

// A progress bar on stderr: drawn only on a terminal and only after 200 ms; cleared when done. NO_COLOR and
// TERM=dumb: none.
class Progress {
 public:
  explicit Progress(const std::string& label);
  ~Progress();
  void Update(double share);   // 0 to 1
  void Count(int64_t tokens);  // for work without a known end
  void Done();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A terminal on stdin gets its settings of now back when a signal ends the process. A model file that is cut
// short while it is mapped ends it with one line and 3.
// Ctrl-C: set by the handler that main installs; a second one before it was noticed ends the process with
// 130. Long work polls Interrupted(); ClearInterrupt() before a new one.
void InstallSignalHandlers();
bool Interrupted();
void ClearInterrupt();
// Waits until `fd` can be read (or is at its end), `timeout_ms` have passed (-1: never), or Ctrl-C.
enum class Wait { kReady, kTimeout, kInterrupted };
Wait WaitReadable(int fd, int timeout_ms);

// stderr, one line each.
void Warn(std::string_view text);  // "ballast: warning: ..."
void Note(std::string_view text);  // dim, as it is

// All of `bytes` to a descriptor; `what` is for messages. kInternal as Print; kInterrupted when Ctrl-C came
// while it could not be written.
Status WriteAll(int fd, std::string_view bytes, const std::string& what);
// Writes to stdout; kInternal when stdout is closed or the disk is full (checked on every write).
Status Print(std::string_view text);
Status PrintJson(const nlohmann::json& document);  // one document, invalid UTF-8 replaced
// `text` (any bytes) made printable for a terminal or a JSON document: invalid UTF-8 becomes U+FFFD.
std::string ValidUtf8(std::string_view text);
constexpr size_t kMostInput = size_t{1} << 30;  // bytes
// Whole file or "-" for stdin, any bytes. kInput with the path when it cannot be read or has more than `most`
// bytes, of which no more are read.
Result<std::string> ReadAll(const std::string& path, size_t most = kMostInput);
// The same of an open descriptor, which stays open; `name` is for messages.
Result<std::string> ReadDescriptor(int fd, const std::string& name, size_t most = kMostInput);
// A descriptor to read `path` from. kInput with the path when there is none; kInterrupted when Ctrl-C came
// while a pipe without a writer was waited for.
Result<int> OpenToRead(const std::string& path);
// Writes a file through a temporary beside it, of a new name or the one given (its only writer may give one);
// kInternal/kInput when that fails (full disk included).
Status WriteFileAtomically(const std::string& path, std::string_view bytes, std::string temporary = "");
// Makes a folder, unless it is there; kInput, in the name of `flag`, when it cannot be one to write in.
Status MakeFolder(std::string_view flag, const std::string& path);
// Whether that could work, asked before long work. Writes nothing; the disk may still turn out full.
Status CheckWritable(const std::string& path);

// The absolute path of the file that `path` names or would create, all links followed.
std::string ResolvePath(const std::string& path);
struct NamedFile {
  std::string name;  // for messages: "--state"
  std::string path;  // "": not asked for; "-": stdin
};
// kUsage when a file of `written` is another of them too, or one of `others`, under whatever name.
Status CheckApart(const std::vector<NamedFile>& written, const std::vector<NamedFile>& others);

// "AMD EPYC 9554", from the kernel; "unknown".
std::string CpuName();

// "model": {"name", "sha256", "architecture"} for JSON output. REQUIRES: loaded with its hash.
nlohmann::json ModelJson(const Loaded& loaded);

// The commands: each adds its subcommand with its flags to `app` and returns what runs it after parsing.
using Runner = std::function<int()>;
Runner AddRun(CLI::App& app);
Runner AddChat(CLI::App& app);
Runner AddEval(CLI::App& app);
Runner AddProbe(CLI::App& app);
Runner AddCalibrate(CLI::App& app);
Runner AddStreamEval(CLI::App& app);
Runner AddInspect(CLI::App& app);
Runner AddBench(CLI::App& app);
Runner AddServe(CLI::App& app);
Runner AddTrial(CLI::App& app);
Runner AddWatch(CLI::App& app);

}  // namespace ballast::app

#endif  // BALLAST_APPS_APP_H_
