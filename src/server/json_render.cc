#include "server/json_render.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ballast::server {
namespace {

using nlohmann::json;

// JSON has no infinity; OpenAI's lowest is -9999. NaN (a prompt's first token has no score): null.
json Logprob(double value) {
  if (std::isnan(value)) return nullptr;
  return std::max(value, -9999.0);
}

json ScoreJson(const TokenScore& score) {
  json bytes = json::array();
  for (const char byte : score.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", score.bytes}, {"logprob", Logprob(score.logprob)}, {"bytes", std::move(bytes)}};
}

int64_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

json HealthJson(const HealthInfo& health) {
  const Verdict& v = health.verdict;
  const bool well = v.state == Health::kOk;
  return {{"state", HealthName(v.state)},
          {"reason", well ? json(nullptr) : json(AilmentName(v.reason))},
          {"since", well ? json(nullptr) : json(v.since)},
          {"rescues", health.rescues}};
}

json BallastJson(const Usage& usage) {
  return {{"position", usage.position},
          {"evicted_tokens", usage.evicted_tokens},
          {"sinks", usage.sinks},
          {"context", usage.context},
          {"session", usage.session.empty() ? json(nullptr) : json(usage.session)},
          {"health", HealthJson(usage.health)},
          {"warnings", usage.warnings}};
}

json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}},
          {"ballast", BallastJson(usage)}};
}

json ResponsesUsageJson(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"ballast", BallastJson(usage)}};
}

void AddUsage(const Usage& usage, Usage* total) {
  total->completion_tokens += usage.completion_tokens;
  if (usage.health.verdict.state > total->health.verdict.state) total->health = usage.health;
  for (const std::string& warning : usage.warnings) {
    if (std::find(total->warnings.begin(), total->warnings.end(), warning) == total->warnings.end()) {
      total->warnings.push_back(warning);
    }
  }
}

json TokenReportsJson(const std::vector<TokenReport>& tokens) {
  json list = json::array();
  for (const TokenReport& token : tokens) {
    json item = ScoreJson(token);
    json top = json::array();
    for (const TokenScore& score : token.top) top.push_back(ScoreJson(score));
    item["top_logprobs"] = std::move(top);
    list.push_back(std::move(item));
  }
  return list;
}

json CompletionLogprobsJson(const std::vector<TokenReport>& tokens, int64_t* offset) {
  json texts = json::array(), scores = json::array(), tops = json::array(), offsets = json::array();
  for (const TokenReport& token : tokens) {
    texts.push_back(token.bytes);
    scores.push_back(Logprob(token.logprob));
    json top = json::object();
    for (const TokenScore& score : token.top) top[score.bytes] = Logprob(score.logprob);
    tops.push_back(token.top.empty() ? json(nullptr) : std::move(top));
    offsets.push_back(*offset);
    *offset += Characters(token.bytes);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(scores)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

const char* FinishName(Finish finish) { return finish == Finish::kLength ? "length" : "stop"; }

json SessionJson(const SessionInfo& session) {
  return {{"id", session.id},
          {"object", "session"},
          {"state", session.state},
          {"policy", session.policy},
          {"position", session.position},
          {"evicted_tokens", session.evicted_tokens},
          {"sinks", session.sinks},
          {"context", session.context},
          {"turns", session.turns},
          {"kv_bytes", session.kv_bytes},
          {"idle_seconds", session.idle_seconds}};
}

json CacheJson(const CacheView& view) {
  json fresh = json::array();
  for (const CacheView::Cell& cell : view.fresh) {
    fresh.push_back({{"position", cell.position}, {"text", cell.text}});
  }
  json mass = json::array();  // (layer, head), four digits: it is drawn, not computed with
  for (const float share : view.sink_mass) {
    mass.push_back(std::isfinite(share) ? json(std::round(double{share} * 1e4) / 1e4) : json(nullptr));
  }
  return {{"position", view.position},
          {"start", view.start},
          {"sinks", view.sinks},
          {"context", view.context},
          {"live", view.live},
          {"evicted_tokens", view.evicted_tokens},
          {"write_slot", view.write_slot},
          {"policy", view.policy},
          {"fresh", std::move(fresh)},
          {"layers", view.layers},
          {"heads", view.heads},
          {"sink_mass", std::move(mass)},
          {"tokens_per_second", view.tokens_per_second},
          {"surprise", view.surprise},
          {"health", HealthJson(view.health)}};
}

json ModelJson(const Service::ModelInfo& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "ballast"},
          {"ballast",
           {{"architecture", model.architecture},
            {"chat_format", model.chat_format},
            {"context", model.context},
            {"trained_context", model.trained_context},
            {"sinks", model.sinks},
            {"vocab", model.vocab},
            {"kv", model.kv},
            {"policy", model.policy}}}};
}

}  // namespace ballast::server
