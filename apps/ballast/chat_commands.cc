// The commands of `ballast chat`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "chat.h"
#include "terminal.h"

namespace ballast::app {
namespace {

constexpr int64_t kMostMessages = 1 << 20;  // of a transcript

// With --json stdout is for the one document.
Status Show(const ChatSession& session, const std::string& text) {
  if (!session.json) return Print(session.edited ? text + "\n" : text);
  Note(text.substr(0, text.find_last_not_of('\n') + 1));
  return Status();
}

std::string Row(const std::string& key, const std::string& value) {
  return fmt::format("  {} {}\n", Paint(Ink::kDim, fmt::format("{:<10}", key), StyledStdout()), value);
}

Status Help(ChatSession& session, const std::string&) {
  return Show(
      session,
      "  /?, /help       this list\n"
      "  /bye, /exit     leave (also Ctrl-D)\n"
      "  /clear          forget the conversation, keep the system prompt\n"
      "  /regen          another reply to the last message (the visible turns are read again)\n"
      "  /system TEXT    another system prompt (the visible turns are read again); without TEXT: show it\n"
      "  /save FILE      write the conversation as JSON\n"
      "  /load FILE      read one, streaming its whole history through the window\n"
      "  /cache          what the model sees now\n"
      "  /sinks          how much attention goes to the pinned tokens\n"
      "  /stats          tokens and speed\n"
      "  //text          send a message that begins with /\n"
      "  Ctrl-C          stop the reply; at the prompt, twice: leave\n");
}

Status Clear(ChatSession& session, const std::string&) {
  BALLAST_RETURN_IF_ERROR(session.chat->Clear());
  session.told_gone = 0;
  session.told_system = false;
  session.last.reset();
  Note("[cleared]");
  return Status();
}

Status Regenerate(ChatSession& session, const std::string&) {
  const Status status = session.AfterReply(session.chat->Regenerate(session.Hooks()));
  if (status.code() == Code::kInterrupted) Note("[stopped before the reply; the old one stays]");
  return status;
}

// A system prompt that is not pinned leaves the window like any text: said before it does.
std::string LeavesSoon(const Conversation& chat) {
  const Stream& stream = chat.stream();
  const int64_t room = stream.context() - stream.live();
  if (stream.policy() == Policy::kDense || chat.system_tokens() <= stream.pinned()) return "";
  if (chat.system_gone() || room >= stream.context() / 2) return "";
  return fmt::format("; it leaves the window after {} more token{} (--pin-system keeps it)", Grouped(room),
                     room == 1 ? "" : "s");
}

Status System(ChatSession& session, const std::string& text) {
  if (text.empty()) {
    const std::string& system = session.chat->system();
    return Show(session, system.empty() ? "  (no system prompt)\n" : "  " + ValidUtf8(system) + "\n");
  }
  const size_t turns = session.chat->turns();
  session.told_system = false;
  const Status status = session.chat->SetSystem(text, session.Hooks());
  if (status.code() == Code::kInterrupted) {
    Note("[stopped; the new system prompt is read with the next message]");
  }
  BALLAST_RETURN_IF_ERROR(status);
  const int64_t tokens = session.chat->system_tokens();
  Note(
      fmt::format("[new system prompt of {} token{}; {}{}]", Grouped(tokens), tokens == 1 ? "" : "s",
                  turns == 0 ? "it takes effect with the first message" : "the visible turns were read again",
                  LeavesSoon(*session.chat)));
  session.TellWhatLeft();
  return Status();
}

Status Save(ChatSession& session, const std::string& path) {
  if (path.empty()) return Status::Expected(Code::kInput, "/save", "a file name", "none");
  const std::string text =
      TranscriptJson(session).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  BALLAST_RETURN_IF_ERROR(WriteFileAtomically(path, text));
  Note(fmt::format("[saved {} messages to {}]", session.chat->turns(), path));
  return Status();
}

struct Transcript {
  std::string system;
  std::vector<ChatMessage> messages;
};

// Checks everything before the conversation is touched.
Result<Transcript> ParseTranscript(const std::string& path, const std::string& text) {
  const auto refuse = [&](const std::string& what, const std::string& expected, const std::string& found) {
    return Status::Expected(Code::kInput, path + ": " + what, expected, found);
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object())
    return refuse("transcript", "a JSON object, as /save writes",
                  json.is_discarded() ? "no JSON" : json.type_name());
  Transcript transcript;
  if (json.contains("system") && !json["system"].is_null()) {
    if (!json["system"].is_string()) return refuse("system", "text", json["system"].type_name());
    transcript.system = json["system"].get<std::string>();
  }
  if (!json.contains("messages") || !json["messages"].is_array())
    return refuse("messages", "an array", "none");
  if (static_cast<int64_t>(json["messages"].size()) > kMostMessages) {
    return refuse("messages", fmt::format("at most {}", kMostMessages),
                  std::to_string(json["messages"].size()));
  }
  for (const nlohmann::json& item : json["messages"]) {
    const size_t i = transcript.messages.size();
    const std::string what = fmt::format("message {}", i + 1);
    const bool whole = item.is_object() && item.contains("role") && item["role"].is_string() &&
                       item.contains("content") && item["content"].is_string();
    if (!whole) return refuse(what, "{\"role\", \"content\"}, both text", item.type_name());
    const std::string role = item["role"].get<std::string>();
    const std::string wanted = i % 2 == 0 ? "user" : "assistant";
    if (role != wanted) return refuse(what, "role " + wanted, "\"" + role + "\"");
    transcript.messages.push_back({role, item["content"].get<std::string>()});
  }
  if (transcript.messages.size() % 2 != 0) return refuse("messages", "a reply to the last message", "none");
  return transcript;
}

Status ReadAndLoad(ChatSession& session, const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const std::string text, ReadAll(path));
  BALLAST_ASSIGN_OR_RETURN(const Transcript transcript, ParseTranscript(path, text));
  Note(fmt::format("[reading {} messages through the window]", transcript.messages.size()));
  // The hooks, and with them the progress bar, are gone before the next line is written.
  BALLAST_RETURN_IF_ERROR(session.chat->Load(transcript.system, transcript.messages, session.Hooks()));
  session.told_gone = 0;
  session.told_system = false;
  session.last.reset();
  Note(fmt::format("[loaded: {} messages, {} tokens]", transcript.messages.size(),
                   Grouped(session.chat->stream().position())));
  session.TellWhatLeft();
  return Status();
}

Status Load(ChatSession& session, const std::string& path) {
  if (path.empty()) return Status::Expected(Code::kInput, "/load", "a file name", "none");
  const Status status = ReadAndLoad(session, path);
  if (status.code() == Code::kInterrupted) Note("[stopped; the conversation stays as it was]");
  return status;
}

// The slots: pinned, used window, free.
std::string CacheStrip(const Stream& stream) {
  constexpr int kColumns = 48;
  const bool utf8 = Utf8Locale();
  const double per_slot = static_cast<double>(kColumns) / static_cast<double>(stream.context());
  const int pinned = stream.pinned() == 0
                         ? 0
                         : std::max(1, static_cast<int>(static_cast<double>(stream.pinned()) * per_slot));
  const int used =
      std::max(pinned, static_cast<int>(std::lround(static_cast<double>(stream.live()) * per_slot)));
  std::string strip;
  for (int i = 0; i < kColumns; ++i) {
    const bool is_pinned = i < pinned && stream.live() > 0;
    const char* mark = is_pinned ? (utf8 ? "█" : "#") : i < used ? (utf8 ? "▒" : "+") : (utf8 ? "·" : ".");
    strip += Paint(is_pinned ? Ink::kAccent : i < used ? Ink::kBold : Ink::kDim, mark, StyledStdout());
  }
  return strip;
}

Status Cache(ChatSession& session, const std::string&) {
  const Conversation& chat = *session.chat;
  const Stream& stream = chat.stream();
  std::string text = Row("cache", CacheStrip(stream));
  text += Row("slots", fmt::format("{}: {} pinned and a window of {}", Grouped(stream.context()),
                                   Grouped(stream.pinned()), Grouped(stream.context() - stream.pinned())));
  text += Row("policy", std::string(PolicyName(stream.policy())));
  text += Row("position", Grouped(stream.position()) + " tokens so far");
  std::string live = "nothing yet";
  if (stream.live() > 0) {
    live = fmt::format("{} tokens", Grouped(stream.live()));
    if (stream.evicted() > 0) {
      live += fmt::format(": the first {}, and {} to {}", stream.pinned(), Grouped(stream.start()),
                          Grouped(stream.position() - 1));
    }
  }
  text += Row("visible", live);
  text += Row("evicted", Grouped(stream.evicted()));
  const size_t turns = chat.turns();
  const size_t gone = chat.gone();
  std::string seen = turns == 0          ? "none yet"
                     : gone >= turns     ? "none whole"
                     : gone + 1 == turns ? fmt::format("{} of {}", turns, turns)
                                         : fmt::format("{} to {} of {}", gone + 1, turns, turns);
  if (chat.gone_whole() < gone) seen += fmt::format(", and the end of {}", gone);
  text += Row(turns > 0 && gone + 1 == turns ? "turn" : "turns", seen);
  text += Row("memory", fmt::format("{} ({})", Bytes(static_cast<double>(stream.kv_bytes())),
                                    KvTypeName(stream.cache().type())));
  return Show(session, text);
}

// One column per layer, one line per head (several heads share a line when there are many).
std::string HeatMap(const std::vector<double>& mass, int layers, int heads) {
  constexpr int kMostLines = 16;
  const bool utf8 = Utf8Locale();
  const std::array<const char*, 6> marks = utf8 ? std::array<const char*, 6>{"·", "░", "░", "▒", "▓", "█"}
                                                : std::array<const char*, 6>{".", "-", "-", "+", "*", "#"};
  const auto mark = [&marks](double share) {
    const auto level = share < 0.05 ? 0 : std::min(5, 1 + static_cast<int>(share * 5));
    return marks[static_cast<size_t>(level)];
  };
  const int per_line = (heads + kMostLines - 1) / kMostLines;
  std::vector<double> layer_mean(static_cast<size_t>(layers), 0.0);
  std::string text;
  for (int head = 0; head < heads; head += per_line) {
    const int last = std::min(heads, head + per_line);
    std::string line;
    for (int layer = 0; layer < layers; ++layer) {
      double sum = 0;
      for (int h = head; h < last; ++h) sum += mass[static_cast<size_t>(layer) * heads + h];
      layer_mean[static_cast<size_t>(layer)] += sum / heads;
      line += mark(sum / (last - head));
    }
    text += Row(last - head == 1 ? fmt::format("head {}", head) : fmt::format("heads {}-{}", head, last - 1),
                line);
  }
  std::string means;
  for (double share : layer_mean) means += mark(share);
  text += Row("layer mean", means);
  return text;
}

Status Sinks(ChatSession& session, const std::string&) {
  const Conversation& chat = *session.chat;
  if (chat.stream().pinned() == 0)
    return Show(session, "  Nothing is pinned: the policy keeps no attention sinks.\n");
  if (chat.sink_rows() == 0) return Show(session, "  No message yet.\n");
  const ModelConfig& config = chat.stream().model().config();
  const std::vector<double>& mass = chat.sink_mass();
  double total = 0;
  int over = 0;
  for (double share : mass) {
    total += share;
    over += share > 0.05 ? 1 : 0;
  }
  const auto count = static_cast<double>(mass.size());
  std::string text = fmt::format(
      "  Attention paid to {}, mean over the newest {} of your message.\n"
      "  A short context makes the shares large: there is little else to look at.\n\n",
      chat.stream().pinned() == 1 ? "the pinned token"
                                  : fmt::format("all {} pinned tokens together", chat.stream().pinned()),
      chat.sink_rows() == 1 ? "token" : fmt::format("{} tokens", chat.sink_rows()));
  text += HeatMap(mass, config.layers, config.heads);
  text += Row("", fmt::format("layers 0 to {}{}", config.layers - 1,
                              Utf8Locale() ? "; · under 5%, ░ ▒ ▓ █ more" : "")) +
          "\n";
  text += Row("mean", fmt::format("{:.0f}% of all attention", 100 * total / count));
  text += Row("heads",
              fmt::format("{} of {} ({:.0f}%) spend over 5% there", over, mass.size(), 100 * over / count));
  return Show(session, text);
}

Status Stats(ChatSession& session, const std::string&) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? fmt::format("{:.1f} tokens/s", static_cast<double>(tokens) / seconds)
                       : std::string("-");
  };
  std::string text = Row("sent", Grouped(session.tokens_in) + " tokens");
  text += Row("generated", Grouped(session.tokens_out) + " tokens");
  if (session.last.has_value()) {
    const Conversation::Reply& last = *session.last;
    const auto out = static_cast<int64_t>(last.generated.tokens.size());
    text += Row("last", fmt::format("read {} at {}, wrote {} at {}", last.prompt_tokens,
                                    rate(last.prompt_tokens, last.prompt_seconds), out,
                                    rate(out, last.reply_seconds)));
  }
  text += Row("seed", std::to_string(session.chat->seed()));
  return Show(session, text);
}

