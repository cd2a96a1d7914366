// Health, models, generation, tokens, metrics.
#include "server/routes.h"

#include <fmt/format.h>

#include "server/generate_answer.h"
#include "server/json_render.h"

namespace ballast::server {
namespace {

using nlohmann::json;

std::unique_ptr<Answer> Health(const RouteContext& context) {
  switch (context.service->state()) {
    case Service::State::kReady:
      return JsonAnswer({{"status", "ok"}});
    case Service::State::kLoading: {
      Head head;
      head.status = 503;
      head.headers = {{"Retry-After", "1"}};
      return std::make_unique<TextAnswer>(std::move(head), "{\"status\":\"loading\"}");
    }
    case Service::State::kDraining:
      return JsonAnswer({{"status", "draining"}}, 503);
    case Service::State::kFailed:
      break;
  }
  return JsonAnswer({{"status", "failed"}}, 503);
}

using Parse = std::optional<ApiError> (*)(const HttpRequest&, const ModelNames&, Generate*);
using Make = std::unique_ptr<Answer> (*)(Service&, HttpCounters*, Generate);

Handler Generating(const RouteContext& context, Parse parse, Make make) {
  return [&context, parse, make](const HttpRequest& request) {
    if (std::optional<ApiError> error = NotReady(context)) return ErrorAnswer(*error);
    const ModelNames names{&context.service->model(), context.model_aliases};
    Generate spec;
    if (std::optional<ApiError> error = parse(request, names, &spec)) return ErrorAnswer(*error);
    return make(*context.service, &context.metrics->http, std::move(spec));
  };
}

std::unique_ptr<Answer> Models(const RouteContext& context) {
  if (context.service->state() == Service::State::kLoading) return ErrorAnswer(*NotReady(context));
  return JsonAnswer({{"object", "list"}, {"data", json::array({ModelJson(context.service->model())})}});
}

std::unique_ptr<Answer> OneModel(const RouteContext& context, const HttpRequest& request) {
  if (context.service->state() == Service::State::kLoading) return ErrorAnswer(*NotReady(context));
  const ModelNames names{&context.service->model(), context.model_aliases};
  const json wanted = {{"model", request.params[0]}};
  Fields fields(wanted);
  CheckModel(fields, names);
  if (!fields.ok()) return ErrorAnswer(*fields.error());
  return JsonAnswer(ModelJson(context.service->model()));
}

// {"content"} as llama-server has it, or {"prompt"} as vLLM does.
std::unique_ptr<Answer> Tokenize(const RouteContext& context, const HttpRequest& request) {
  if (std::optional<ApiError> error = NotReady(context)) return ErrorAnswer(*error);
  json body;
  if (std::optional<ApiError> error = ParseObject(request.body, &body)) return ErrorAnswer(*error);
  Fields fields(body);
  std::string text;
  Tokenizer::EncodeOptions options;
  bool pieces = false;
  CheckModel(fields, {&context.service->model(), context.model_aliases});
  const bool given = fields.String("content", &text) || fields.String("prompt", &text);
  if (!given) fields.Missing("content", "a string");
  fields.Bool("add_special", &options.add_special);
  fields.Bool("parse_special", &options.parse_special);
  fields.Bool("with_pieces", &pieces);
  if (!fields.ok()) return ErrorAnswer(*fields.error());
  const Tokenizer& tokenizer = context.service->tokenizer();
  const std::vector<Token> ids = tokenizer.Encode(text, options);
  json tokens = json::array();
  for (const Token id : ids) {
    tokens.push_back(pieces ? json{{"id", id}, {"piece", tokenizer.Piece(id, true)}} : json(id));
  }
  return JsonAnswer({{"tokens", std::move(tokens)},
                     {"count", ids.size()},
                     {"max_model_len", context.service->model().context}});
}

std::unique_ptr<Answer> Detokenize(const RouteContext& context, const HttpRequest& request) {
  if (std::optional<ApiError> error = NotReady(context)) return ErrorAnswer(*error);
  json body;
  if (std::optional<ApiError> error = ParseObject(request.body, &body)) return ErrorAnswer(*error);
  Fields fields(body);
  CheckModel(fields, {&context.service->model(), context.model_aliases});
  const json* list = fields.Find("tokens");
  const Tokenizer& tokenizer = context.service->tokenizer();
  const std::string expected = fmt::format("token ids from 0 to {}", tokenizer.size() - 1);
  if (list == nullptr) {
    fields.Missing("tokens", expected);
  } else if (!list->is_array()) {
    fields.Fail("tokens", expected, *list);
  }
  std::vector<Token> ids;
  for (size_t i = 0; fields.ok() && i < list->size(); ++i) {
    const std::optional<int64_t> id = AsInteger((*list)[i]);
    if (!id || *id < 0 || *id >= tokenizer.size())
      fields.Fail(fmt::format("tokens[{}]", i), expected, (*list)[i]);
    if (fields.ok()) ids.push_back(static_cast<Token>(*id));
  }
  if (!fields.ok()) return ErrorAnswer(*fields.error());
  const std::string text = tokenizer.Decode(ids);
  return JsonAnswer({{"content", text}, {"prompt", text}});
}

std::unique_ptr<Answer> MetricsText(const RouteContext& context) {
  Head head;
  head.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return std::make_unique<TextAnswer>(std::move(head), context.metrics->Text());
}

}  // namespace

std::optional<ApiError> NotReady(const RouteContext& context) {
  const Service::State state = context.service->state();
  if (state == Service::State::kReady) return std::nullopt;
  ApiError error;
  error.status = 503;
  error.retry_after = 2;
  if (state == Service::State::kLoading) {
    error.message = "the model is loading";
    error.code = "loading";
  } else if (state == Service::State::kDraining) {
    error.message = "the server is stopping";
    error.code = "stopping";
    error.retry_after = 5;
  } else {
    error.message = "the model could not be loaded; the server's log says why";
    error.code = "model_failed";
    error.retry_after = 0;
  }
  return error;
}

void AddRoutes(const RouteContext& context, Router* router) {
  const RouteContext* c = &context;
  router->Add(
      "GET", "/health", [c](const HttpRequest&) { return Health(*c); }, true);
  router->Add("POST", "/v1/chat/completions", Generating(context, ParseChat, MakeChatAnswer));
  router->Add("POST", "/v1/completions", Generating(context, ParseCompletion, MakeChatAnswer));
  router->Add("POST", "/v1/responses", Generating(context, ParseResponses, MakeResponsesAnswer));
  router->Add("GET", "/v1/models", [c](const HttpRequest&) { return Models(*c); });
  router->Add("GET", "/v1/models/{model}", [c](const HttpRequest& r) { return OneModel(*c, r); });
  router->Add("POST", "/tokenize", [c](const HttpRequest& r) { return Tokenize(*c, r); });
  router->Add("POST", "/detokenize", [c](const HttpRequest& r) { return Detokenize(*c, r); });
  router->Add("GET", "/metrics", [c](const HttpRequest&) { return MetricsText(*c); });
  AddSessionRoutes(context, router);
  AddPageRoutes(router);
}

}  // namespace ballast::server
