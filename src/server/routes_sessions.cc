// /v1/sessions: list, look, delete, save, restore, fork, and the live view of a session's cache.
#include <mutex>
#include <utility>

#include "server/json_render.h"
#include "server/routes.h"
#include "server/sse.h"

namespace ballast::server {
namespace {

using nlohmann::json;

// A call to the service whose answer comes later.
template <typename T>
class CallAnswer : public Answer {
 public:
  using Call = std::function<void(Service::Done<T>)>;
  using Render = std::function<json(const T&)>;
  CallAnswer(Call call, Render render) : call_(std::move(call)), render_(std::move(render)) {}

  void Start(const std::function<void()>& wake) override {
    call_([state = state_, wake](std::optional<T> value, const ApiError& error) {
      {
        const std::lock_guard lock(state->mutex);
        state->value = std::move(value);
        state->error = error;
        state->done = true;
      }
      wake();
    });
  }
  const Head* head() const override { return head_ ? &*head_ : nullptr; }
  bool Poll(size_t, std::string* out) override {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) return false;
    head_ = state_->value ? Head() : ErrorHead(state_->error);
    out->append(Dump(state_->value ? render_(*state_->value) : ErrorJson(state_->error)));
    return true;
  }

 private:
  struct State {
    std::mutex mutex;
    bool done = false;
    std::optional<T> value;
    ApiError error;
  };
  Call call_;
  Render render_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::optional<Head> head_;
};

// Views that a slow reader has not taken become one.
void Merge(const CacheView& next, CacheView* view) {
  CacheView merged = next;
  const auto old = static_cast<float>(view->fresh.size()), fresh = static_cast<float>(next.fresh.size());
  if (view->sink_mass.size() == next.sink_mass.size() && old + fresh > 0) {
    for (size_t i = 0; i < merged.sink_mass.size(); ++i) {
      merged.sink_mass[i] = (view->sink_mass[i] * old + next.sink_mass[i] * fresh) / (old + fresh);
    }
  }
  merged.fresh.clear();
  for (CacheView::Cell& cell : view->fresh) {  // only what can still be seen
    if (cell.position < next.sinks || cell.position >= next.start) merged.fresh.push_back(std::move(cell));
  }
  merged.fresh.insert(merged.fresh.end(), next.fresh.begin(), next.fresh.end());
  *view = std::move(merged);
}

class WatchAnswer : public Answer {
 public:
  WatchAnswer(Service& service, std::string tenant, std::string id)
      : service_(service), tenant_(std::move(tenant)), id_(std::move(id)) {}
  ~WatchAnswer() override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->closed = true;
    }
    if (watch_) service_.Unwatch(*watch_);
  }

  void Start(const std::function<void()>& wake) override {
    const auto view = [state = state_, wake](const CacheView& next) {
      {
        const std::lock_guard lock(state->mutex);
        if (state->closed) return false;
        if (state->view) {
          Merge(next, &*state->view);
        } else {
          state->view = next;
        }
      }
      wake();
      return true;
    };
    const auto failed = [state = state_, wake](const ApiError& error) {
      {
        const std::lock_guard lock(state->mutex);
        state->error = error;
      }
      wake();
    };
    watch_ = service_.Watch(tenant_, id_, view, failed);
  }
  const Head* head() const override { return head_ ? &*head_ : nullptr; }
  void Idle() override { idle_ = true; }

  bool Poll(size_t, std::string* out) override {
    std::optional<CacheView> view;
    std::optional<ApiError> error;
    {
      const std::lock_guard lock(state_->mutex);
      view = std::exchange(state_->view, std::nullopt);
      error = state_->error;
    }
    if (error && !head_) {
      head_ = ErrorHead(*error);
      out->append(Dump(ErrorJson(*error)));
      return true;
    }
    if (!head_ && (view || idle_)) head_ = SseHead();
    if (view) AppendEvent(CacheJson(*view), out);
    if (std::exchange(idle_, false) && !view) AppendComment("ping", out);
    if (error) AppendEvent(ErrorJson(*error), out);
    return error.has_value();
  }

 private:
  struct State {
    std::mutex mutex;
    bool closed = false;
    std::optional<CacheView> view;
    std::optional<ApiError> error;
  };
  Service& service_;
  const std::string tenant_, id_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::optional<uint64_t> watch_;
  std::optional<Head> head_;
  bool idle_ = false;
};

// 400 for an id that no session can have.
std::optional<ApiError> CheckId(const std::string& id) {
  if (IsSessionId(id)) return std::nullopt;
  return InvalidField("session", "1 to 64 letters, digits, - or _", Shown(json(id)));
}