Status NoCommand(const std::string& name) {
  Note("[no command " + ValidUtf8(name) + "; /? lists them; // sends a message that begins with /]");
  return Status();
}

}  // namespace

nlohmann::json TranscriptJson(const ChatSession& session) {
  const Conversation& chat = *session.chat;
  const Stream& stream = chat.stream();
  nlohmann::json messages = nlohmann::json::array();
  for (const ChatMessage& message : chat.Messages()) {
    messages.push_back({{"role", message.role}, {"content", ValidUtf8(message.content)}});
  }
  const SamplerOptions& sampling = chat.sampler().options();
  return {{"ballast", "chat"},
          {"version", 1},
          {"system", ValidUtf8(chat.system())},
          {"messages", messages},
          {"options",
           {{"model", session.loaded->model->config().name},
            {"format", chat.prompter().name()},
            {"policy", PolicyName(stream.policy())},
            {"context", stream.context()},
            {"pinned", stream.pinned()},
            {"kv", KvTypeName(stream.cache().type())},
            {"seed", chat.seed()},
            {"temperature", sampling.temperature},
            {"top_k", sampling.top_k},
            {"top_p", sampling.top_p},
            {"min_p", sampling.min_p}}}};
}

Status RunChatCommand(ChatSession& session, const std::string& line, bool* leave) {
  using Command = Status (*)(ChatSession&, const std::string&);
  static constexpr std::pair<std::string_view, Command> kCommands[] = {
      {"/?", Help},    {"/help", Help}, {"/clear", Clear}, {"/regen", Regenerate}, {"/system", System},
      {"/save", Save}, {"/load", Load}, {"/cache", Cache}, {"/sinks", Sinks},      {"/stats", Stats},
  };
  const size_t space = line.find_first_of(" \t\n");
  const std::string name = line.substr(0, space);
  size_t begin = space == std::string::npos ? line.size() : line.find_first_not_of(" \t\n", space);
  if (begin == std::string::npos) begin = line.size();
  std::string arguments = line.substr(begin);
  while (!arguments.empty() && (arguments.back() == ' ' || arguments.back() == '\n')) arguments.pop_back();
  *leave = name == "/bye" || name == "/exit";
  if (*leave) return Status();
  for (const auto& [known, command] : kCommands) {
    if (name != known) continue;
    const Status status = command(session, arguments);
    // What a command refuses is told; the conversation goes on, also in a pipe.
    if (status.ok() || status.code() == Code::kInterrupted || !session.output.ok()) return status;
    Note("[" + status.message() + "]");
    return Status();
  }
  return NoCommand(name);
}

}  // namespace ballast::app
