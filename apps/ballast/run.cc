// `ballast run`: a prompt of any length in, text out.
//
// Plain completion by default: the prompt is streamed through the window as it arrives, tokenized up to the
// last finished line, so that memory stays flat on input that never ends. Text is generated at the end of the
// input, and with --on-idle also whenever the input pauses; what was generated stays part of the stream.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "app.h"
#include "completion.h"
#include "conversation.h"
#include "engine/choose_chat.h"
#include "profile.h"
#include "terminal.h"

namespace ballast::app {
namespace {

struct RunFlags {
  CommonFlags common;
  ProfileFlags profile;
  SamplingFlags sampling;
  RivalFlag prompt{.variable = "BALLAST_PROMPT"};
  RivalFlag file{.variable = "BALLAST_FILE"};
  std::string system;
  std::string chat_format;
  std::string on_collapse = "warn";
  OnCollapse collapse = OnCollapse::kWarn;  // what it says, once checked
  int64_t on_idle = 0;                      // ms; 0: off
  bool stats = false;
  bool chat = false;
  CLI::Option* system_option = nullptr;
};

const char* ReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfTurn:
      return "end";
    case StopReason::kStopString:
      return "stop";
    case StopReason::kBudget:
      return "length";
    case StopReason::kInterrupted:
      return "interrupted";
    case StopReason::kCollapsed:
      return "collapsed";
  }
  return "";
}

void PrintStats(const Outcome& outcome, const Stream& stream) {
  const auto rate = [](int64_t tokens, double seconds) {
    return tokens > 0 && seconds > 0 ? fmt::format("{:.1f} tokens/s", static_cast<double>(tokens) / seconds)
                                     : "";
  };
  Note(fmt::format("tokens in   {:>12}   {}", Grouped(outcome.tokens_in),
                   rate(outcome.tokens_in, outcome.prompt_seconds)));
  Note(fmt::format("tokens out  {:>12}   {}", Grouped(outcome.tokens_out),
                   rate(outcome.tokens_out, outcome.reply_seconds)));
  Note(fmt::format("position    {:>12}", Grouped(stream.position())));
  Note(fmt::format("evicted     {:>12}", Grouped(stream.evicted())));
  Note(fmt::format("in cache    {:>12}   of {}, {} pinned", Grouped(stream.live()), Grouped(stream.context()),
                   stream.pinned()));
  Note(fmt::format("kv bytes    {:>12}   {}", Grouped(stream.kv_bytes()),
                   Bytes(static_cast<double>(stream.kv_bytes()))));
}

nlohmann::json RunJson(const Outcome& o, const Loaded& loaded, const Stream& stream, uint64_t seed,
                       const char* reason, const nlohmann::json& health) {
  return {{"model",
           {{"name", loaded.model->config().name}, {"architecture", loaded.model->config().architecture}}},
          {"text", ValidUtf8(o.text)},
          {"tokens_in", o.tokens_in},
          {"tokens_out", o.tokens_out},
          {"stop_reason", reason},
          {"usage",
           {{"prompt_tokens", o.tokens_in},
            {"completion_tokens", o.tokens_out},
            {"total_tokens", o.tokens_in + o.tokens_out},
            {"ballast",
             {{"position", stream.position()},
              {"evicted_tokens", stream.evicted()},
              {"sinks", stream.pinned()},
              {"context", stream.context()},
              {"health", health}}}}},
          {"kv_bytes", stream.kv_bytes()},
          {"seconds", o.prompt_seconds + o.reply_seconds},
          {"seed", seed}};
}

// The last words: what was shown is whole, figures when asked for, and the exit code.
int Finish(const RunFlags& flags, const Outcome& outcome, const Loaded& loaded, const Stream& stream,
           uint64_t seed, const CollapseGuard& guard, Status status) {
  const bool failed = !status.ok() && status.code() != Code::kInterrupted;
  if (!flags.common.json && !outcome.ends_line && StdoutIsTerminal()) {
    const Status newline = Print("\n");
    if (status.ok()) status = newline;
  }
  if (flags.stats) {
    // Text that went elsewhere may end on the same terminal, by way of a pipe.
    if (!flags.common.json && !outcome.ends_line && !StdoutIsTerminal() && StderrIsTerminal()) Note("");
    PrintStats(outcome, stream);
  }
  // What was generated is not lost to a failure, e.g. a dense cache that is full.
  if (flags.common.json && (!failed || outcome.tokens_out > 0)) {
    const bool error = failed && status.code() != Code::kGate;
    const char* reason = error ? "error" : ReasonName(outcome.reason);
    const Status printed = PrintJson(RunJson(outcome, loaded, stream, seed, reason, guard.Json()));
    if (!printed.ok()) status = printed;
  }
  if (!status.ok()) return Fail(status);
  return outcome.reason == StopReason::kInterrupted ? 130 : 0;
}

