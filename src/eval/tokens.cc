#include "eval/tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace ballast {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// First safe cut at or after `from`: before a blank that stands between two ASCII letters. text.size(): none.
size_t FindCut(std::string_view text, size_t from) {
  for (size_t i = std::max<size_t>(from, 1); i + 1 < text.size(); ++i) {
    if (text[i] == ' ' && IsLetter(text[i - 1]) && IsLetter(text[i + 1])) return i;
  }
  return text.size();
}

// A token parsed as special is matched before any pre-tokenizer runs, so one that holds a blank could lie
// across a cut.
bool SpecialsHoldBlanks(const Vocab& vocab) {
  for (size_t i = 0; i < vocab.types.size() && i < vocab.tokens.size(); ++i) {
    const bool special = vocab.types[i] == Vocab::kControl || vocab.types[i] == Vocab::kUserDefined;
    if (special && vocab.tokens[i].find(' ') != std::string::npos) return true;
  }
  return false;
}

// Collects the integers of the top-level array "tokens"; everything else is skipped. Errors are kept, not
// thrown.
class TokenFileReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  TokenFileReader(std::string_view name, int64_t vocab, int64_t limit)
      : name_(name), vocab_(vocab), limit_(limit) {}

  bool null() override { return Value("null"); }
  bool boolean(bool v) override { return Value(v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override { return Id(v, std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) override {
    return Id(v > INT32_MAX ? -1 : static_cast<int64_t>(v), std::to_string(v));
  }
  bool number_float(number_float_t, const string_t& text) override { return Value(text); }
  bool string(string_t&) override { return Value("a string"); }
  bool binary(binary_t&) override { return Value("binary data"); }
  bool start_object(size_t) override {
    if (depth_ > 0 && !Value("an object")) return false;
    if (depth_ == 0) top_is_object_ = true;
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) at_tokens_ = name == "tokens";
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override {
    if (in_tokens() && !Value("an array")) return false;
    ++depth_;
    if (depth_ == 2 && at_tokens_ && top_is_object_) {
      if (found_) return Refuse("\"tokens\"", "one array", "two");
      found_ = true;
    }
    return true;
  }
  bool end_array() override {
    if (depth_ == 2) at_tokens_ = false;
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Refuse("contents", "JSON like {\"tokens\":[1,2,3]}",
                  "something else at byte " + std::to_string(position));
  }

  bool found() const { return found_; }
  const Status& status() const { return status_; }
  std::vector<Token> TakeIds() { return std::move(ids_); }

 private:
  bool in_tokens() const { return top_is_object_ && at_tokens_ && depth_ == 2; }
  bool Refuse(const std::string& what, std::string_view expected, std::string_view found) {
    status_ = Status::Expected(Code::kInput, std::string(name_) + ": " + what, expected, found);
    return false;
  }
  bool RefuseElement(std::string_view found) {
    return Refuse("tokens[" + std::to_string(index_) + "]",
                  "an integer in [0, " + std::to_string(vocab_) + ")", found);
  }
  // A value that is no integer.
  bool Value(std::string_view found) { return in_tokens() ? RefuseElement(found) : true; }
  bool Id(int64_t id, std::string_view found) {
    if (!in_tokens()) return true;
    if (id < 0 || id >= vocab_) return RefuseElement(found);
    if (limit_ < 0 || index_ < limit_) ids_.push_back(static_cast<Token>(id));
    ++index_;
    return true;
  }

  std::string_view name_;
  int64_t vocab_;
  int64_t limit_;
  int depth_ = 0;
  bool top_is_object_ = false;
  bool at_tokens_ = false;
  bool found_ = false;
  int64_t index_ = 0;
  std::vector<Token> ids_;
  Status status_;
};

}  // namespace

Result<std::span<const Token>> SpanTokens::Next(int64_t most) {
  const size_t count = std::min(ids_.size() - at_, static_cast<size_t>(most));
  const std::span<const Token> piece = ids_.subspan(at_, count);
  at_ += count;
  return piece;
}

std::vector<Token> TokenizeText(const Tokenizer& tokenizer, std::string_view text, int64_t limit,
                                size_t piece_bytes) {
  const Vocab& vocab = tokenizer.vocab();
  const bool whole = vocab.kind != Vocab::Kind::kByteLevelBpe || SpecialsHoldBlanks(vocab);
  std::vector<Token> ids;
  bool first = true;
  while (!text.empty() && (limit < 0 || static_cast<int64_t>(ids.size()) < limit)) {
    const size_t cut = whole || text.size() <= piece_bytes ? text.size() : FindCut(text, piece_bytes);
    const std::vector<Token> piece = tokenizer.Encode(text.substr(0, cut));
    const bool wants_bos = first && vocab.add_bos && vocab.bos >= 0;
    if (wants_bos && (piece.empty() || piece.front() != vocab.bos)) ids.push_back(vocab.bos);
    ids.insert(ids.end(), piece.begin(), piece.end());
    text.remove_prefix(cut);
    first = false;
  }
  if (limit >= 0 && static_cast<int64_t>(ids.size()) > limit) ids.resize(static_cast<size_t>(limit));
  return ids;
}

Result<std::vector<Token>> ParseTokenFile(std::string_view name, std::string_view json, int64_t vocab,
                                          int64_t limit) {
  TokenFileReader reader(name, vocab, limit);
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.status().ok()) return reader.status();
  if (!parsed || !reader.found()) {
    return Status::Expected(Code::kInput, std::string(name) + ": contents",
                            "an object with an array \"tokens\"", "none");
  }
  return reader.TakeIds();
}

Status CheckScorable(int64_t tokens) {
  if (tokens >= 2) return Status();
  return Status::Expected(Code::kInput, "nothing to score", "at least 2 tokens",
                          std::to_string(std::max<int64_t>(tokens, 0)),
                          "a perplexity needs a token to predict and one before it");
}

}  // namespace ballast
