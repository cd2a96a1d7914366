// Status and Result: how every layer reports bad input.
//
// Purpose: outside input (files, flags, text, requests) never aborts or throws across a layer; a function
// that can refuse it returns Status or Result<T>. Errors read "<what>: expected <x>, found <y>", one line,
// plus a hint where there is a cure. BALLAST_CHECK is for our own bugs only. Thread safety: plain values.
#ifndef BALLAST_BASE_STATUS_H_
#define BALLAST_BASE_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ballast {

// What kind of thing was refused; the command line maps it to an exit code, the server to an HTTP status.
enum class Code {
  kOk,
  kInternal,     // our own fault, or the machine's (out of memory, disk full)
  kUsage,        // a flag or option makes no sense
  kModel,        // a model file was refused
  kInput,        // text, tokens or a request were refused
  kGate,         // a quality gate failed
  kInterrupted,  // the user stopped it
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::string hint = "")
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  // "<what>: expected <expected>, found <found>".
  static Status Expected(Code code, std::string_view what, std::string_view expected, std::string_view found,
                         std::string hint = "") {
    std::string text(what);
    text.append(": expected ").append(expected).append(", found ").append(found);
    return Status(code, std::move(text), std::move(hint));
  }

  // The same of a thing that has a name, such as a path: "<name>: <message>". Ok stays ok.
  Status In(std::string_view name) const {
    return ok() ? Status() : Status(code_, std::string(name) + ": " + message_, hint_);
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
  std::string hint_;
};

// A value or the Status that explains why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit by design
    if (status_.ok()) std::abort();
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace ballast

#define BALLAST_CONCAT_INNER(a, b) a##b
#define BALLAST_CONCAT(a, b) BALLAST_CONCAT_INNER(a, b)

#define BALLAST_RETURN_IF_ERROR(expr)                       \
  do {                                                      \
    if (::ballast::Status s_ = (expr); !s_.ok()) return s_; \
  } while (0)

#define BALLAST_ASSIGN_OR_RETURN(lhs, expr) \
  BALLAST_ASSIGN_OR_RETURN_INNER(BALLAST_CONCAT(result_, __LINE__), lhs, expr)
#define BALLAST_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return tmp.status();                  \
  lhs = std::move(tmp).value()

// Aborts with file and line. Only for states that no outside input can reach.
#define BALLAST_CHECK(cond)                                                                  \
  do {                                                                                       \
    if (!(cond)) {                                                                           \
      std::fprintf(stderr, "%s:%d: internal check failed: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (0)

#endif  // BALLAST_BASE_STATUS_H_
