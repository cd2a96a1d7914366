#include "engine/hf_tokenizer_steps.h"

#include <utility>

#include "formats/text.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using N = HfNormalizer::Kind;
using P = HfPreTokenizer::Kind;

constexpr size_t kMaxSteps = 64;
constexpr char kSpaceMark[] = "\xE2\x96\x81";

}  // namespace

Status HfStepsReader::Refuse(const std::string& where, std::string_view expected,
                             std::string_view found) const {
  return Status::Expected(Code::kModel, name_ + ": " + where, expected, found);
}

Status HfStepsReader::Type(const char* what, const Json& json, std::string* type) const {
  type->clear();
  if (json.is_null()) return Status();
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string()) {
    return Refuse(what, "an object with a type", "something else");
  }
  *type = json["type"].get<std::string>();
  return Status();
}

template <typename T>
Status HfStepsReader::Read(const Json& object, const char* key, T* out) const {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return Status();
  if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) return Refuse(key, "true or false", "something else");
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return Refuse(key, "a text", "something else");
  } else {
    if (!found->is_number()) return Refuse(key, "a number", "something else");
  }
  *out = found->template get<T>();
  return Status();
}

template <typename Each>
Status HfStepsReader::ForEach(const Json& object, const char* key, const Each& each) const {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return Refuse(key, "a list of steps", "something else");
  for (const Json& step : *found) BALLAST_RETURN_IF_ERROR(each(step));
  return Status();
}

// {"Regex": "..."} or {"String": "..."}.
Status HfStepsReader::Pattern(const Json& object, HfPattern* out) const {
  const auto found = object.find("pattern");
  if (found != object.end() && found->is_object()) {
    for (const char* key : {"Regex", "String"}) {
      const auto text = found->find(key);
      if (text == found->end() || !text->is_string()) continue;
      out->text = text->get<std::string>();
      out->regex = key[0] == 'R';
      return Status();
    }
  }
  return Refuse("pattern", "an object with Regex or String", "something else");
}

Status HfStepsReader::Normalizer(const Json& json) const {
  std::string type;
  BALLAST_RETURN_IF_ERROR(Type("normalizer", json, &type));
  if (type.empty()) return Status();
  if (type == "Sequence") {
    return ForEach(json, "normalizers", [&](const Json& step) { return Normalizer(step); });
  }
  constexpr std::pair<std::string_view, N> kKinds[] = {{"NFC", N::kNfc},
                                                       {"NFD", N::kNfd},
                                                       {"NFKC", N::kNfkc},
                                                       {"NFKD", N::kNfkd},
                                                       {"Lowercase", N::kLowercase},
                                                       {"Strip", N::kStrip},
                                                       {"StripAccents", N::kStripAccents},
                                                       {"Replace", N::kReplace},
                                                       {"Prepend", N::kPrepend},
                                                       {"ByteLevel", N::kByteLevel},
                                                       {"Nmt", N::kNmt}};
  HfNormalizer step;
  bool known = false;
  for (const auto& [name, kind] : kKinds) {
    if (type != name) continue;
    step.kind = kind;
    known = true;
  }
  if (!known) {
    const std::string why = type == "Precompiled" ? " (a compiled SentencePiece character map)" : "";
    return Refuse("normalizer",
                  "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend or Nmt",
                  QuoteName(type) + why);
  }
  if (step.kind == N::kReplace) {
    BALLAST_RETURN_IF_ERROR(Pattern(json, &step.pattern));
    BALLAST_RETURN_IF_ERROR(Read(json, "content", &step.content));
  } else if (step.kind == N::kPrepend) {
    BALLAST_RETURN_IF_ERROR(Read(json, "prepend", &step.content));
  } else if (step.kind == N::kStrip) {
    BALLAST_RETURN_IF_ERROR(Read(json, "strip_left", &step.left));
    BALLAST_RETURN_IF_ERROR(Read(json, "strip_right", &step.right));
  }
  if (out_.normalizers.size() == kMaxSteps) return Refuse("normalizer", "at most 64 steps", "more");
  out_.normalizers.push_back(std::move(step));
  return Status();
}

