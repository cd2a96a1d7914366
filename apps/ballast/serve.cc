// `ballast serve`: endless sessions over an OpenAI-compatible HTTP interface, and the page.
//
// The main thread only waits for signals: the first drains (readiness turns 503, answers under way finish,
// sessions are saved) and ends with 0; a second one ends at once.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "app.h"
#include "collapse.h"
#include "engine/choose_chat.h"
#include "profile.h"
#include "server/engine_service.h"
#include "server/http_server.h"
#include "service_manager.h"

namespace ballast::app {
namespace {

using server::EngineServiceOptions;
using server::HttpServer;
using server::Log;
using server::LogFormat;
using server::Metrics;
using server::ServerOptions;
using server::Service;
using std::chrono::milliseconds;

struct ServeFlags {
  CommonFlags common;
  ProfileFlags profile;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> cors_origins, allowed_hosts;
  std::string model_id, chat_format, evict = "token", log_format = "text";
  std::string on_collapse = "warn";
  OnCollapse collapse = OnCollapse::kWarn;  // what it says, once checked
  std::string sessions_dir;
  double sessions_quota = 8;  // GiB
  int max_sessions = 64, max_queue = 256, max_active = 32, max_connections = 4096;
  double session_idle = 300, write_timeout = 30, drain = 20;  // seconds
  int64_t max_tokens = -1, max_body = 16;                     // tokens, MiB
};

Status CheckRange(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return Status();
  return Status::Expected(Code::kUsage, flag, fmt::format("{:g} to {:g}", low, high),
                          fmt::format("{:g}", value));
}

Status CheckFlags(ServeFlags& f) {
  BALLAST_RETURN_IF_ERROR(CheckRange("--port", f.port, 0, 65535));
  BALLAST_RETURN_IF_ERROR(CheckRange("--max-sessions", f.max_sessions, 1, 100000));
  BALLAST_RETURN_IF_ERROR(CheckRange("--max-queue", f.max_queue, 0, 100000));
  BALLAST_RETURN_IF_ERROR(CheckRange("--max-active", f.max_active, 1, 1024));
  BALLAST_RETURN_IF_ERROR(CheckRange("--max-connections", f.max_connections, 1, 1000000));
  BALLAST_RETURN_IF_ERROR(CheckRange("--session-idle", f.session_idle, 0, 1e9));
  BALLAST_RETURN_IF_ERROR(CheckRange("--sessions-quota", f.sessions_quota, 0, 1e6));
  BALLAST_RETURN_IF_ERROR(CheckRange("--write-timeout", f.write_timeout, 0.1, 3600));
  BALLAST_RETURN_IF_ERROR(CheckRange("--drain", f.drain, 0, 3600));
  BALLAST_RETURN_IF_ERROR(CheckRange("--max-body", static_cast<double>(f.max_body), 1, 1024));
  BALLAST_RETURN_IF_ERROR(CheckRange("--max-tokens", static_cast<double>(f.max_tokens), -1, 2147483647));
  if (f.evict != "token" && f.evict != "turn") {
    return Status::Expected(Code::kUsage, "--evict", "token or turn", "\"" + f.evict + "\"");
  }
  if (f.log_format != "text" && f.log_format != "json") {
    return Status::Expected(Code::kUsage, "--log-format", "text or json", "\"" + f.log_format + "\"");
  }
  BALLAST_RETURN_IF_ERROR(CheckChatFormatName(f.chat_format));
  BALLAST_ASSIGN_OR_RETURN(f.collapse, ParseOnCollapse(f.on_collapse));
  return Status();
}

// Those of --api-key (commas separate several) and of the file: one a line, # begins a comment.
Result<std::vector<std::string>> ReadKeys(const ServeFlags& flags) {
  std::vector<std::string> keys;
  const auto add = [&keys](std::string_view text, char separator) {
    while (!text.empty()) {
      const size_t end = std::min(text.find(separator), text.size());
      std::string_view key = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      while (!key.empty() && (key.back() == ' ' || key.back() == '\r' || key.back() == '\t'))
        key.remove_suffix(1);
      while (!key.empty() && (key.front() == ' ' || key.front() == '\t')) key.remove_prefix(1);
      if (!key.empty() && key.front() != '#') keys.emplace_back(key);
    }
  };
  for (const std::string& key : flags.api_keys) add(key, ',');
  if (!flags.api_key_file.empty()) {
    BALLAST_ASSIGN_OR_RETURN(const std::string text, ReadAll(flags.api_key_file));
    add(text, '\n');
  }
  // A server that was meant to be locked never stands open; nor one whose key's variable came out empty.
  for (const char* name : {"BALLAST_API_KEY", "BALLAST_API_KEY_FILE"}) {
    const char* value = std::getenv(name);
    if (keys.empty() && value != nullptr && *value == '\0') {
      return Status::Expected(Code::kUsage, name, "a value, or no such variable", "an empty one");
    }
  }
  if (keys.empty() && (!flags.api_keys.empty() || !flags.api_key_file.empty())) {
    return Status::Expected(Code::kUsage, flags.api_key_file.empty() ? "--api-key" : flags.api_key_file,
                            "at least one key", "none");
  }
  return keys;
}

Result<EngineServiceOptions> MakeServiceOptions(const ServeFlags& flags, const std::string& path) {
  EngineServiceOptions options;
  BALLAST_ASSIGN_OR_RETURN(const std::string policy, OnePolicy(flags.common));
  BALLAST_ASSIGN_OR_RETURN(options.stream, MakeStreamOptions(flags.common, policy));
  options.model_path = path;
  options.model_id = flags.model_id;
  options.threads = flags.common.threads;
  options.pin_system = flags.common.pin_system;
  options.evict = flags.evict == "turn" ? server::Evict::kTurn : server::Evict::kToken;
  options.on_collapse = flags.collapse;
  const LoadOptions load = MakeLoadOptions(flags.common);
  options.compute = load.compute;
  options.weights = load.weights;
  options.chat_format = flags.chat_format;
  options.sessions_dir = flags.sessions_dir;
  options.sessions_bytes = static_cast<int64_t>(flags.sessions_quota * (int64_t{1} << 30));
  options.max_sessions = flags.max_sessions;
  options.idle_seconds = flags.session_idle;
  options.max_queue = flags.max_queue;
  options.max_active = flags.max_active;
  options.default_max_tokens = flags.max_tokens;
  return options;
}

ServerOptions MakeServerOptions(const ServeFlags& flags, const std::string& path) {
  ServerOptions options;
  options.host = flags.host;
  options.port = flags.port;
  options.cors_origins = flags.cors_origins;
  options.allowed_hosts = flags.allowed_hosts;
  const std::filesystem::path file(path);
  options.model_aliases = {file.stem().string(), file.filename().string()};
  options.max_body_bytes = static_cast<size_t>(flags.max_body) << 20;
  options.write_timeout = milliseconds(static_cast<int64_t>(flags.write_timeout * 1000));
  // Every connection is a descriptor; the model, the sessions and the log need some as well.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    const rlim_t room = files.rlim_cur > 128 ? files.rlim_cur - 64 : 64;
    options.max_connections = std::min<rlim_t>(static_cast<rlim_t>(flags.max_connections), room);
  }
  return options;
}

// What the loader's thread tells the main one.
struct Loading {
  std::mutex mutex;
  std::optional<Status> outcome;
};

// The signals that end the server, held back from every thread so that sigtimedwait gets them.
sigset_t HoldSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;  // nohup
    sigaddset(&signals, number);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

bool SignalCame(const sigset_t& signals, milliseconds wait) {
  const timespec time{wait.count() / 1000, wait.count() % 1000 * 1000000};
  return sigtimedwait(&signals, nullptr, &time) > 0;
}

// One line in either form, since the process goes on.
Status Announce(const ServeFlags& flags, const HttpServer& http) {
  const nlohmann::json document = {{"url", http.url()}, {"pid", getpid()}, {"version", BALLAST_VERSION}};
  if (flags.common.json) return Print(document.dump() + "\n");
  return Print(fmt::format("Ballast is at {0}/ - the page; {0}/v1 - the OpenAI interface. Ctrl-C stops it.\n",
                           http.url()));
}

// The first signal was seen: finish what runs, save, and let the last bytes go out. kInternal when sessions
// that were to be saved could not be.
Status DrainAll(const ServeFlags& flags, const sigset_t& signals, Service& service, HttpServer& http,
                Log& log) {
  log.Write(Log::Level::kInfo, "draining", {{"seconds", flags.drain}});
  NotifyServiceManager("STOPPING=1");
  const auto unsaved = std::make_shared<std::atomic<int64_t>>(-1);
  service.Drain(flags.drain, [unsaved](int64_t sessions) { *unsaved = sessions; });
  while (*unsaved < 0) {
    if (SignalCame(signals, milliseconds(20))) _exit(130);  // a second one forces
  }
  http.Stop(milliseconds(2000));
  log.Write(Log::Level::kInfo, "stopped", {{"unsaved_sessions", unsaved->load()}});
  if (*unsaved == 0) return Status();
  return Status::Expected(Code::kInternal, flags.sessions_dir, "every session saved",
                          fmt::format("{} that could not be", unsaved->load()));
}

// After a storm the process is as large as before. Left to itself, glibc raises the size from which a block
// is mapped by itself to that of the largest one ever freed, and what it keeps at the end of every thread's
// arena, where malloc_trim does not reach, to twice that.
void BoundFreeMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // glibc's own first value; being set, it stays
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
#endif
}

