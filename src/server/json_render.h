// From the service's answers to OpenAI's JSON. Thread safety: pure functions.
#ifndef BALLAST_SERVER_JSON_RENDER_H_
#define BALLAST_SERVER_JSON_RENDER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/service.h"

namespace ballast::server {

// What a usage object says beyond OpenAI's:
// {"position","evicted_tokens","sinks","context","session","warnings"}.
nlohmann::json BallastJson(const Usage& usage);
nlohmann::json UsageJson(const Usage& usage);           // chat, completions
nlohmann::json ResponsesUsageJson(const Usage& usage);  // responses
// Adds another choice's tokens to `total`, which keeps its own session's figures.
void AddUsage(const Usage& usage, Usage* total);

// [{"token","logprob","bytes","top_logprobs":[...]}]
nlohmann::json TokenReportsJson(const std::vector<TokenReport>& tokens);
// The older shape: {"tokens","token_logprobs","top_logprobs","text_offset"}. `offset`: characters before the
// first of them; moved on.
nlohmann::json CompletionLogprobsJson(const std::vector<TokenReport>& tokens, int64_t* offset);

const char* FinishName(Finish finish);  // "stop", "length"

nlohmann::json SessionJson(const SessionInfo& session);
nlohmann::json CacheJson(const CacheView& view);
nlohmann::json ModelJson(const Service::ModelInfo& model);

}  // namespace ballast::server

#endif  // BALLAST_SERVER_JSON_RENDER_H_
