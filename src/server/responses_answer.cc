// /v1/responses: one document, or the events in OpenAI's order.
#include <utility>

#include "server/generate_answer.h"
#include "server/json_render.h"
#include "server/sse.h"

namespace ballast::server {
namespace {

using nlohmann::json;

class ResponsesAnswer : public GenerateAnswer {
 public:
  ResponsesAnswer(Service& service, HttpCounters* counters, Generate spec)
      : GenerateAnswer(service, counters, std::move(spec)),
        // The id's digits serve the message as well.
        item_id_("msg_" + spec_.id.substr(spec_.id.find('_') + 1)) {}

 protected:
  void Take(size_t, News& news, std::string* out) override {
    const bool begins = news.started || !news.text.empty() || news.finish;
    if (spec_.stream && begins && !std::exchange(opened_, true)) Open(out);
    if (spec_.stream && (!news.text.empty() || !news.tokens.empty())) {
      Event("response.output_text.delta",
            {{"item_id", item_id_},
             {"output_index", 0},
             {"content_index", 0},
             {"delta", news.text},
             {"logprobs", TokenReportsJson(news.tokens)}},
            out);
    }
    text_ += news.text;
    for (TokenReport& token : news.tokens) tokens_.push_back(std::move(token));
    if (!news.finish) return;
    finish_ = *news.finish;
    usage_ = std::move(news.usage);
  }

  void Finish(std::string* out) override {
    const bool whole = finish_ == server::Finish::kStop;
    const char* status = whole ? "completed" : "incomplete";
    const json response = Response(status, json::array({Item(status)}), ResponsesUsageJson(usage_));
    if (!spec_.stream) return void(out->append(Dump(response)));
    json at = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    json text = at;
    text["text"] = text_;
    text["logprobs"] = TokenReportsJson(tokens_);
    Event("response.output_text.done", std::move(text), out);
    at["part"] = Part();
    Event("response.content_part.done", std::move(at), out);
    Event("response.output_item.done", {{"output_index", 0}, {"item", Item(status)}}, out);
    Event(whole ? "response.completed" : "response.incomplete", {{"response", response}}, out);
  }

  // The typed event of this API, and the object that clients raise on.
  void StreamError(const ApiError& error, std::string* out) override {
    json event = ErrorJson(error);
    for (const char* name : {"message", "param", "code"}) event[name] = event["error"][name];
    Event("error", std::move(event), out);
  }

 private:
  void Event(const char* type, json data, std::string* out) {
    data["type"] = type;
    data["sequence_number"] = sequence_++;
    AppendEvent(type, data, out);
  }

  void Open(std::string* out) {
    const json response = Response("in_progress", json::array(), nullptr);
    Event("response.created", {{"response", response}}, out);
    Event("response.in_progress", {{"response", response}}, out);
    const json item = {{"id", item_id_},
                       {"type", "message"},
                       {"status", "in_progress"},
                       {"role", "assistant"},
                       {"content", json::array()}};
    Event("response.output_item.added", {{"output_index", 0}, {"item", item}}, out);
    Event("response.content_part.added",
          {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}, {"part", Part()}}, out);
  }

  json Part() const {
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", json::array()},
            {"logprobs", TokenReportsJson(tokens_)}};
  }

  json Item(const char* status) const {
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", json::array({Part()})}};
  }

  json Response(const char* status, json output, json usage) const {
    json response = spec_.echo;
    response["id"] = spec_.id;
    response["object"] = "response";
    response["created_at"] = spec_.created;
    response["model"] = spec_.model;
    response["status"] = status;
    response["error"] = nullptr;
    const bool cut = std::string_view(status) == "incomplete";
    response["incomplete_details"] = cut ? json::object({{"reason", "max_output_tokens"}}) : json(nullptr);
    response["output"] = std::move(output);
    response["usage"] = std::move(usage);
    return response;
  }

  const std::string item_id_;
  std::string text_;
  std::vector<TokenReport> tokens_;
  server::Finish finish_ = server::Finish::kStop;
  Usage usage_;
  int64_t sequence_ = 0;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<Answer> MakeResponsesAnswer(Service& service, HttpCounters* counters, Generate spec) {
  return std::make_unique<ResponsesAnswer>(service, counters, std::move(spec));
}

}  // namespace ballast::server
