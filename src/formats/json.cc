#include "formats/json.h"

#include <algorithm>
#include <utility>

#include "formats/gguf.h"
#include "formats/text.h"

namespace ballast {
namespace {

Status Refuse(const std::string& name, std::string_view expected, std::string_view found) {
  return Status::Expected(Code::kModel, name, expected, found);
}

// Bytes of the longest text between quotes, as written. The parser holds one in full, and twice while it
// grows.
size_t LongestText(std::string_view json) {
  size_t longest = 0;
  for (size_t at = 0; (at = json.find('"', at)) != std::string_view::npos;) {
    const size_t begin = ++at;
    while (at < json.size() && json[at] != '"') at += json[at] == '\\' ? 2 : 1;
    longest = std::max(longest, std::min(at, json.size()) - begin);
    if (at >= json.size()) break;
    ++at;
  }
  return longest;
}

// nlohmann's events, with depth counted, handed to a sink.
class Handler {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the names that the library asks for
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;
  // NOLINTEND(readability-identifier-naming)

  Handler(const std::string& name, JsonSink* sink) : name_(name), sink_(*sink) {}

  bool null() { return sink_.Value(nullptr); }
  bool boolean(bool v) { return sink_.Value(v); }
  bool number_integer(number_integer_t v) { return sink_.Value(v); }
  bool number_unsigned(number_unsigned_t v) { return sink_.Value(v); }
  bool number_float(number_float_t v, const string_t&) { return sink_.Value(v); }
  bool string(string_t& v) { return sink_.Text(v); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return Open(true); }
  bool start_array(size_t) { return Open(false); }
  bool key(string_t& k) { return sink_.Key(k); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) {
    const bool range = e.id == 406;  // a number beyond double
    status_ = Refuse(
        name_, range ? "numbers that fit a double" : "JSON",
        (range ? "one that does not, near byte " : "a syntax error near byte ") + std::to_string(position));
    return false;
  }
  const Status& status() const { return status_; }

 private:
  bool Open(bool object) {
    if (++depth_ > kMaxJsonDepth) {
      status_ = Refuse(name_, "at most " + std::to_string(kMaxJsonDepth) + " levels of nesting", "more");
      return false;
    }
    return sink_.Open(object);
  }
  bool Close() {
    --depth_;
    return sink_.Close();
  }

  const std::string& name_;
  JsonSink& sink_;
  int depth_ = 0;
  Status status_;
};

}  // namespace

Status ScanJson(const std::string& name, std::string_view text, JsonSink* sink) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    return Refuse(name, "a JSON object",
                  DescribeForeignFile({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  }
  if (const size_t longest = LongestText(text); longest > kMaxJsonText) {
    return Refuse(name, "texts of at most " + std::to_string(kMaxJsonText) + " bytes",
                  std::to_string(longest));
  }
  Handler handler(name, sink);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return Status();
  if (!handler.status().ok()) return handler.status();
  if (Status status = sink->status(); !status.ok()) return status;
  return Refuse(name, "JSON", "a value that cannot be read");
}

bool JsonTree::Fail(Status status) {
  status_ = std::move(status);
  return false;
}

nlohmann::json* JsonTree::Put(nlohmann::json value) {
  if (++values_ > kMaxJsonValues) {
    Fail(Refuse(name_, "at most " + std::to_string(kMaxJsonValues) + " values", "more"));
    return nullptr;
  }
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  nlohmann::json& parent = *open_.back();
  if (parent.is_array()) {
    parent.push_back(std::move(value));
    return &parent.back();
  }
  const auto [at, added] = parent.emplace(keys_.back(), std::move(value));
  if (!added) {
    Fail(Refuse(name_, "each key once in an object", QuoteName(keys_.back()) + " twice"));
    return nullptr;
  }
  return &*at;
}

// An element of an open array never moves while it is open: its siblings come after it is closed.
bool JsonTree::Open(bool object) {
  nlohmann::json* made = Put(object ? nlohmann::json::object() : nlohmann::json::array());
  if (made == nullptr) return false;
  open_.push_back(made);
  keys_.emplace_back();
  return true;
}

bool JsonTree::Close() {
  open_.pop_back();
  keys_.pop_back();
  return true;
}

bool JsonTree::Key(std::string& key) {
  keys_.back() = std::move(key);
  return true;
}

bool JsonTree::Value(nlohmann::json value) { return Put(std::move(value)) != nullptr; }

Result<nlohmann::json> ParseJson(const std::string& name, std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return Refuse(name, "at most " + std::to_string(kMaxJsonBytes) + " bytes",
                  std::to_string(text.size()) + " bytes");
  }
  JsonTree tree(name);
  BALLAST_RETURN_IF_ERROR(ScanJson(name, text, &tree));
  return std::move(tree.root());
}

}  // namespace ballast