Status HfStepsReader::Behavior(const Json& object, HfPreTokenizer* out) const {
  using B = HfPreTokenizer::Behavior;
  constexpr std::pair<std::string_view, B> kNames[] = {{"Removed", B::kRemoved},
                                                       {"Isolated", B::kIsolated},
                                                       {"MergedWithPrevious", B::kMergedWithPrevious},
                                                       {"MergedWithNext", B::kMergedWithNext},
                                                       {"Contiguous", B::kContiguous}};
  std::string name = "Isolated";
  BALLAST_RETURN_IF_ERROR(Read(object, "behavior", &name));
  for (const auto& [known, behavior] : kNames) {
    if (name != known) continue;
    out->behavior = behavior;
    return Status();
  }
  return Refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                QuoteName(name));
}

// Older files say add_prefix_space where newer ones say prepend_scheme.
Status HfStepsReader::Metaspace(const Json& object, HfPreTokenizer* out) const {
  using S = HfPreTokenizer::Prepend;
  BALLAST_RETURN_IF_ERROR(Read(object, "replacement", &out->mark));
  BALLAST_RETURN_IF_ERROR(Read(object, "split", &out->split));
  bool prefix = true;
  BALLAST_RETURN_IF_ERROR(Read(object, "add_prefix_space", &prefix));
  std::string scheme = prefix ? "always" : "never";
  BALLAST_RETURN_IF_ERROR(Read(object, "prepend_scheme", &scheme));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return Refuse("prepend_scheme", "always, first or never", QuoteName(scheme));
  }
  out->prepend = scheme == "always" ? S::kAlways : scheme == "first" ? S::kFirst : S::kNever;
  if (out->mark.empty()) return Refuse("replacement", "a character", "none");
  return Status();
}

Status HfStepsReader::PreTokenizer(const Json& json) const {
  std::string type;
  BALLAST_RETURN_IF_ERROR(Type("pre_tokenizer", json, &type));
  if (type.empty()) return Status();
  if (type == "Sequence") {
    return ForEach(json, "pretokenizers", [&](const Json& step) { return PreTokenizer(step); });
  }
  HfPreTokenizer step;
  if (type == "Split") {
    BALLAST_RETURN_IF_ERROR(Pattern(json, &step.pattern));
    BALLAST_RETURN_IF_ERROR(Behavior(json, &step));
    BALLAST_RETURN_IF_ERROR(Read(json, "invert", &step.invert));
  } else if (type == "ByteLevel") {
    step.kind = P::kByteLevel;
    step.add_prefix_space = true;
    BALLAST_RETURN_IF_ERROR(Read(json, "add_prefix_space", &step.add_prefix_space));
    BALLAST_RETURN_IF_ERROR(Read(json, "use_regex", &step.use_regex));
  } else if (type == "Digits") {
    step.kind = P::kDigits;
    BALLAST_RETURN_IF_ERROR(Read(json, "individual_digits", &step.individual));
  } else if (type == "Metaspace") {
    step.kind = P::kMetaspace;
    BALLAST_RETURN_IF_ERROR(Metaspace(json, &step));
  } else if (type == "Punctuation") {
    step.kind = P::kPunctuation;
    BALLAST_RETURN_IF_ERROR(Behavior(json, &step));
  } else if (type == "CharDelimiterSplit") {
    step.kind = P::kDelimiter;
    BALLAST_RETURN_IF_ERROR(Read(json, "delimiter", &step.pattern.text));
  } else if (type == "Whitespace" || type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    step.kind = type == "Whitespace"        ? P::kWhitespace
                : type == "WhitespaceSplit" ? P::kWhitespaceSplit
                                            : P::kBert;
  } else {
    return Refuse("pre_tokenizer",
                  "Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, "
                  "BertPreTokenizer or CharDelimiterSplit",
                  QuoteName(type));
  }
  if (out_.pre_tokenizers.size() == kMaxSteps) return Refuse("pre_tokenizer", "at most 64 steps", "more");
  out_.pre_tokenizers.push_back(std::move(step));
  return Status();
}

