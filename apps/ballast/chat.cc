// `ballast chat`: a conversation in the terminal, without end. Commands: see chat_commands.cc.
#include "chat.h"

#include <fmt/format.h>

#include <algorithm>

#include "line_input.h"
#include "profile.h"
#include "terminal.h"

namespace ballast::app {

Conversation::Hooks ChatSession::Hooks() {
  auto progress = std::make_shared<Progress>("reading");
  Conversation::Hooks hooks;
  hooks.on_text = [this](std::string_view text) {
    if (text.empty()) return true;
    ends_line = text.back() == '\n';
    if (!json) output = Print(text);
    return output.ok();
  };
  hooks.on_prefill = [progress](int64_t done, int64_t total) {
    progress->Update(static_cast<double>(done) / static_cast<double>(total));
  };
  hooks.on_prefilled = [this, progress] {
    progress->Done();
    const Conversation::Turn* turn = chat->last_user();
    const Stream& stream = chat->stream();
    if (turn == nullptr || std::max(turn->begin, stream.pinned()) >= stream.start()) return;
    const int64_t seen = stream.position() - stream.start();
    Warn("this message is longer than the window: the model sees only its last " +
         (seen == 1 ? "token" : Grouped(seen) + " tokens"));
  };
  return hooks;
}

void ChatSession::TellWhatLeft() {
  const bool first_word = !told_system && chat->system_gone();
  const size_t gone = chat->gone();
  if (gone <= told_gone && !first_word) return;
  const size_t whole = chat->gone_whole();
  std::string text = "[";
  if (gone > told_gone) {
    const auto range = [](size_t from, size_t to) {
      return from == to ? fmt::format("turn {}", from) : fmt::format("turns {}-{}", from, to);
    };
    if (whole == 0) {
      text += fmt::format("the beginning of turn {} has", gone);
    } else {
      text += range(1, whole);
      if (gone > whole) text += fmt::format(" and the beginning of turn {}", gone);
      text += whole == 1 && gone == 1 ? " has" : " have";
    }
    text += " left the window: the model can no longer see " +
            std::string(gone == 1 && whole == 1 ? "it" : "them");
    if (whole == 0) text.replace(text.size() - 4, 4, "it");
  }
  if (first_word) {
    text += gone > told_gone ? "; so has the system prompt (--pin-system keeps it)"
                             : "the system prompt has left the window (--pin-system keeps it)";
  }
  const int64_t pinned = chat->stream().pinned();
  if (pinned > 0)
    text += fmt::format("; the first {} token{} pinned", pinned, pinned == 1 ? " stays" : "s stay");
  Note(text + "]");
  told_gone = gone;
  told_system = told_system || first_word;
}

Status ChatSession::AfterReply(Result<Conversation::Reply> reply) {
  if (!json && output.ok() && !ends_line) output = Print("\n");
  ends_line = true;
  BALLAST_RETURN_IF_ERROR(output);
  if (!reply.ok()) return reply.status();
  tokens_in += reply->prompt_tokens;
  tokens_out += static_cast<int64_t>(reply->generated.tokens.size());
  const StopReason reason = reply->generated.reason;
  if (reason == StopReason::kInterrupted) Note(edited ? "[stopped; Ctrl-C again leaves]" : "[stopped]");
  if (reason == StopReason::kCollapsed) Warn(std::string(chat->guard().StoppedStatus().message()));
  if (reason == StopReason::kBudget && edited) {
    Note(fmt::format("[cut after {} tokens; -n sets the limit]", reply->generated.tokens.size()));
  }
  last = std::move(*reply);
  TellWhatLeft();
  if (edited && !json) return Print("\n");
  return Status();
}

namespace {

void Greet(const ChatSession& session) {
  const Stream& stream = session.chat->stream();
  const bool styled = StyledStderr();
  const std::string bar = Utf8Locale() ? "│" : "|";
  const auto line = [&](const std::string& text) { Note("  " + bar + " " + text); };
  const ModelConfig& config = session.loaded->model->config();
  Note("");
  line(Paint(Ink::kBold, config.name, styled));
  std::string pinned = stream.pinned() == 0 ? "nothing pinned"
                                            : fmt::format("the first {} token{} pinned", stream.pinned(),
                                                          stream.pinned() == 1 ? "" : "s");
  if (session.chat->options().pin_system) pinned += " (the system prompt)";
  line(fmt::format("context {} tokens, policy {}, {}, cache {}", Grouped(stream.context()),
                   PolicyName(stream.policy()), pinned, Bytes(static_cast<double>(stream.kv_bytes()))));
  if (stream.policy() == Policy::kSinks) {
    line("The conversation may go on for ever: it stays fluent, but what left the window is forgotten.");
  } else if (stream.policy() == Policy::kWindow) {
    line("This policy evicts the attention sinks: it is kept to show how the text collapses then.");
  } else if (stream.policy() == Policy::kDense) {
    line("Nothing is ever dropped: the conversation ends when the context is full.");
  }
  line("/? lists the commands, a trailing \\ goes on in the next line, Ctrl-D leaves");
  Note("");
}

// Reads and answers lines until the end; returns the exit code. Off a terminal there is no prompt to return
// to: Ctrl-C and errors end it.
int Loop(ChatSession& session) {
  const std::unique_ptr<LineInput> input = LineInput::Create();
  int interrupts = 0;  // since the last line was sent
  while (true) {
    std::string text;
    const LineInput::Got got = input->Next(&text);
    if (got == LineInput::Got::kEnd) return 0;
    if (got == LineInput::Got::kFailed) return Fail(input->error());
    if (got == LineInput::Got::kInterrupted) {
      ClearInterrupt();
      if (++interrupts >= 2 || !session.edited) return 130;
      Note("[press Ctrl-C again or /bye to leave]");
      continue;
    }
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    interrupts = 0;
    if (session.edited) ClearInterrupt();
    Status status;
    if (text[0] == '/' && (text.size() < 2 || text[1] != '/')) {
      bool leave = false;
      status = RunChatCommand(session, text, &leave);
      if (leave) return 0;
    } else {
      if (text[0] == '/') text.erase(0, 1);  // "//x" sends "/x"
      status = session.AfterReply(session.chat->Say(text, session.Hooks()));
      if (status.code() == Code::kInterrupted) {
        Note("[stopped before the reply; the message was not sent]");
      }
    }
    const bool stopped = Interrupted() || status.code() == Code::kInterrupted;
    if (stopped && session.edited) {
      interrupts = 1;
      ClearInterrupt();
    }
    if (status.ok() || status.code() == Code::kInterrupted) {
      if (stopped && !session.edited) return 130;
      continue;
    }
    const int code = Fail(status);
    if (!session.edited || !session.output.ok()) return code;
  }
}

struct ChatFlags {
  CommonFlags common;
  ProfileFlags profile;
  SamplingFlags sampling;
  std::string system;
  std::string chat_format;
  std::string on_collapse = "warn";
  CLI::Option* system_option = nullptr;
};

int Chat(ChatFlags& flags) {
  if (Status status = CheckSamplingFlags(flags.sampling); !status.ok()) return Fail(status);
  Result<OnCollapse> on_collapse = ParseOnCollapse(flags.on_collapse);
  if (!on_collapse.ok()) return Fail(on_collapse.status());
  Result<std::string> policy = OnePolicy(flags.common);
  if (!policy.ok()) return Fail(policy.status());
  if (Status status = ApplyProfile(flags.profile, flags.common); !status.ok()) return Fail(status);
  Result<StreamOptions> stream = MakeStreamOptions(flags.common, *policy);
  if (!stream.ok()) return Fail(stream.status());
  Result<Loaded> loaded = LoadModel(flags.common);
  if (!loaded.ok()) return Fail(loaded.status());
  Result<ChatPrompter> prompter = ChooseChat(*loaded, flags.chat_format);
  if (!prompter.ok()) return Fail(prompter.status());
  Conversation::Options options;
  options.stream = *stream;
  options.sampling = flags.sampling;
  options.pin_system = flags.common.pin_system;
  options.on_collapse = *on_collapse;
  options.system = flags.system_option->count() > 0 ? flags.system : prompter->default_system();
  Result<std::unique_ptr<Conversation>> chat = Conversation::Create(*loaded, *prompter, options);
  if (!chat.ok()) return Fail(ExplainProfile(flags.profile, chat.status()));
  WarnBeyondTraining((*chat)->stream());
  ChatSession session;
  session.loaded = &*loaded;
  session.chat = std::move(*chat);
  session.json = flags.common.json;
  session.edited = StdinIsTerminal();
  if (session.edited || flags.common.verbose) Greet(session);
  const int code = Loop(session);
  if (!session.json) return code;
  nlohmann::json document = TranscriptJson(session);
  const Stream& s = session.chat->stream();
  document["usage"] = {{"prompt_tokens", session.tokens_in},
                       {"completion_tokens", session.tokens_out},
                       {"ballast",
                        {{"position", s.position()},
                         {"evicted_tokens", s.evicted()},
                         {"sinks", s.pinned()},
                         {"context", s.context()},
                         {"health", session.chat->guard().Json()}}}};
  const Status printed = PrintJson(document);
  return printed.ok() ? code : Fail(printed);
}

}  // namespace

Runner AddChat(CLI::App& app) {
  CLI::App* chat = app.add_subcommand("chat", "Talk to a model in the terminal, without end");
  auto flags = std::make_shared<ChatFlags>();
  const std::string group = "Conversation";
  flags->system_option =
      AddTextFlag(*chat, "--system", "SYSTEM", flags->system, "System prompt (default: the model's own)");
  flags->system_option->type_name("TEXT")->group(group);
  AddFlag(*chat, "--chat-format", "CHAT_FORMAT", flags->chat_format,
          "chatml, llama2, llama3, mistral, gemma, ..., or template: the model's own")
      ->type_name("NAME")
      ->group(group);
  AddCommonFlags(*chat, flags->common);
  AddProfileFlags(*chat, flags->profile);
  AddCollapseFlag(*chat, flags->on_collapse);
  AddSamplingFlags(*chat, flags->sampling);
  chat->footer(
      "When stdin is not a terminal, every line is a message; replies go to stdout.\n"
      "Without -n a reply ends with the model's end of turn, or after 2,048 tokens (at most the context).");
  return [flags] { return Chat(*flags); };
}

}  // namespace ballast::app
