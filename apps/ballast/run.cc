// `ballast run`: a prompt of any length in, text out.
//
// Plain completion by default: the prompt is streamed through the window as it arrives, tokenized up to the
// last finished line, so that memory stays flat on input that never ends. Text is generated at the end of the
// input, and with --on-idle also whenever the input pauses; what was generated stays part of the stream.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "app.h"
#include "conversation.h"
#include "engine/generate.h"
#include "prompt_feed.h"
#include "terminal.h"

namespace ballast::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kReadBytes = 1 << 16;
constexpr int64_t kIdleTokens = 64;  // generated per pause unless -n says otherwise

struct RunFlags {
  CommonFlags common;
  SamplingFlags sampling;
  std::string prompt;
  std::string file;
  std::string system;
  std::string chat_format;
  int64_t on_idle = 0;  // ms; 0: off
  bool stats = false;
  bool chat = false;
  bool prompt_given = false;  // by -p, or by its variable while -f was not
  bool file_given = false;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* file_option = nullptr;
  CLI::Option* system_option = nullptr;
};

struct Outcome {
  std::string text;  // with --json, in one piece
  int64_t tokens_in = 0;
  int64_t tokens_out = 0;
  double prompt_seconds = 0;
  double reply_seconds = 0;
  StopReason reason = StopReason::kBudget;
  bool ends_line = true;  // what was shown ends with a newline, or nothing was shown
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
  }
  return "";
}

// Shows text as it comes, or keeps it for the JSON document. A failed write is remembered.
class Output {
 public:
  Output(bool json, Outcome* outcome) : json_(json), outcome_(outcome) {}
  bool Show(std::string_view text) {
    if (text.empty()) return true;
    outcome_->ends_line = text.back() == '\n';
    if (json_) {
      outcome_->text += text;
    } else {
      status_ = Print(text);
    }
    return status_.ok();
  }
  const Status& status() const { return status_; }

 private:
  bool json_;
  Outcome* outcome_;
  Status status_;
};

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

nlohmann::json RunJson(const Outcome& o, const Loaded& loaded, const Stream& stream, uint64_t seed) {
  return {{"model",
           {{"name", loaded.model->config().name}, {"architecture", loaded.model->config().architecture}}},
          {"text", ValidUtf8(o.text)},
          {"tokens_in", o.tokens_in},
          {"tokens_out", o.tokens_out},
          {"stop_reason", ReasonName(o.reason)},
          {"usage",
           {{"prompt_tokens", o.tokens_in},
            {"completion_tokens", o.tokens_out},
            {"total_tokens", o.tokens_in + o.tokens_out},
            {"ballast",
             {{"position", stream.position()},
              {"evicted_tokens", stream.evicted()},
              {"sinks", stream.pinned()},
              {"context", stream.context()}}}}},
          {"kv_bytes", stream.kv_bytes()},
          {"seconds", o.prompt_seconds + o.reply_seconds},
          {"seed", seed}};
}

// The last words: what was shown is whole, figures when asked for, and the exit code.
int Finish(const RunFlags& flags, const Outcome& outcome, const Loaded& loaded, const Stream& stream,
           uint64_t seed, Status status) {
  const bool failed = !status.ok() && status.code() != Code::kInterrupted;
  if (!flags.common.json && !outcome.ends_line && StdoutIsTerminal()) {
    const Status newline = Print("\n");
    if (status.ok()) status = newline;
  }
  if (flags.stats) PrintStats(outcome, stream);
  if (flags.common.json && !failed) {
    const Status printed = PrintJson(RunJson(outcome, loaded, stream, seed));
    if (!printed.ok()) status = printed;
  }
  if (!status.ok()) return Fail(status);
  return outcome.reason == StopReason::kInterrupted ? 130 : 0;
}

