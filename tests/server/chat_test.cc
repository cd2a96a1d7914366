// /v1/chat/completions and /v1/completions as OpenAI's clients see them.
#include "server/http_client.h"

namespace ballast::server::testing {
namespace {

class ChatTest : public ServerTest {};

TEST_F(ChatTest, AnswersWithTextFinishAndTrueUsage) {
  const Reply reply = Chat({{"model", "fake-model"}, {"session", "s1"}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json d = reply.document();
  EXPECT_EQ(d["object"], "chat.completion");
  EXPECT_EQ(d["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(d["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(d["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(d["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(d["usage"]["completion_tokens"], 5);
  EXPECT_EQ(d["usage"]["total_tokens"], 12);
  EXPECT_EQ(d["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  const json ballast = d["usage"]["ballast"];
  EXPECT_EQ(ballast["position"], 12);
  EXPECT_EQ(ballast["evicted_tokens"], 0);
  EXPECT_EQ(ballast["sinks"], 4);
  EXPECT_EQ(ballast["context"], 1024);
  EXPECT_EQ(ballast["session"], "s1");
  EXPECT_EQ(ballast["warnings"], json::array());
  EXPECT_FALSE(reply.headers.at("x-request-id").empty());
}

TEST_F(ChatTest, StreamedTextEqualsTheWholeOneAndUsageComesLast) {
  const Reply reply = Chat(
      {{"messages", Say("grüße 你好")}, {"stream", true}, {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const std::vector<json> events = Events(reply.body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_EQ(events[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(events[i]["id"], events[0]["id"]);
    EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
    text += events[i]["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, "grüße 你好");
  EXPECT_EQ(events[events.size() - 3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[events.size() - 2]["choices"], json::array());
  EXPECT_EQ(events[events.size() - 2]["usage"]["completion_tokens"], 8);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(ChatTest, WithoutIncludeUsageNoChunkHasOne) {
  for (const json& event : Events(Chat({{"stream", true}}).body)) {
    EXPECT_TRUE(event == "[DONE]" || !event.contains("usage"));
  }
}

TEST_F(ChatTest, NChoicesAreIndexedAndSeededApart) {
  const json d = Chat({{"n", 3}, {"seed", 42}}).document();
  ASSERT_EQ(d["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(d["choices"][i]["index"], i);
  EXPECT_EQ(d["usage"]["completion_tokens"], 15);
  EXPECT_EQ(d["usage"]["prompt_tokens"], 7);
  const std::vector<Request> requests = service.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(*requests[0].sampling.seed, 42u);
  EXPECT_NE(*requests[1].sampling.seed, *requests[2].sampling.seed);
  EXPECT_NE(requests[0].id, requests[1].id);
  std::map<int, std::string> texts;
  for (const json& event : Events(Chat({{"n", 2}, {"stream", true}}).body)) {
    if (event == "[DONE]") continue;
    texts[event["choices"][0]["index"]] += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "hello"}, {1, "hello"}}));
}

TEST_F(ChatTest, SamplingReachesTheServiceAndNullIsAbsent) {
  Chat({{"temperature", 0.25},
        {"top_p", 0.5},
        {"presence_penalty", 1.5},
        {"frequency_penalty", -1},
        {"logit_bias", {{"65", -100}, {"66", 3.5}}},
        {"stop", {"END", "\n"}},
        {"max_completion_tokens", 3},
        {"max_tokens", 9},
        {"top_k", 7},
        {"min_p", 0.125},
        {"repeat_penalty", 1.25},
        {"policy", "window"},
        {"sinks", 2},
        {"evict", "turn"},
        {"pin_system", true},
        {"truncation", "disabled"}});
  Chat({{"seed", nullptr},
        {"stop", nullptr},
        {"temperature", nullptr},
        {"tools", nullptr},
        {"model", nullptr},
        {"session", nullptr},
        {"logit_bias", nullptr},
        {"n", nullptr},
        {"response_format", {{"type", "text"}}},
        {"tools", json::array()},
        {"an_unknown_field", {1, 2}}});
  const std::vector<Request> requests = service.requests();
  ASSERT_EQ(requests.size(), 2u);
  const Request& r = requests[0];
  EXPECT_EQ(r.sampling.temperature, 0.25);
  EXPECT_EQ(r.sampling.top_p, 0.5);
  EXPECT_EQ(r.sampling.presence_penalty, 1.5);
  EXPECT_EQ(r.sampling.frequency_penalty, -1);
  EXPECT_EQ(r.sampling.logit_bias, (std::map<Token, double>{{65, -100}, {66, 3.5}}));
  EXPECT_EQ(r.stops, (std::vector<std::string>{"END", "\n"}));
  EXPECT_EQ(r.max_tokens, 3);
  EXPECT_EQ(r.sampling.top_k, 7);
  EXPECT_EQ(r.sampling.min_p, 0.125);
  EXPECT_EQ(r.sampling.repeat_penalty, 1.25);
  EXPECT_EQ(*r.policy, Policy::kWindow);
  EXPECT_EQ(*r.sinks, 2);
  EXPECT_EQ(*r.evict, Evict::kTurn);
  EXPECT_TRUE(r.pin_system);
  EXPECT_TRUE(r.refuse_eviction);
  EXPECT_FALSE(requests[1].sampling.seed.has_value());
  EXPECT_EQ(requests[1].sampling.temperature, SamplerOptions().temperature);
  EXPECT_EQ(requests[1].max_tokens, -1);
}

TEST_F(ChatTest, ContentMayBeTextPartsAndNothingElse) {
  const json parts = {{{"type", "text"}, {"text", "he"}}, {{"type", "text"}, {"text", "llo"}}};
  const json messages = {{{"role", "user"}, {"content", parts}}};
  EXPECT_EQ(Chat({{"messages", messages}}).document()["choices"][0]["message"]["content"], "hello");
  const json image = {{{"type", "image_url"}, {"image_url", {{"url", "data:"}}}}};
  const Reply reply = Chat({{"messages", {{{"role", "user"}, {"content", image}}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.document()["error"]["param"], "messages[0].content[0].type");
}

TEST_F(ChatTest, WrongFieldsAre400AndNamed) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"temperature", "hot"}}, "temperature"},
      {{{"temperature", 2.5}}, "temperature"},
      {{{"temperature", -0.1}}, "temperature"},
      {{{"top_p", 1.5}}, "top_p"},
      {{{"max_tokens", -1}}, "max_tokens"},
      {{{"max_tokens", 1.5}}, "max_tokens"},
      {{{"max_tokens", 18446744073709551615u}}, "max_tokens"},
      {{{"n", 0}}, "n"},
      {{{"n", 17}}, "n"},
      {{{"n", 1000000000}}, "n"},
      {{{"n", 2}, {"session", "s"}}, "n"},
      {{{"seed", "x"}}, "seed"},
      {{{"stop", 5}}, "stop"},
      {{{"stop", {"a", 5}}}, "stop"},
      {{{"stop", ""}}, "stop"},
      {{{"stop", std::vector<std::string>(17, "a")}}, "stop"},
      {{{"stream", "yes"}}, "stream"},
      {{{"stream_options", 1}}, "stream_options"},
      {{{"stream_options", {{"include_usage", 1}}}}, "stream_options.include_usage"},
      {{{"logit_bias", {{"256", 1}}}}, "logit_bias"},
      {{{"logit_bias", {{"-1", 1}}}}, "logit_bias"},
      {{{"logit_bias", {{"1", "x"}}}}, "logit_bias"},
      {{{"logit_bias", {{"1", 101}}}}, "logit_bias"},
      {{{"logprobs", 3}}, "logprobs"},
      {{{"top_logprobs", 21}, {"logprobs", true}}, "top_logprobs"},
      {{{"top_logprobs", 2}}, "top_logprobs"},
      {{{"messages", json::array()}}, "messages"},
      {{{"messages", "hi"}}, "messages"},
      {{{"messages", {1}}}, "messages[0]"},
      {{{"messages", {{{"role", "robot"}, {"content", "x"}}}}}, "messages[0].role"},
      {{{"messages", {{{"role", "user"}}}}}, "messages[0].content"},
      {{{"messages", {{{"role", "user"}, {"content", 5}}}}}, "messages[0].content"},
      {{{"session", "../etc"}}, "session"},
      {{{"session", ""}}, "session"},
      {{{"session", std::string(65, 'a')}}, "session"},
      {{{"policy", "none"}}, "policy"},
      {{{"sinks", -1}}, "sinks"},
      {{{"evict", "all"}}, "evict"},
      {{{"truncation", "maybe"}}, "truncation"},
      {{{"tools", "x"}}, "tools"},
      {{{"tools", {{{"type", "function"}}}}}, "tools[0].function.name"},
      {{{"tools", {{{"type", "retrieval"}}}}}, "tools[0].type"},
      {{{"messages", {{{"role", "user"}, {"content", "x"}, {"tool_calls", {1}}}}}}, "messages[0].tool_calls"},
      {{{"messages", {{{"role", "assistant"}, {"tool_calls", {1}}}}}}, "messages[0].tool_calls[0].type"},
      {{{"messages", {{{"role", "tool"}, {"content", "x"}, {"tool_call_id", 5}}}}},
       "messages[0].tool_call_id"},
      {{{"functions", {1}}}, "functions"},
      {{{"tool_choice", "required"}}, "tool_choice"},
      {{{"tool_choice", ""}}, "tool_choice"},
      {{{"tool_choice", json::array()}}, "tool_choice"},
      {{{"tool_choice", json::object()}}, "tool_choice"},
      {{{"tool_choice", false}}, "tool_choice"},
      {{{"response_format", {{"type", "json_object"}}}}, "response_format"},
      {{{"model", 5}}, "model"},
  };
  for (const auto& [body, param] : cases) {
    const Reply reply = Chat(body);
    EXPECT_EQ(reply.status, 400) << body;
    const json error = reply.document()["error"];
    EXPECT_EQ(error["param"], param) << body << reply.body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_TRUE(error["code"].is_string());
    EXPECT_NE(error["message"].get<std::string>().find(param), std::string::npos) << reply.body;
  }
  EXPECT_TRUE(service.requests().empty());
}

// As they were written: a template prints fields in the order they came in.
TEST_F(ChatTest, ToolsAndCallsReachTheServiceInTheirOwnOrder) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "q"},
           {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
             "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": [2]}"}}]},
           {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "r"}]}],
          "tools": [{"type": "function", "function": {"name": "f", "description": "d"}}]})";
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", body).status, 200);
  const std::vector<Request> requests = service.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].tools, R"([{"type":"function","function":{"name":"f","description":"d"}}])");
  const std::vector<ChatMessage>& m = requests[0].messages;
  EXPECT_EQ(m[1].content, "");
  EXPECT_EQ(m[1].extra, R"({"tool_calls":[{"id":"c1","type":"function","function":{"name":"f",)"
                        R"("arguments":"{\"z\": 1, \"a\": [2]}"}}]})");
  EXPECT_EQ(m[2].role + m[2].content + m[2].extra, R"(toolr{"tool_call_id":"c1"})");
}

TEST_F(ChatTest, WithToolChoiceNoneNoToolsAreOffered) {
  EXPECT_EQ(
      Chat({{"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}, {"tool_choice", "none"}})
          .status,
      200);
  EXPECT_EQ(service.requests()[0].tools, "");
}

TEST_F(ChatTest, AnUnknownModelIs404AndAnAliasIsKnown) {
  options.model_aliases = {"fake.gguf"};
  EXPECT_EQ(Chat({{"model", "fake.gguf"}}).status, 200);
  const Reply reply = Chat({{"model", "gpt-5"}});
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.document()["error"]["code"], "model_not_found");
  EXPECT_EQ(Ask("GET", "/v1/models/gpt-5").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/models/fake-model").document()["id"], "fake-model");
  EXPECT_EQ(Ask("GET", "/v1/models").document()["data"][0]["ballast"]["sinks"], 4);
}

TEST_F(ChatTest, BrokenBodiesAre400) {
  const std::string deep = std::string(60000, '[') + std::string(60000, ']');
  const std::vector<std::string> bodies = {"",
                                           "{",
                                           "[]",
                                           "null",
                                           "{\"messages\":NaN}",
                                           "{\"temperature\":1e999}",
                                           "{\"messages\":\"\xff\xfe\"}",
                                           "{\"messages\":\"\\ud800\"}",
                                           deep,
                                           "{\"messages\":" + deep + "}"};
  for (const std::string& body : bodies) {
    const Reply reply = Ask("POST", "/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << body.substr(0, 40);
    EXPECT_TRUE(reply.document()["error"]["message"].is_string());
  }
}

TEST_F(ChatTest, ARefusalBeforeTheFirstNewsHasItsStatusAlsoWhenStreaming) {
  for (const bool stream : {false, true}) {
    const Reply reply = Ask("POST", "/v1/chat/completions", ChatBody("REFUSE", stream));
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.document()["error"]["code"], "context_length_exceeded");
  }
}

TEST_F(ChatTest, AnErrorInMidStreamIsAnEvent) {
  const Reply reply = Ask("POST", "/v1/chat/completions", ChatBody("BREAK it", true));
  ASSERT_EQ(reply.status, 200);
  const auto events = Events(reply.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["error"]["code"], "broken");
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", ChatBody("BREAK it", false)).status, 500);
}

TEST_F(ChatTest, LogprobsComeInBothShapes) {
  const json chat = Chat({{"logprobs", true}, {"top_logprobs", 2}}).document()["choices"][0]["logprobs"];
  ASSERT_EQ(chat["content"].size(), 5u);
  EXPECT_EQ(chat["content"][0]["token"], "h");
  EXPECT_EQ(chat["content"][0]["bytes"], json::array({104}));
  EXPECT_EQ(chat["content"][0]["logprob"], -0.5);
  EXPECT_EQ(chat["content"][0]["top_logprobs"].size(), 2u);
  const Reply reply = Ask("POST", "/v1/completions", R"({"prompt":"né!","logprobs":1})");
  const json old = reply.document()["choices"][0]["logprobs"];
  EXPECT_EQ(old["tokens"], json::array({"n", "é", "!"}));
  EXPECT_EQ(old["text_offset"], json::array({0, 1, 2}));
  EXPECT_EQ(old["top_logprobs"][0], (json{{"a", -1.0}}));
}

TEST_F(ChatTest, CompletionsTakeTextsIdsAndLists) {
  const auto complete = [&](const json& body) { return Ask("POST", "/v1/completions", body.dump()); };
  const json one = complete({{"prompt", "abc"}, {"max_tokens", 2}}).document();
  EXPECT_EQ(one["object"], "text_completion");
  EXPECT_EQ(one["choices"][0]["text"], "ab");
  EXPECT_EQ(one["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(complete({{"prompt", {"abc", "de"}}}).document()["choices"][1]["text"], "de");
  complete({{"prompt", {1, 2, 3}}, {"echo", true}});
  EXPECT_EQ(service.requests().back().prompt_tokens, (std::vector<Token>{1, 2, 3}));
  EXPECT_TRUE(service.requests().back().echo);
  EXPECT_EQ(complete({{"prompt", {{1}, {2, 3}}}}).document()["choices"].size(), 2u);
  for (const json& bad : {json{{"prompt", ""}}, json{{"prompt", {1, 999}}}, json{{"prompt", json::array()}},
                          json::object(), json{{"prompt", {"a", 1}}}, json{{"prompt", {{"a", "b"}}}}}) {
    const Reply reply = complete(bad);
    EXPECT_EQ(reply.status, 400) << bad;
    EXPECT_EQ(reply.document()["error"]["param"], "prompt");
  }
}

TEST_F(ChatTest, TheSessionMayComeAsAHeader) {
  Ask("POST", "/v1/chat/completions", ChatBody("x", false), "x-session-id: from-header\r\n");
  EXPECT_EQ(service.requests().back().session, "from-header");
  const Reply reply =
      Ask("POST", "/v1/chat/completions", R"({"session":"a","messages":[{"role":"user","content":"x"}]})",
          "X-Session-Id: b\r\n");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", ChatBody("x", false), "x-session-id: a/b\r\n").status, 400);
}

}  // namespace
}  // namespace ballast::server::testing
