#include "engine/load_hf_tokenizer.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/hf_tokenizer_json.h"
#include "formats/json.h"
#include "formats/text.h"

namespace ballast {
namespace {

using Json = nlohmann::json;

constexpr char kTokenizer[] = "tokenizer.json";

// A file of the folder as a tree; an empty object when there is none.
Result<Json> ReadSide(const TensorFile& file, const char* name) {
  const auto text = file.SideFile(name);
  if (!text.has_value()) return Json::object();
  return ParseJson(file.path() + "/" + name, *text);
}

// "<s>", or {"content": "<s>", ...}; empty for anything else.
std::string TokenText(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  return "";
}

Token FindText(const Vocab& vocab, const std::string& text) {
  if (text.empty()) return -1;
  const auto at = std::find(vocab.tokens.begin(), vocab.tokens.end(), text);
  return at == vocab.tokens.end() ? -1 : static_cast<Token>(at - vocab.tokens.begin());
}

// An id or a list of ids that the vocabulary has.
std::vector<Token> Ids(const Json& object, const char* key, size_t tokens) {
  std::vector<Token> out;
  const auto found = object.find(key);
  if (found == object.end()) return out;
  const auto take = [&](const Json& id) {
    if (id.is_number_unsigned() && id.get<uint64_t>() < tokens) out.push_back(id.get<Token>());
  };
  if (!found->is_array()) take(*found);
  if (found->is_array()) {
    for (const Json& id : *found) take(id);
  }
  return out;
}

struct Neighbours {
  Json tokenizer, specials, generation, config;
};

Status ReadNeighbours(const TensorFile& file, Neighbours* out) {
  BALLAST_ASSIGN_OR_RETURN(out->tokenizer, ReadSide(file, "tokenizer_config.json"));
  BALLAST_ASSIGN_OR_RETURN(out->specials, ReadSide(file, "special_tokens_map.json"));
  BALLAST_ASSIGN_OR_RETURN(out->generation, ReadSide(file, "generation_config.json"));
  BALLAST_ASSIGN_OR_RETURN(out->config, ReadSide(file, "config.json"));
  return Status();
}

void FindSpecials(const Neighbours& from, Vocab* vocab) {
  const std::pair<const char*, Token*> names[] = {
      {"bos_token", &vocab->bos}, {"eos_token", &vocab->eos}, {"pad_token", &vocab->pad}};
  for (const auto& [name, id] : names) {
    for (const Json* json : {&from.tokenizer, &from.specials}) {
      if (*id < 0) *id = FindText(*vocab, TokenText(*json, name));
    }
  }
  // What the generation config ends a reply with counts as an end of turn, beside EOS.
  for (const Json* json : {&from.generation, &from.config}) {
    if (!vocab->turn_ends.empty()) break;
    vocab->turn_ends = Ids(*json, "eos_token_id", vocab->tokens.size());
  }
  if (vocab->eos < 0 && !vocab->turn_ends.empty()) vocab->eos = vocab->turn_ends[0];
  const std::vector<Token> bos = Ids(from.config, "bos_token_id", vocab->tokens.size());
  if (vocab->bos < 0 && !from.tokenizer.contains("bos_token") && !bos.empty()) vocab->bos = bos[0];
}

// Some classes rebuild the template from two switches whenever they load.
void ApplySwitches(const Json& config, const Vocab& vocab, HfPipeline* pipeline) {
  const std::string name = TokenText(config, "tokenizer_class");
  bool rebuilds = false;
  for (const char* known : {"Llama", "CodeLlama", "Gemma", "Cohere"})
    rebuilds = rebuilds || name.starts_with(known);
  if (!rebuilds) return;
  const auto apply = [&](const char* key, Token id, std::vector<Token>* side) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_boolean() || id < 0) return;
    side->clear();
    if (found->get<bool>()) side->push_back(id);
  };
  apply("add_bos_token", vocab.bos, &pipeline->before);
  apply("add_eos_token", vocab.eos, &pipeline->after);
}

bool Prepends(const HfPipeline& pipeline) {
  for (const HfNormalizer& step : pipeline.normalizers) {
    if (step.kind == HfNormalizer::Kind::kPrepend) return true;
  }
  for (const HfPreTokenizer& step : pipeline.pre_tokenizers) {
    if (step.kind == HfPreTokenizer::Kind::kMetaspace && step.prepend != HfPreTokenizer::Prepend::kNever)
      return true;
    if (step.kind == HfPreTokenizer::Kind::kByteLevel && step.add_prefix_space) return true;
  }
  return false;
}

Result<std::unique_ptr<const Tokenizer>> Load(const TensorFile& file) {
  const auto text = file.SideFile(kTokenizer);
  if (!text.has_value()) {
    return Status::Expected(Code::kModel, file.path(), "tokenizer.json", "none",
                            "transformers' AutoTokenizer(...).save_pretrained writes it");
  }
  const std::string name = file.path() + "/" + kTokenizer;
  BALLAST_ASSIGN_OR_RETURN(HfTokenizerJson read, ParseHfTokenizerJson(name, *text));
  Neighbours from;
  BALLAST_RETURN_IF_ERROR(ReadNeighbours(file, &from));
  FindSpecials(from, &read.vocab);
  ApplySwitches(from.tokenizer, read.vocab, &read.pipeline);
  const auto holds = [](const std::vector<Token>& side, Token id) {
    return id >= 0 && std::find(side.begin(), side.end(), id) != side.end();
  };
  // A template that opens with a token nobody names: that is BOS.
  if (read.vocab.bos < 0 && !read.pipeline.before.empty()) read.vocab.bos = read.pipeline.before.back();
  read.vocab.add_bos = holds(read.pipeline.before, read.vocab.bos);
  read.vocab.add_eos = holds(read.pipeline.after, read.vocab.eos);
  read.vocab.add_space_prefix = Prepends(read.pipeline);
  read.vocab.pre = read.pipeline.model == HfPipeline::Model::kBpe ? "BPE" : "Unigram";
  auto made = MakeHfTokenizer(std::move(read.vocab), std::move(read.pipeline));
  if (made.ok()) return made;
  return Status(made.status().code(), name + ": " + made.status().message(), made.status().hint());
}

}  // namespace

bool HasHfTokenizer(const TensorFile& file) { return file.SideFile("config.json").has_value(); }

Result<std::unique_ptr<const Tokenizer>> LoadHfTokenizer(const TensorFile& file) {
  try {
    return Load(file);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return Status(Code::kInternal, file.path() + ": out of memory while reading the tokenizer");
}

}  // namespace ballast