// Plain completion over one stream.
class Completion {
 public:
  Completion(const RunFlags& flags, const Loaded& loaded, Stream& stream, Sampler& sampler)
      : flags_(flags),
        tokenizer_(*loaded.tokenizer),
        stream_(stream),
        sampler_(sampler),
        cutter_(*loaded.tokenizer),
        output_(flags.common.json, &outcome_) {}

  const Outcome& Done() {
    progress_.reset();
    return outcome_;
  }

  Status FromText(const std::string& prompt) {
    cutter_.Push(prompt);
    BALLAST_RETURN_IF_ERROR(Feed(cutter_.Flush()));
    return Generate(flags_.sampling.max_tokens);
  }

  // Reads `fd` to its end; `bytes` is its size, 0 when unknown.
  Status FromDescriptor(int fd, int64_t bytes, const std::string& name) {
    total_bytes_ = bytes;
    const int idle = flags_.on_idle > 0 ? static_cast<int>(std::min<int64_t>(flags_.on_idle, 1 << 30)) : -1;
    std::vector<char> buffer(kReadBytes);
    while (true) {
      const bool news = stream_.position() > generated_to_ || !cutter_.empty();
      const Wait wait = WaitReadable(fd, news ? idle : -1);
      if (wait == Wait::kInterrupted) return Status(Code::kInterrupted, "interrupted");
      if (wait == Wait::kTimeout) {
        BALLAST_RETURN_IF_ERROR(OnPause());
        continue;
      }
      const ssize_t n = read(fd, buffer.data(), buffer.size());
      if (n == 0) break;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Status::Expected(Code::kInput, name, "readable text", std::strerror(errno));
      read_bytes_ += n;
      cutter_.Push({buffer.data(), static_cast<size_t>(n)});
      BALLAST_RETURN_IF_ERROR(Feed(cutter_.Take()));
    }
    BALLAST_RETURN_IF_ERROR(Feed(cutter_.Flush()));
    progress_.reset();
    // After a pause that was answered there may be nothing new to answer.
    if (generated_to_ > 0 && stream_.position() == generated_to_) return Status();
    return Generate(idle > 0 && flags_.sampling.max_tokens < 0 ? kIdleTokens : flags_.sampling.max_tokens);
  }

 private:
  Status Feed(const std::vector<Token>& tokens) {
    if (tokens.empty()) return Status();
    if (progress_ == nullptr) progress_ = std::make_unique<Progress>("reading the prompt");
    const auto began = Clock::now();
    const int64_t position = stream_.position();
    const auto count = static_cast<int64_t>(tokens.size());
    Stream::AppendOptions options;
    options.on_step = [&](int64_t done) {
      if (total_bytes_ > 0) {
        const double piece = static_cast<double>(read_bytes_ - fed_bytes_) * static_cast<double>(done) /
                             static_cast<double>(count);
        progress_->Update((static_cast<double>(fed_bytes_) + piece) / static_cast<double>(total_bytes_));
      } else if (flags_.prompt_given) {
        progress_->Update(static_cast<double>(done) / static_cast<double>(count));
      } else {
        progress_->Count(position + done);
      }
      return !Interrupted();
    };
    const Status status = stream_.Append(tokens, options);
    const int64_t fed = stream_.position() - position;
    fed_bytes_ = read_bytes_;
    for (int64_t i = 0; i < std::min(fed, count); ++i) sampler_.Observe(tokens[static_cast<size_t>(i)]);
    outcome_.tokens_in += fed;
    outcome_.prompt_seconds += std::chrono::duration<double>(Clock::now() - began).count();
    return status;
  }

  Status OnPause() {
    BALLAST_RETURN_IF_ERROR(Feed(cutter_.Flush()));
    BALLAST_RETURN_IF_ERROR(
        Generate(flags_.sampling.max_tokens >= 0 ? flags_.sampling.max_tokens : kIdleTokens));
    if (!outcome_.ends_line) output_.Show("\n");
    return output_.status();
  }