using SessionCall = void (Service::*)(const std::string&, const std::string&, Service::Done<SessionInfo>);

Handler OneSession(const RouteContext* c, SessionCall method) {
  return [c, method](const HttpRequest& request) -> std::unique_ptr<Answer> {
    if (std::optional<ApiError> error = NotReady(*c)) return ErrorAnswer(*error);
    if (std::optional<ApiError> error = CheckId(request.params[0])) return ErrorAnswer(*error);
    auto call = [c, method, tenant = request.tenant, id = request.params[0]](
                    Service::Done<SessionInfo> done) { (c->service->*method)(tenant, id, std::move(done)); };
    return std::make_unique<CallAnswer<SessionInfo>>(std::move(call), SessionJson);
  };
}

std::unique_ptr<Answer> List(const RouteContext* c, const HttpRequest& request) {
  if (std::optional<ApiError> error = NotReady(*c)) return ErrorAnswer(*error);
  auto call = [c, tenant = request.tenant](Service::Done<std::vector<SessionInfo>> done) {
    c->service->ListSessions(tenant, std::move(done));
  };
  auto render = [](const std::vector<SessionInfo>& sessions) {
    json list = json::array();
    for (const SessionInfo& session : sessions) list.push_back(SessionJson(session));
    return json{{"object", "list"}, {"data", std::move(list)}};
  };
  return std::make_unique<CallAnswer<std::vector<SessionInfo>>>(std::move(call), render);
}

std::unique_ptr<Answer> Delete(const RouteContext* c, const HttpRequest& request) {
  if (std::optional<ApiError> error = NotReady(*c)) return ErrorAnswer(*error);
  const std::string& id = request.params[0];
  if (std::optional<ApiError> error = CheckId(id)) return ErrorAnswer(*error);
  auto call = [c, tenant = request.tenant, id](Service::Done<bool> done) {
    c->service->DeleteSession(tenant, id, std::move(done));
  };
  auto render = [id](const bool& deleted) {
    return json{{"id", id}, {"object", "session.deleted"}, {"deleted", deleted}};
  };
  return std::make_unique<CallAnswer<bool>>(std::move(call), render);
}

std::unique_ptr<Answer> Fork(const RouteContext* c, const HttpRequest& request) {
  if (std::optional<ApiError> error = NotReady(*c)) return ErrorAnswer(*error);
  if (std::optional<ApiError> error = CheckId(request.params[0])) return ErrorAnswer(*error);
  std::string to;
  if (!request.body.empty()) {
    json body;
    if (std::optional<ApiError> error = ParseObject(request.body, &body)) return ErrorAnswer(*error);
    Fields fields(body);
    if (fields.String("to", &to) && !IsSessionId(to)) {
      fields.Fail("to", "1 to 64 letters, digits, - or _", json(to));
    }
    if (!fields.ok()) return ErrorAnswer(*fields.error());
  }
  auto call = [c, tenant = request.tenant, id = request.params[0], to](Service::Done<SessionInfo> done) {
    c->service->ForkSession(tenant, id, to, std::move(done));
  };
  return std::make_unique<CallAnswer<SessionInfo>>(std::move(call), SessionJson);
}

std::unique_ptr<Answer> Watch(const RouteContext* c, const HttpRequest& request) {
  if (std::optional<ApiError> error = NotReady(*c)) return ErrorAnswer(*error);
  if (std::optional<ApiError> error = CheckId(request.params[0])) return ErrorAnswer(*error);
  return std::make_unique<WatchAnswer>(*c->service, request.tenant, request.params[0]);
}

}  // namespace

void AddSessionRoutes(const RouteContext& context, Router* router) {
  const RouteContext* c = &context;
  router->Add("GET", "/v1/sessions", [c](const HttpRequest& r) { return List(c, r); });
  router->Add("GET", "/v1/sessions/{id}", OneSession(c, &Service::GetSession));
  router->Add("DELETE", "/v1/sessions/{id}", [c](const HttpRequest& r) { return Delete(c, r); });
  router->Add("POST", "/v1/sessions/{id}/save", OneSession(c, &Service::SaveSession));
  router->Add("POST", "/v1/sessions/{id}/restore", OneSession(c, &Service::RestoreSession));
  router->Add("POST", "/v1/sessions/{id}/fork", [c](const HttpRequest& r) { return Fork(c, r); });
  router->Add("GET", "/v1/sessions/{id}/cache", [c](const HttpRequest& r) { return Watch(c, r); });
}

}  // namespace ballast::server
