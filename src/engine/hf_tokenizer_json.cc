#include "engine/hf_tokenizer_json.h"

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/hf_json_sink.h"
#include "engine/hf_tokenizer_steps.h"
#include "formats/text.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFile = size_t{256} << 20;
constexpr size_t kMaxHoles = 1 << 16;  // ids that no token has

class Builder {
 public:
  Builder(const std::string& name, HfTokenizerSink* sink) : name_(name), sink_(*sink), json_(sink->root()) {}

  Result<HfTokenizerJson> Run() {
    BALLAST_RETURN_IF_ERROR(ReadModel());
    BALLAST_RETURN_IF_ERROR(ReadVocab());
    BALLAST_RETURN_IF_ERROR(ReadAdded());
    BALLAST_RETURN_IF_ERROR(ReadUnknown());
    const HfStepsReader steps(name_, &out_.pipeline);
    BALLAST_RETURN_IF_ERROR(steps.Normalizer(Member("normalizer")));
    BALLAST_RETURN_IF_ERROR(steps.PreTokenizer(Member("pre_tokenizer")));
    BALLAST_RETURN_IF_ERROR(steps.Decoder(Member("decoder")));
    BALLAST_RETURN_IF_ERROR(steps.PostProcessor(Member("post_processor"), out_.vocab.tokens.size()));
    TypeTokens();
    return std::move(out_);
  }

 private:
  Status Refuse(const std::string& where, std::string_view expected, std::string_view found) const {
    return Status::Expected(Code::kModel, name_ + ": " + where, expected, found);
  }
  const Json& Member(const char* key) const {
    static const Json kNull;
    const auto found = json_.find(key);
    return found == json_.end() ? kNull : *found;
  }
  template <typename T>
  Status Read(const Json& object, const char* key, T* out) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return Status();
    if constexpr (std::is_same_v<T, bool>) {
      if (!found->is_boolean()) return Refuse(key, "true or false", "something else");
    } else {
      if (!found->is_string()) return Refuse(key, "a text", "something else");
    }
    *out = found->template get<T>();
    return Status();
  }

  Status ReadModel();
  Status ReadVocab();
  Status ReadAdded();
  Status ReadAddedToken(const Json& json);
  Status ReadUnknown();
  void TypeTokens();
  Status PutToken(std::string text, int64_t id, bool in_model);

  const std::string& name_;
  HfTokenizerSink& sink_;
  const Json& json_;
  HfTokenizerJson out_;
  std::vector<bool> taken_;  // by id
  std::optional<std::string> unk_;
};

Status Builder::ReadModel() {
  const Json& model = Member("model");
  if (!model.is_object()) return Refuse("model", "an object", "none");
  HfPipeline& p = out_.pipeline;
  std::string type = sink_.vocab_is_list ? "Unigram" : sink_.has_merges ? "BPE" : "";
  BALLAST_RETURN_IF_ERROR(Read(model, "type", &type));
  if (type != "BPE" && type != "Unigram") return Refuse("model.type", "BPE or Unigram", QuoteName(type));
  p.model = type == "BPE" ? HfPipeline::Model::kBpe : HfPipeline::Model::kUnigram;
  if (!sink_.has_vocab) return Refuse("model.vocab", "a vocabulary", "none");
  if (type == "BPE" && !sink_.has_merges) return Refuse("model.merges", "a list of merges", "none");
  if (sink_.vocab_is_list != (type == "Unigram")) {
    return Refuse("model.vocab", type == "BPE" ? "an object of texts and ids" : "a list of [text, score]",
                  "the other kind");
  }
  p.fuse_unk = type == "Unigram";
  BALLAST_RETURN_IF_ERROR(Read(model, "fuse_unk", &p.fuse_unk));
  BALLAST_RETURN_IF_ERROR(Read(model, "byte_fallback", &p.byte_fallback));
  BALLAST_RETURN_IF_ERROR(Read(model, "ignore_merges", &p.ignore_merges));
  BALLAST_RETURN_IF_ERROR(Read(model, "continuing_subword_prefix", &p.word_prefix));
  BALLAST_RETURN_IF_ERROR(Read(model, "end_of_word_suffix", &p.word_suffix));
  std::string unk;
  BALLAST_RETURN_IF_ERROR(Read(model, "unk_token", &unk));
  if (!unk.empty()) unk_ = std::move(unk);
  return Status();
}

Status Builder::PutToken(std::string text, int64_t id, bool in_model) {
  const size_t at = static_cast<size_t>(id);
  if (taken_[at]) {
    return Refuse("token " + std::to_string(id), "one text",
                  QuoteName(out_.vocab.tokens[at]) + " and " + QuoteName(text));
  }
  taken_[at] = true;
  out_.vocab.tokens[at] = std::move(text);
  out_.pipeline.in_model[at] = in_model;
  return Status();
}