  Status Generate(int64_t max_tokens) {
    progress_.reset();
    if (stream_.position() == 0) {
      return Status::Expected(Code::kInput, "prompt", "at least one token", "none",
                              "this model has no token to begin with; give some text");
    }
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.stops = flags_.sampling.stops;
    options.on_text = [this](std::string_view text) { return output_.Show(text); };
    options.on_token = [](Token) { return !Interrupted(); };
    const auto began = Clock::now();
    const int64_t position = stream_.position();
    Result<Generated> generated = ballast::Generate(stream_, tokenizer_, sampler_, options);
    outcome_.reply_seconds += std::chrono::duration<double>(Clock::now() - began).count();
    outcome_.tokens_out +=
        generated.ok() ? static_cast<int64_t>(generated->tokens.size()) : stream_.position() - position;
    generated_to_ = stream_.position();
    BALLAST_RETURN_IF_ERROR(output_.status());
    BALLAST_RETURN_IF_ERROR(generated.status());
    outcome_.reason = generated->reason;
    return generated->reason == StopReason::kInterrupted ? Status(Code::kInterrupted, "interrupted")
                                                         : Status();
  }

  const RunFlags& flags_;
  const Tokenizer& tokenizer_;
  Stream& stream_;
  Sampler& sampler_;
  TextCutter cutter_;
  Outcome outcome_;
  Output output_;
  std::unique_ptr<Progress> progress_;
  int64_t total_bytes_ = 0;
  int64_t read_bytes_ = 0;
  int64_t fed_bytes_ = 0;     // of them, as good as all are in the stream
  int64_t generated_to_ = 0;  // stream position when the last pause was answered
};

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
  if (flags.prompt_given) return Status();
  const bool standard = !flags.file_given || flags.file == "-";
  if (standard && StdinIsTerminal() && !flags.file_given) {
    return Status::Expected(Code::kUsage, "prompt", "-p TEXT, -f FILE or text on stdin", "none",
                            "ballast run -p \"Once upon a time\"; for a conversation: ballast chat");
  }
  source->name = standard ? "stdin" : flags.file;
  source->fd = standard ? STDIN_FILENO : open(flags.file.c_str(), O_RDONLY | O_CLOEXEC);
  if (source->fd < 0)
    return Status::Expected(Code::kInput, source->name, "a readable file", std::strerror(errno));
  struct stat info {};
  if (fstat(source->fd, &info) != 0) {
    return Status::Expected(Code::kInput, source->name, "readable text", std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return Status::Expected(Code::kInput, source->name, "a file", "a folder");
  if (S_ISREG(info.st_mode)) source->bytes = info.st_size;
  return Status();
}

// A flag on the command line wins over the other one's environment twin.
void ChoosePrompt(RunFlags& flags) {
  const auto from_variable = [](const std::string& value, const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr && value == text;
  };
  flags.prompt_given = flags.prompt_option->count() > 0;
  flags.file_given = flags.file_option->count() > 0;
  if (!flags.prompt_given || !flags.file_given) return;
  const bool prompt_set = from_variable(flags.prompt, "BALLAST_PROMPT");
  const bool file_set = from_variable(flags.file, "BALLAST_FILE");
  if (prompt_set != file_set) (prompt_set ? flags.prompt_given : flags.file_given) = false;
}

Status CheckFlags(const RunFlags& flags) {
  if (flags.prompt_given && flags.file_given) {
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
  return CheckSamplingFlags(flags.sampling);
}

int RunCompletion(const RunFlags& flags, const Loaded& loaded, const StreamOptions& options,
                  const Source& source) {
  Result<std::unique_ptr<Stream>> stream = Stream::Create(*loaded.model, *loaded.pool, options);
  if (!stream.ok()) return Fail(stream.status());
  WarnBeyondTraining(**stream);
  Result<Sampler> sampler = MakeSampler(flags.sampling, loaded, (*stream)->context());
  if (!sampler.ok()) return Fail(sampler.status());
  Completion completion(flags, loaded, **stream, *sampler);
  Status status = source.fd < 0 ? completion.FromText(flags.prompt)
                                : completion.FromDescriptor(source.fd, source.bytes, source.name);
  Outcome outcome = completion.Done();
  if (status.code() == Code::kInterrupted) outcome.reason = StopReason::kInterrupted;
  return Finish(flags, outcome, loaded, **stream, sampler->seed(), status);
}

int RunChat(const RunFlags& flags, const Loaded& loaded, const StreamOptions& stream_options,
            const Source& source) {
  std::string text = flags.prompt;
  if (source.fd >= 0) {
    Result<std::string> read = ReadAll(source.fd == STDIN_FILENO ? "-" : flags.file);
    if (!read.ok()) return Fail(read.status());
    text = std::move(*read);
  }
  Result<ChatFormat> format = ChooseChatFormat(loaded, flags.chat_format);
  if (!format.ok()) return Fail(format.status());
  Conversation::Options options;
  options.stream = stream_options;
  options.sampling = flags.sampling;
  options.format = *format;
  options.pin_system = flags.common.pin_system;
  options.system = flags.system_option->count() > 0 ? flags.system
                                                    : DefaultSystemText(*format, ChatTemplate(*loaded.file));
  Result<std::unique_ptr<Conversation>> chat = Conversation::Create(loaded, options);
  if (!chat.ok()) return Fail(chat.status());
  WarnBeyondTraining((*chat)->stream());
  Outcome outcome;
  Output output(flags.common.json, &outcome);
  Progress progress("reading the prompt");
  Conversation::Hooks hooks;
  hooks.on_text = [&](std::string_view piece) { return output.Show(piece); };
  hooks.on_prefill = [&](int64_t done, int64_t total) {
    progress.Update(static_cast<double>(done) / static_cast<double>(total));
  };
  hooks.on_prefilled = [&] { progress.Done(); };
  Result<Conversation::Reply> reply = (*chat)->Say(text, hooks);
  progress.Done();
  Status status = output.status().ok() ? reply.status() : output.status();
  if (reply.ok()) {
    outcome.tokens_in = reply->prompt_tokens;
    outcome.tokens_out = static_cast<int64_t>(reply->generated.tokens.size());
    outcome.prompt_seconds = reply->prompt_seconds;
    outcome.reply_seconds = reply->reply_seconds;
    outcome.reason = reply->generated.reason;
  } else if (status.code() == Code::kInterrupted) {
    outcome.reason = StopReason::kInterrupted;
  }
  return Finish(flags, outcome, loaded, (*chat)->stream(), (*chat)->sampler().seed(), status);
}

int Run(RunFlags& flags) {
  ChoosePrompt(flags);
  if (Status status = CheckFlags(flags); !status.ok()) return Fail(status);
  Result<std::string> policy = OnePolicy(flags.common);
  if (!policy.ok()) return Fail(policy.status());
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
  flags->prompt_option = AddFlag(*run, "-p,--prompt", "PROMPT", flags->prompt, "The prompt");
  flags->prompt_option->type_name("TEXT")->group(group);
  flags->file_option = AddFlag(*run, "-f,--file", "FILE", flags->file, "A file holds the prompt; -: stdin");
  flags->file_option->type_name("PATH")->group(group);
  AddFlag(*run, "--on-idle", "ON_IDLE", flags->on_idle,
          "Also generate (-n, else 64 tokens) whenever the input pauses this long, then read on")
      ->type_name("MS")
      ->group(group);
  AddFlag(*run, "--chat", "CHAT", flags->chat, "The prompt is a user's message in the model's chat format")
      ->group(group);
  flags->system_option = AddFlag(*run, "--system", "SYSTEM", flags->system, "System prompt; implies --chat");
  flags->system_option->type_name("TEXT")->group(group);
  AddFlag(*run, "--chat-format", "CHAT_FORMAT", flags->chat_format,
          "chatml, llama2, llama3, mistral, gemma, ...")
      ->type_name("NAME")
      ->group(group);
  AddCommonFlags(*run, flags->common);
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
