// /v1/chat/completions and /v1/completions: chunks or one document.
#include <utility>

#include "server/generate_answer.h"
#include "server/json_render.h"
#include "server/sse.h"

namespace ballast::server {
namespace {

using nlohmann::json;

class ChatAnswer : public GenerateAnswer {
 public:
  ChatAnswer(Service& service, HttpCounters* counters, Generate spec)
      : GenerateAnswer(service, counters, std::move(spec)) {}

 protected:
  void Take(size_t i, News& news, std::string* out) override {
    if (choices_.size() <= i) choices_.resize(i + 1);
    Choice& choice = choices_[i];
    if (spec_.stream) return Stream(i, choice, news, out);
    choice.text += news.text;
    for (TokenReport& token : news.tokens) choice.tokens.push_back(std::move(token));
    if (news.finish) End(i, choice, news);
  }

  void Finish(std::string* out) override {
    if (!spec_.stream) return Whole(out);
    if (spec_.include_usage) {
      json chunk = Envelope(true);
      chunk["choices"] = json::array();
      chunk["usage"] = UsageJson(usage_);
      AppendEvent(chunk, out);
    }
    AppendDone(out);
  }

 private:
  struct Choice {
    std::string text;
    std::vector<TokenReport> tokens;
    server::Finish finish = server::Finish::kStop;
    bool opened = false;
    int64_t offset = 0;  // characters before the next token
  };
  bool chat() const { return spec_.api == Api::kChat; }

  json Envelope(bool chunk) const {
    const char* object = chat() ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
    return {{"id", spec_.id},
            {"object", object},
            {"created", spec_.created},
            {"model", spec_.model},
            {"system_fingerprint", "ballast-" BALLAST_SERVER_VERSION}};
  }

  json Logprobs(const std::vector<TokenReport>& tokens, Choice& choice) const {
    if (spec_.top_logprobs < 0) return nullptr;
    if (!chat()) return CompletionLogprobsJson(tokens, &choice.offset);
    return {{"content", TokenReportsJson(tokens)}, {"refusal", nullptr}};
  }

  void Chunk(size_t i, json choice, std::string* out) const {
    choice["index"] = i;
    json chunk = Envelope(true);
    chunk["choices"] = json::array({std::move(choice)});
    if (spec_.include_usage) chunk["usage"] = nullptr;
    AppendEvent(chunk, out);
  }

  void Stream(size_t i, Choice& choice, const News& news, std::string* out) {
    const bool begins = news.started || !news.text.empty() || news.finish;
    if (chat() && begins && !std::exchange(choice.opened, true)) {
      const json delta = {{"role", "assistant"}, {"content", ""}};
      Chunk(i, {{"delta", delta}, {"logprobs", nullptr}, {"finish_reason", nullptr}}, out);
    }
    if (!news.text.empty() || !news.tokens.empty()) {
      json item = {{"logprobs", news.tokens.empty() ? json(nullptr) : Logprobs(news.tokens, choice)},
                   {"finish_reason", nullptr}};
      if (chat()) {
        item["delta"] = {{"content", news.text}};
      } else {
        item["text"] = news.text;
      }
      Chunk(i, std::move(item), out);
    }
    if (!news.finish) return;
    End(i, choice, news);
    json item = {{"logprobs", nullptr}, {"finish_reason", FinishName(choice.finish)}};
    item[chat() ? "delta" : "text"] = chat() ? json::object() : json("");
    Chunk(i, std::move(item), out);
  }

  void End(size_t i, Choice& choice, const News& news) {
    choice.finish = *news.finish;
    if (i == 0) {
      // The others' tokens that came first are kept.
      const Usage others = std::exchange(usage_, news.usage);
      AddUsage(others, &usage_);
    } else {
      AddUsage(news.usage, &usage_);
    }
  }

  void Whole(std::string* out) {
    json list = json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      json item = {{"index", i},
                   {"logprobs", Logprobs(choice.tokens, choice)},
                   {"finish_reason", FinishName(choice.finish)}};
      if (chat()) {
        item["message"] = {{"role", "assistant"}, {"content", std::move(choice.text)}, {"refusal", nullptr}};
      } else {
        item["text"] = std::move(choice.text);
      }
      list.push_back(std::move(item));
    }
    json answer = Envelope(false);
    answer["choices"] = std::move(list);
    answer["usage"] = UsageJson(usage_);
    out->append(Dump(answer));
  }

  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace

std::unique_ptr<Answer> MakeChatAnswer(Service& service, HttpCounters* counters, Generate spec) {
  return std::make_unique<ChatAnswer>(service, counters, std::move(spec));
}

}  // namespace ballast::server