Status HfStepsReader::Decoder(const Json& json) const {
  std::string type;
  BALLAST_RETURN_IF_ERROR(Type("decoder", json, &type));
  if (type.empty()) {
    for (const HfPreTokenizer& step : out_.pre_tokenizers) {
      if (step.kind == P::kByteLevel) out_.decode_bytes = true;
    }
    return Status();
  }
  if (type == "Sequence") {
    return ForEach(json, "decoders", [&](const Json& step) { return Decoder(step); });
  }
  if (type == "ByteLevel") {
    out_.decode_bytes = true;
  } else if (type == "ByteFallback") {
    out_.decode_byte_tokens = true;
  } else if (type == "Metaspace") {
    HfPreTokenizer step;
    BALLAST_RETURN_IF_ERROR(Metaspace(json, &step));
    out_.replaced.emplace_back(step.mark, " ");
    if (step.prepend != HfPreTokenizer::Prepend::kNever) out_.strip_leading_space = true;
  } else if (type == "Replace") {
    HfPattern pattern;
    std::string content;
    BALLAST_RETURN_IF_ERROR(Pattern(json, &pattern));
    BALLAST_RETURN_IF_ERROR(Read(json, "content", &content));
    if (pattern.regex || pattern.text.empty()) return Refuse("decoder", "a String to replace", "a Regex");
    out_.replaced.emplace_back(std::move(pattern.text), std::move(content));
  } else if (type == "Strip") {
    std::string content;
    int64_t start = 0;
    BALLAST_RETURN_IF_ERROR(Read(json, "content", &content));
    BALLAST_RETURN_IF_ERROR(Read(json, "start", &start));
    if (content == " " && start > 0) out_.strip_leading_space = true;
  } else if (type == "BPEDecoder") {
    out_.decode_suffix = "</w>";
    BALLAST_RETURN_IF_ERROR(Read(json, "suffix", &out_.decode_suffix));
  } else if (type != "Fuse") {
    return Refuse("decoder", "ByteLevel, ByteFallback, Metaspace, Replace, Strip, BPEDecoder or Fuse",
                  QuoteName(type));
  }
  return Status();
}

// The template around one text: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...].
Status HfStepsReader::Template(const Json& object, size_t tokens) const {
  const auto single = object.find("single");
  const auto specials = object.find("special_tokens");
  if (single == object.end() || !single->is_array()) return Refuse("single", "a list", "something else");
  std::vector<Token>* side = &out_.before;
  for (const Json& piece : *single) {
    if (piece.is_object() && piece.contains("Sequence")) {
      side = &out_.after;
      continue;
    }
    const auto refuse = [&] {
      return Refuse("single", "Sequence, or a SpecialToken with ids", "something else");
    };
    if (!piece.is_object() || !piece.contains("SpecialToken") || !piece["SpecialToken"].is_object())
      return refuse();
    std::string id;
    BALLAST_RETURN_IF_ERROR(Read(piece["SpecialToken"], "id", &id));
    if (specials == object.end() || !specials->is_object() || !specials->contains(id)) return refuse();
    const Json& special = (*specials)[id];
    if (!special.is_object() || !special.contains("ids") || !special["ids"].is_array()) return refuse();
    for (const Json& each : special["ids"]) {
      if (!each.is_number_unsigned() || each.get<uint64_t>() >= tokens) return refuse();
      side->push_back(each.get<Token>());
    }
  }
  if (side == &out_.before) return Refuse("single", "a Sequence", "none");
  return Status();
}

// "cls" before and "sep" behind, each ["text", id].
Status HfStepsReader::Around(const Json& object, size_t tokens) const {
  for (const char* key : {"cls", "sep"}) {
    const auto pair = object.find(key);
    if (pair == object.end() || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_unsigned() ||
        (*pair)[1].get<uint64_t>() >= tokens) {
      return Refuse(key, "[text, id]", "something else");
    }
    (key[0] == 'c' ? out_.before : out_.after).push_back((*pair)[1].get<Token>());
  }
  return Status();
}

Status HfStepsReader::PostProcessor(const Json& json, size_t tokens) const {
  std::string type;
  BALLAST_RETURN_IF_ERROR(Type("post_processor", json, &type));
  if (type.empty() || type == "ByteLevel") return Status();
  if (type == "Sequence") {
    return ForEach(json, "processors", [&](const Json& step) { return PostProcessor(step, tokens); });
  }
  if (type == "TemplateProcessing") return Template(json, tokens);
  if (type == "RobertaProcessing" || type == "BertProcessing") return Around(json, tokens);
  return Refuse("post_processor", "TemplateProcessing, ByteLevel, BertProcessing or RobertaProcessing",
                QuoteName(type));
}

}  // namespace ballast