Status Builder::ReadVocab() {
  const bool list = sink_.vocab_is_list;
  int64_t last = -1;
  for (size_t i = 0; i < sink_.vocab.size(); ++i) {
    if (list) sink_.vocab[i].id = static_cast<int64_t>(i);
    last = std::max(last, sink_.vocab[i].id);
  }
  const Json& added = Member("added_tokens");
  const size_t count = sink_.vocab.size() + (added.is_array() ? added.size() : 0);
  if (!added.is_null() && !added.is_array()) return Refuse("added_tokens", "a list", "something else");
  for (const Json& token : added) {
    if (!token.is_object() || !token.contains("id") || !token["id"].is_number_unsigned() ||
        token["id"].get<uint64_t>() >= HfTokenizerSink::kMaxTokens) {
      return Refuse("added_tokens", "objects with an id from 0 to 4194303", "something else");
    }
    last = std::max(last, token["id"].get<int64_t>());
  }
  const size_t size = static_cast<size_t>(last + 1);
  if (size == 0) return Refuse("model.vocab", "at least one token", "none");
  if (size > count + kMaxHoles) {
    return Refuse("model.vocab", "ids close together",
                  "an id of " + std::to_string(last) + " among " + std::to_string(count) + " tokens");
  }
  out_.vocab.tokens.resize(size);
  out_.pipeline.in_model.assign(size, false);
  taken_.assign(size, false);
  if (list) out_.pipeline.scores.assign(size, 0);
  for (HfTokenizerSink::Entry& entry : sink_.vocab) {
    if (list) out_.pipeline.scores[static_cast<size_t>(entry.id)] = entry.score;
    BALLAST_RETURN_IF_ERROR(PutToken(std::move(entry.text), entry.id, true));
  }
  sink_.vocab = {};
  out_.pipeline.merges = std::move(sink_.merges);
  return Status();
}

Status Builder::ReadAdded() {
  const Json& added = Member("added_tokens");
  std::unordered_map<std::string_view, Token> by_text;
  by_text.reserve(out_.vocab.tokens.size());
  for (size_t id = 0; id < out_.vocab.tokens.size(); ++id) {
    if (taken_[id]) by_text.emplace(out_.vocab.tokens[id], static_cast<Token>(id));
  }
  for (const Json& json : added) {
    HfAddedToken token;
    BALLAST_RETURN_IF_ERROR(Read(json, "content", &token.text));
    if (token.text.empty()) continue;
    BALLAST_RETURN_IF_ERROR(Read(json, "special", &token.special));
    BALLAST_RETURN_IF_ERROR(Read(json, "lstrip", &token.lstrip));
    BALLAST_RETURN_IF_ERROR(Read(json, "rstrip", &token.rstrip));
    BALLAST_RETURN_IF_ERROR(Read(json, "single_word", &token.single_word));
    token.normalized = !token.special;
    BALLAST_RETURN_IF_ERROR(Read(json, "normalized", &token.normalized));
    // A text that the model has keeps the model's id.
    const auto known = by_text.find(token.text);
    token.id = known != by_text.end() ? known->second : json["id"].get<Token>();
    if (known == by_text.end()) BALLAST_RETURN_IF_ERROR(PutToken(token.text, token.id, false));
    out_.pipeline.added.push_back(std::move(token));
  }
  return Status();
}

Status Builder::ReadUnknown() {
  const Json& model = Member("model");
  Vocab& vocab = out_.vocab;
  const auto id = model.find("unk_id");
  if (id != model.end() && !id->is_null()) {
    if (!id->is_number_unsigned() || id->get<uint64_t>() >= vocab.tokens.size()) {
      return Refuse("model.unk_id", "an id below " + std::to_string(vocab.tokens.size()), "another value");
    }
    vocab.unk = id->get<Token>();
  } else if (unk_.has_value()) {
    for (size_t at = 0; at < vocab.tokens.size() && vocab.unk < 0; ++at) {
      if (out_.pipeline.in_model[at] && vocab.tokens[at] == *unk_) vocab.unk = static_cast<Token>(at);
    }
  }
  out_.pipeline.has_unk = vocab.unk >= 0;
  return Status();
}

void Builder::TypeTokens() {
  Vocab& vocab = out_.vocab;
  vocab.types.assign(vocab.tokens.size(), Vocab::kNormal);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (!taken_[id]) vocab.types[id] = Vocab::kUnused;
    const std::string& text = vocab.tokens[id];
    const auto hex = [&](size_t i) {
      return (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'F');
    };
    if (out_.pipeline.byte_fallback && text.size() == 6 && text.starts_with("<0x") && text[5] == '>' &&
        hex(3) && hex(4)) {
      vocab.types[id] = Vocab::kByte;
    }
  }
  for (const HfAddedToken& token : out_.pipeline.added) {
    vocab.types[static_cast<size_t>(token.id)] = token.special ? Vocab::kControl : Vocab::kUserDefined;
  }
  if (vocab.unk >= 0) vocab.types[static_cast<size_t>(vocab.unk)] = Vocab::kUnknown;
}

}  // namespace

Result<HfTokenizerJson> ParseHfTokenizerJson(const std::string& name, std::string_view text) {
  if (text.size() > kMaxFile) {
    return Status::Expected(Code::kModel, name, "at most " + std::to_string(kMaxFile) + " bytes",
                            std::to_string(text.size()));
  }
  HfTokenizerSink sink(name);
  BALLAST_RETURN_IF_ERROR(ScanJson(name, text, &sink));
  return Builder(name, &sink).Run();
}

}  // namespace ballast
