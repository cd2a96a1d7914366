// JSON from a hostile file: read with bounds that its text cannot talk its way past.
//
// Purpose: what every JSON file of a model folder goes through, as a tree (ParseJson) or as events
// (ScanJson, for files whose tree would be many times their size). Thread safety: pure functions.
// Invariants: 1. nothing recurses or throws; 2. at most kMaxJsonDepth levels; 3. a key that comes twice in an
// object is refused, since readers differ in which one they believe; 4. a refusal is kModel, one line, and
// opens with the file's name.
#ifndef BALLAST_FORMATS_JSON_H_
#define BALLAST_FORMATS_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/status.h"

namespace ballast {

inline constexpr int kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonText = 8 << 20;     // of one text
inline constexpr uint64_t kMaxJsonBytes = 8 << 20;  // of a tree; each value costs about 16 bytes and its text
inline constexpr uint64_t kMaxJsonValues = 1 << 18;

// The object that `text` is. `name` opens messages.
Result<nlohmann::json> ParseJson(const std::string& name, std::string_view text);

// Takes the values of a text in order. Each returns whether to go on; a sink that stops keeps its reason.
// Depth is counted by ScanJson.
class JsonSink {
 public:
  virtual ~JsonSink() = default;
  virtual bool Open(bool object) = 0;  // '{' or '['
  virtual bool Close() = 0;
  virtual bool Key(std::string& key) = 0;
  virtual bool Value(nlohmann::json value) = 0;  // null, a bool, a number
  virtual bool Text(std::string& text) = 0;
  virtual Status status() const = 0;  // why it stopped
};
Status ScanJson(const std::string& name, std::string_view text, JsonSink* sink);

// Builds a tree from events, for sinks that keep parts of a text.
class JsonTree : public JsonSink {
 public:
  explicit JsonTree(std::string name) : name_(std::move(name)) {}
  bool Open(bool object) override;
  bool Close() override;
  bool Key(std::string& key) override;
  bool Value(nlohmann::json value) override;
  bool Text(std::string& text) override { return Value(nlohmann::json(std::move(text))); }
  Status status() const override { return status_; }
  nlohmann::json& root() { return root_; }

 protected:
  nlohmann::json* Put(nlohmann::json value);  // null when refused
  bool Fail(Status status);
  std::string name_;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  // from the root inwards
  std::vector<std::string> keys_;      // of open_, where the next value goes

 private:
  uint64_t values_ = 0;
  Status status_;
};

}  // namespace ballast

#endif  // BALLAST_FORMATS_JSON_H_
