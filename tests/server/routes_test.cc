// Responses, sessions, the live cache, tokens, the page.
#include "server/assets.h"
#include "server/http_client.h"

namespace ballast::server::testing {
namespace {

class RoutesTest : public ServerTest {
 protected:
  Reply Respond(const json& body) { return Ask("POST", "/v1/responses", body.dump()); }
};

TEST_F(RoutesTest, AResponseHasOpenAisShape) {
  const Reply reply = Respond({{"input", "hello"}, {"instructions", "be brief"}, {"max_output_tokens", 50}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json d = reply.document();
  EXPECT_EQ(d["object"], "response");
  EXPECT_EQ(d["status"], "completed");
  EXPECT_EQ(d["id"].get<std::string>().substr(0, 5), "resp_");
  EXPECT_EQ(d["output"][0]["content"][0]["type"], "output_text");
  EXPECT_EQ(d["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(d["usage"]["input_tokens"], 7);
  EXPECT_EQ(d["usage"]["input_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(d["usage"]["output_tokens"], 5);
  EXPECT_EQ(d["usage"]["ballast"]["context"], 1024);
  EXPECT_EQ(d["instructions"], "be brief");
  const Request request = service.requests().back();
  EXPECT_EQ(request.id, d["id"]);
  EXPECT_TRUE(request.store);
  EXPECT_FALSE(request.refuse_eviction);
  EXPECT_EQ(request.messages.front().role, "system");
  const json next = Respond({{"input", "more"},
                             {"previous_response_id", d["id"]},
                             {"store", false},
                             {"truncation", "disabled"}})
                        .document();
  EXPECT_EQ(next["previous_response_id"], d["id"]);
  EXPECT_EQ(service.requests().back().previous, d["id"]);
  EXPECT_FALSE(service.requests().back().store);
  EXPECT_TRUE(service.requests().back().refuse_eviction);
}

TEST_F(RoutesTest, ACutResponseIsIncomplete) {
  const json d = Respond({{"input", "hello"}, {"max_output_tokens", 2}}).document();
  EXPECT_EQ(d["status"], "incomplete");
  EXPECT_EQ(d["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(RoutesTest, ResponseEventsComeInOpenAisOrder) {
  const Reply reply = Respond({{"input", "hey"}, {"stream", true}});
  std::vector<std::string> types;
  int64_t sequence = 0;
  std::string text;
  for (const json& event : Events(reply.body)) {
    EXPECT_EQ(event["sequence_number"], sequence++);
    const std::string type = event["type"];
    if (type == "response.output_text.delta") text += event["delta"];
    if (types.empty() || types.back() != type) types.push_back(type);
    EXPECT_NE(reply.body.find("event: " + type + "\ndata: "), std::string::npos);
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added",
                "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                "response.content_part.done", "response.output_item.done", "response.completed"}));
  EXPECT_EQ(text, "hey");
  EXPECT_EQ(Events(reply.body).back()["response"]["output"][0]["content"][0]["text"], "hey");
  EXPECT_EQ(Events(Respond({{"input", "BREAK it"}, {"stream", true}}).body).back()["error"]["code"],
            "broken");
}

TEST_F(RoutesTest, ResponseInputsAreTextItemsOrNamedErrors) {
  const json parts = {{{"type", "input_text"}, {"text", "hi"}}};
  EXPECT_EQ(Respond({{"input", {{{"role", "user"}, {"content", parts}}}}}).status, 200);
  const std::vector<std::pair<json, std::string>> cases = {
      {json::object(), "input"},
      {{{"input", ""}}, "input"},
      {{{"input", json::array()}}, "input"},
      {{{"input", {{{"type", "function_call"}}}}}, "input[0].type"},
      {{{"input", {{{"role", "user"}, {"content", {{{"type", "input_image"}}}}}}}},
       "input[0].content[0].type"},
      {{{"input", {{{"role", "critic"}, {"content", "x"}}}}}, "input[0].role"},
      {{{"input", "x"}, {"previous_response_id", "../x"}}, "previous_response_id"},
      {{{"input", "x"}, {"tools", {1}}}, "tools"},
      {{{"input", "x"}, {"background", true}}, "background"},
      {{{"input", "x"}, {"truncation", "never"}}, "truncation"},
      {{{"input", "x"}, {"text", {{"format", {{"type", "json_schema"}}}}}}, "text.format"},
  };
  for (const auto& [body, param] : cases) {
    const Reply reply = Respond(body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(reply.document()["error"]["param"], param) << body;
  }
}

TEST_F(RoutesTest, SessionsAreListedForkedAndDeleted) {
  service.AddSession("", "one");
  service.AddSession("somebody-else", "two");
  const json list = Ask("GET", "/v1/sessions").document();
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "one");
  EXPECT_EQ(Ask("GET", "/v1/sessions/one").document()["context"], 1024);
  EXPECT_EQ(Ask("GET", "/v1/sessions/two").status, 404);
  EXPECT_EQ(Ask("POST", "/v1/sessions/one/save").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/sessions/one/restore").status, 200);
  EXPECT_EQ(Ask("POST", "/v1/sessions/one/fork", R"({"to":"copy"})").document()["id"], "copy");
  EXPECT_EQ(Ask("POST", "/v1/sessions/one/fork").document()["id"], "sess_new");
  EXPECT_EQ(Ask("POST", "/v1/sessions/one/fork", R"({"to":"../x"})").status, 400);
  EXPECT_EQ(Ask("DELETE", "/v1/sessions/one").document()["deleted"], true);
  EXPECT_EQ(Ask("DELETE", "/v1/sessions/one").status, 404);
  for (const char* id : {"..%2F..%2Fetc", "%00", "a%20b", "%zz"}) {
    EXPECT_GE(Ask("GET", fmt::format("/v1/sessions/{}", id)).status, 400) << id;
    EXPECT_LT(Ask("GET", fmt::format("/v1/sessions/{}", id)).status, 500) << id;
  }
}

TEST_F(RoutesTest, TheCacheStreamEndsItsWatchWithTheClient) {
  service.AddSession("", "one");
  Start();
  Client client(server->port());
  client.Request("GET", "/v1/sessions/one/cache");
  const std::string event = client.Until("}\n\n");
  ASSERT_NE(event, "");
  const json view = json::parse(event.substr(event.find("data: ") + 6));
  EXPECT_EQ(view["fresh"][1]["text"], "b");
  EXPECT_EQ(view["sinks"], 4);
  EXPECT_EQ(service.watches(), 1u);
  client.Close();
  for (int i = 0; i < 200 && service.watches() > 0; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(service.watches(), 0u);
  EXPECT_EQ(Ask("GET", "/v1/sessions/none/cache").status, 404);
}

TEST_F(RoutesTest, TokensGoThereAndBack) {
  const json d = Ask("POST", "/tokenize", R"({"content":"héllo"})").document();
  EXPECT_EQ(d["count"], 6);
  EXPECT_EQ(Ask("POST", "/detokenize", json{{"tokens", d["tokens"]}}.dump()).document()["content"], "héllo");
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"prompt":"a","with_pieces":true})").document()["tokens"],
            json::array({{{"id", 97}, {"piece", "a"}}}));
  EXPECT_EQ(Ask("POST", "/tokenize", "{}").status, 400);
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"content":5})").status, 400);
  EXPECT_EQ(Ask("POST", "/detokenize", R"({"tokens":[256]})").status, 400);
  EXPECT_EQ(Ask("POST", "/detokenize", R"({"tokens":[1.5]})").status, 400);
  // Bytes that are no text are replaced, never thrown over.
  EXPECT_EQ(Ask("POST", "/detokenize", R"({"tokens":[255]})").document()["content"], "\xEF\xBF\xBD");
}

TEST_F(RoutesTest, ThePageComesFromTheBinaryAndLoadsNothingFromElsewhere) {
  bool has_page = false;
  for (const EmbeddedFile& file : PageFiles()) {
    has_page = has_page || file.name == "index.html";
    const Reply reply = Ask("GET", "/" + std::string(file.name));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, file.bytes);
  }
  if (!has_page) GTEST_SKIP() << "src/server/page/index.html is not there yet";
  const Reply page = Ask("GET", "/");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("content-security-policy").substr(0, 18), "default-src 'none'");
  const std::string tag = page.headers.at("etag");
  EXPECT_EQ(Ask("GET", "/", "", "If-None-Match: " + tag + "\r\n").status, 304);
  EXPECT_EQ(Ask("GET", "/", "", "If-None-Match: \"other\"\r\n").status, 200);
}

TEST_F(RoutesTest, TheApisDescriptionNamesEveryRoute) {
  const json api = Ask("GET", "/openapi.json").document();
  ASSERT_TRUE(api.is_object());
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/v1/models/{model}",
        "/tokenize", "/detokenize", "/health", "/metrics", "/v1/sessions", "/v1/sessions/{id}",
        "/v1/sessions/{id}/save", "/v1/sessions/{id}/restore", "/v1/sessions/{id}/fork",
        "/v1/sessions/{id}/cache"}) {
    EXPECT_TRUE(api["paths"].contains(path)) << path;
  }
}

}  // namespace
}  // namespace ballast::server::testing