// Where the prompt comes from: -1 for -p.
struct Source {
  int fd = -1;
  int64_t bytes = 0;
  std::string name;
  ~Source() {
    if (fd > STDERR_FILENO) close(fd);
  }
};

Status OpenSource(const RunFlags& flags, Source* source) {
  if (flags.prompt.given) return Status();
  const bool standard = !flags.file.given || flags.file.value == "-";
  if (standard && StdinIsTerminal() && !flags.file.given) {
    return Status::Expected(Code::kUsage, "prompt", "-p TEXT, -f FILE or text on stdin", "none",
                            "ballast run -p \"Once upon a time\"; for a conversation: ballast chat");
  }
  source->name = standard ? "stdin" : flags.file.value;
  source->fd = STDIN_FILENO;
  if (!standard) {
    BALLAST_ASSIGN_OR_RETURN(source->fd, OpenToRead(flags.file.value));
  }
  struct stat info {};
  if (fstat(source->fd, &info) != 0) {
    return Status::Expected(Code::kInput, source->name, "readable text", std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return Status::Expected(Code::kInput, source->name, "a file", "a folder");
  if (S_ISREG(info.st_mode)) source->bytes = info.st_size;
  return Status();
}

Status CheckFlags(RunFlags& flags) {
  if (flags.prompt.given && flags.file.given) {
    return Status::Expected(Code::kUsage, "prompt", "one of -p and -f", "both");
  }
  if (flags.on_idle < 0) {
    return Status::Expected(Code::kUsage, "--on-idle", "0 or more milliseconds",
                            std::to_string(flags.on_idle));
  }
  const bool chat = flags.chat || flags.system_option->count() > 0;
  if (flags.on_idle > 0 && chat) {
    return Status::Expected(Code::kUsage, "--on-idle", "a plain prompt", "--chat",
                            "a chat message is read whole before it is answered");
  }
  if (flags.common.pin_system && flags.system_option->count() == 0) {
    return Status::Expected(Code::kUsage, "--pin-system", "a system prompt", "none",
                            "give one with --system TEXT");
  }
  BALLAST_RETURN_IF_ERROR(CheckChatFormatName(flags.chat_format));
  BALLAST_ASSIGN_OR_RETURN(flags.collapse, ParseOnCollapse(flags.on_collapse));
  return CheckSamplingFlags(flags.sampling);
}

int RunCompletion(const RunFlags& flags, const Loaded& loaded, const StreamOptions& options,
                  const Source& source) {
  Result<std::unique_ptr<Stream>> stream = Stream::Create(*loaded.model, *loaded.pool, options);
  if (!stream.ok()) return Fail(ExplainProfile(flags.profile, stream.status()));
  WarnBeyondTraining(**stream);
  Result<Sampler> sampler = MakeSampler(flags.sampling, loaded, (*stream)->context());
  if (!sampler.ok()) return Fail(sampler.status());
  CollapseGuard guard(flags.collapse, loaded, options.pinned);
  Completion completion({flags.sampling.max_tokens, flags.sampling.stops, flags.on_idle, flags.common.json},
                        *loaded.tokenizer, **stream, *sampler, guard);
  Status status = source.fd < 0 ? completion.FromText(flags.prompt.value)
                                : completion.FromDescriptor(source.fd, source.bytes, source.name);
  Outcome outcome = completion.Done();
  if (status.code() == Code::kInterrupted) outcome.reason = StopReason::kInterrupted;
  return Finish(flags, outcome, loaded, **stream, sampler->seed(), guard, status);
}

int RunChat(const RunFlags& flags, const Loaded& loaded, const StreamOptions& stream_options,
            const Source& source) {
  std::string text = flags.prompt.value;
  if (source.fd >= 0) {
    Result<std::string> read = ReadDescriptor(source.fd, source.name);
    if (!read.ok()) return Fail(read.status());
    text = std::move(*read);
  }
  Result<ChatPrompter> prompter = ChooseChat(loaded, flags.chat_format);
  if (!prompter.ok()) return Fail(prompter.status());
  Conversation::Options options;
  options.stream = stream_options;
  options.sampling = flags.sampling;
  options.pin_system = flags.common.pin_system;
  options.on_collapse = flags.collapse;
  options.system = flags.system_option->count() > 0 ? flags.system : prompter->default_system();
  Result<std::unique_ptr<Conversation>> chat = Conversation::Create(loaded, *prompter, options);
  if (!chat.ok()) return Fail(ExplainProfile(flags.profile, chat.status()));
  WarnBeyondTraining((*chat)->stream());
  Outcome outcome;
  Output output(flags.common.json, &outcome);
  Progress progress("reading the prompt");
  Conversation::Hooks hooks;
  hooks.on_text = [&](std::string_view piece) { return output.Show(piece); };
  hooks.on_prefill = [&](int64_t done, int64_t total) {
    progress.Update(static_cast<double>(done) / static_cast<double>(total));
  };
  const auto position = [&] { return (*chat)->stream().position(); };
  const int64_t began_at = position();
  int64_t answered_from = -1;
  hooks.on_prefilled = [&] {
    progress.Done();
    answered_from = position();
  };
  Result<Conversation::Reply> reply = (*chat)->Say(text, hooks);
  progress.Done();
  Status status = output.status().ok() ? reply.status() : output.status();
  if (reply.ok()) {
    outcome.tokens_in = reply->prompt_tokens;
    outcome.tokens_out = static_cast<int64_t>(reply->generated.tokens.size());
    outcome.prompt_seconds = reply->prompt_seconds;
    outcome.reply_seconds = reply->reply_seconds;
    outcome.reason = reply->generated.reason;
    if (status.ok() && outcome.reason == StopReason::kCollapsed) status = (*chat)->guard().StoppedStatus();
  } else {
    const bool answering = answered_from >= 0;
    outcome.tokens_in = (answering ? answered_from : position()) - began_at;
    outcome.tokens_out = answering ? position() - answered_from : 0;
    if (status.code() == Code::kInterrupted) outcome.reason = StopReason::kInterrupted;
  }
  return Finish(flags, outcome, loaded, (*chat)->stream(), (*chat)->sampler().seed(), (*chat)->guard(),
                status);
}

int Run(RunFlags& flags) {
  ChooseOne(flags.prompt, flags.file);
  if (Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  Result<std::string> policy = OnePolicy(flags.common);
  if (!policy.ok()) return Fail(policy.status());
  if (Status status = ApplyProfile(flags.profile, flags.common); !status.ok()) return Fail(status);
  Result<StreamOptions> options = MakeStreamOptions(flags.common, *policy);
  if (!options.ok()) return Fail(options.status());
  Source source;
  if (Status status = OpenSource(flags, &source); !status.ok()) return Fail(status);
  Result<Loaded> loaded = LoadModel(flags.common);
  if (!loaded.ok()) return Fail(loaded.status());
  const bool chat = flags.chat || flags.system_option->count() > 0;
  return chat ? RunChat(flags, *loaded, *options, source) : RunCompletion(flags, *loaded, *options, source);
}

}  // namespace

Runner AddRun(CLI::App& app) {
  CLI::App* run =
      app.add_subcommand("run", "A prompt of any length in, text out; pipes and logs without end");
  auto flags = std::make_shared<RunFlags>();
  const std::string group = "Prompt";
  flags->prompt.option = AddTextFlag(*run, "-p,--prompt", "PROMPT", flags->prompt.value, "The prompt");
  flags->prompt.option->type_name("TEXT")->group(group);
  flags->file.option =
      AddFlag(*run, "-f,--file", "FILE", flags->file.value, "A file holds the prompt; -: stdin");
  flags->file.option->type_name("PATH")->group(group);
  AddFlag(*run, "--on-idle", "ON_IDLE", flags->on_idle,
          "Also generate (-n, else 64 tokens) whenever the input pauses this long, then read on")
      ->type_name("MS")
      ->group(group);
  AddFlag(*run, "--chat", "CHAT", flags->chat, "The prompt is a user's message in the model's chat format")
      ->group(group);
  flags->system_option =
      AddTextFlag(*run, "--system", "SYSTEM", flags->system, "System prompt; implies --chat");
  flags->system_option->type_name("TEXT")->group(group);
  AddFlag(*run, "--chat-format", "CHAT_FORMAT", flags->chat_format,
          "chatml, llama2, llama3, mistral, gemma, ..., or template: the model's own")
      ->type_name("NAME")
      ->group(group);
  AddCommonFlags(*run, flags->common);
  AddProfileFlags(*run, flags->profile);
  AddCollapseFlag(*run, flags->on_collapse);
  AddFlag(*run, "--stats", "STATS", flags->stats, "Tokens, speed, evictions and memory on stderr")
      ->group("Output");
  AddSamplingFlags(*run, flags->sampling);
  run->footer(
      "Without -p and -f the prompt is read from stdin as it arrives, and answered at its end.\n"
      "Without -n the text goes on until the model ends it, or Ctrl-C; with --chat for 2,048 tokens at "
      "most.\n\n"
      "  ballast run -p \"Once upon a time\" -n 100\n"
      "  tail -f app.log | ballast run --on-idle 1000 -n 40");
  return [flags] { return Run(*flags); };
}

}  // namespace ballast::app