int Serve(ServeFlags& flags) {
  BoundFreeMemory();
  if (Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  Result<std::vector<std::string>> keys = ReadKeys(flags);
  if (!keys.ok()) return Fail(keys.status());
  Result<std::string> path = FindModel(flags.common);
  if (!path.ok()) return Fail(path.status());
  if (Status status = ApplyProfile(flags.profile, flags.common); !status.ok()) return Fail(status);
  Result<EngineServiceOptions> service_options = MakeServiceOptions(flags, *path);
  if (!service_options.ok()) return Fail(service_options.status());
  const sigset_t signals = HoldSignals();
  Log log(flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
          flags.common.verbose ? Log::Level::kDebug : Log::Level::kInfo);
  Metrics metrics;
  Loading loading;
  service_options->counters = &metrics.engine;
  service_options->on_notice = [&log](const std::string& text) {
    log.Write(Log::Level::kWarning, "notice", {{"text", text}});
  };
  service_options->on_loaded = [&loading](const Status& status) {
    const std::lock_guard lock(loading.mutex);
    loading.outcome = status;
  };
  Result<std::unique_ptr<Service>> service = server::MakeEngineService(*service_options);
  if (!service.ok()) return Fail(service.status());
  ServerOptions server_options = MakeServerOptions(flags, *path);
  server_options.api_keys = *keys;
  Result<std::unique_ptr<HttpServer>> http = HttpServer::Start(server_options, **service, metrics, &log);
  if (!http.ok()) return Fail(http.status());
  if (Status status = Announce(flags, **http); !status.ok()) return Fail(status);
  if (keys->empty() && !(*http)->on_loopback()) {
    log.Write(Log::Level::kWarning, "open",
              {{"text", "anyone who reaches this address can use it: --api-key"}});
  }
  bool ready = false;
  while (!SignalCame(signals, milliseconds(100))) {
    const std::lock_guard lock(loading.mutex);
    if (ready || !loading.outcome) continue;
    if (!loading.outcome->ok()) {
      (*http)->Stop(milliseconds(0));
      return Fail(ExplainProfile(flags.profile, *loading.outcome));
    }
    ready = true;
    const Service::ModelInfo& model = (*service)->model();
    log.Write(Log::Level::kInfo, "ready",
              {{"model", model.id}, {"context", model.context}, {"url", (*http)->url()}});
    NotifyServiceManager("READY=1");
  }
  const Status drained = DrainAll(flags, signals, **service, **http, log);
  return drained.ok() ? 0 : Fail(drained);
}

// Adds flags to one group of the help.
auto FlagsOf(CLI::App& serve, const char* group) {
  return
      [&serve, group](const char* names, const char* env, auto& value, const char* help, const char* type) {
        CLI::Option* option = AddFlag(serve, names, env, value, help);
        option->group(group);
        if (*type != '\0') option->type_name(type);
      };
}

void AddHttpFlags(CLI::App& serve, ServeFlags& f) {
  const auto add = FlagsOf(serve, "HTTP");
  add("--host", "HOST", f.host, "Address to listen on (127.0.0.1); 0.0.0.0: all", "ADDR");
  add("--port", "PORT", f.port, "Port (8080); 0: any free one", "");
  add("--api-key", "API_KEY", f.api_keys, "Key that clients must send; several: repeat, or commas", "KEY");
  add("--api-key-file", "API_KEY_FILE", f.api_key_file, "File of keys, one a line", "PATH");
  add("--cors-origin", "CORS_ORIGIN", f.cors_origins,
      "Web origin that may use the server, beside local ones; repeat for several, * for all", "URL");
  add("--allowed-host", "ALLOWED_HOST", f.allowed_hosts,
      "Further name in the Host header, where --host is a loopback address", "NAME");
  add("--max-body", "MAX_BODY", f.max_body, "Largest request (16)", "MIB");
  add("--max-connections", "MAX_CONNECTIONS", f.max_connections, "Open connections (4096)", "");
  add("--write-timeout", "WRITE_TIMEOUT", f.write_timeout, "Drop a client that reads nothing so long (30)",
      "SECONDS");
  add("--drain", "DRAIN", f.drain, "On SIGTERM, time for answers under way (20)", "SECONDS");
  add("--log-format", "LOG_FORMAT", f.log_format, "text or json (text)", "KIND");
}

void AddSessionFlags(CLI::App& serve, ServeFlags& f) {
  const auto add = FlagsOf(serve, "Sessions");
  add("--sessions-dir", "SESSIONS_DIR", f.sessions_dir, "Idle sessions are kept here, and survive a restart",
      "DIR");
  add("--sessions-quota", "SESSIONS_QUOTA", f.sessions_quota, "Most that folder may hold (8)", "GIB");
  add("--max-sessions", "MAX_SESSIONS", f.max_sessions, "Sessions in memory (64)", "");
  add("--session-idle", "SESSION_IDLE", f.session_idle, "A session unused so long moves to disk (300)",
      "SECONDS");
  add("--max-queue", "MAX_QUEUE", f.max_queue, "Requests that may wait; more are answered 503 (256)", "");
  add("--max-active", "MAX_ACTIVE", f.max_active, "Requests answered side by side (32)", "");
  add("--evict", "EVICT", f.evict, "What leaves a full window: token, or turn for whole oldest turns (token)",
      "UNIT");
  add("-n,--max-tokens", "MAX_TOKENS", f.max_tokens,
      "Tokens of a reply when the request does not say (2048, at most the context)", "");
  add("--model-id", "MODEL_ID", f.model_id, "The model's name for clients (default: the file's)", "NAME");
  add("--chat-format", "CHAT_FORMAT", f.chat_format,
      "chatml, llama2, llama3, mistral, gemma, ..., or template: the model's own", "NAME");
}

}  // namespace

Runner AddServe(CLI::App& app) {
  CLI::App* serve = app.add_subcommand("serve", "Endless sessions over the OpenAI API, and a live page");
  auto flags = std::make_shared<ServeFlags>();
  AddHttpFlags(*serve, *flags);
  AddSessionFlags(*serve, *flags);
  AddCommonFlags(*serve, flags->common);
  AddProfileFlags(*serve, flags->profile);
  AddCollapseFlag(*serve, flags->on_collapse);
  serve->footer(
      "Clients of the OpenAI API change one base URL:\n\n"
      "  ballast serve --sessions-dir ~/.local/state/ballast\n"
      "  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none your-client");
  return [flags] { return Serve(*flags); };
}

}  // namespace ballast::app
