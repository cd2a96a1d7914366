#include "engine/load_tokenizer.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/load_hf_tokenizer.h"
#include "formats/text.h"

namespace ballast {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

// Every refusal opens with the file's path, once.
Status InFile(const TensorFile& file, const Status& status) {
  if (status.message().starts_with(file.path())) return status;
  return Status(status.code(), file.path() + ": " + status.message(), status.hint());
}

Status Refuse(std::string_view key, std::string_view expected, std::string_view found,
              std::string hint = "") {
  return Status::Expected(Code::kModel, key, expected, found, std::move(hint));
}

Status ReadTexts(const TensorFile& file, std::string_view key, std::vector<std::string>* out) {
  const MetaValue* value = file.Find(key);
  if (value == nullptr) return Refuse(key, "a list of texts", "nothing");
  const auto* texts = std::get_if<std::vector<std::string>>(value);
  if (texts == nullptr) return Refuse(key, "a list of texts", "another kind of value");
  *out = *texts;
  return Status();
}

// A list of numbers, whole or not, as T; absent leaves `out` empty.
template <typename T>
Status ReadNumbers(const TensorFile& file, std::string_view key, std::vector<T>* out) {
  const MetaValue* value = file.Find(key);
  if (value == nullptr) return Status();
  return std::visit(
      [&](const auto& list) -> Status {
        using List = std::decay_t<decltype(list)>;
        if constexpr (std::is_same_v<List, std::vector<int64_t>> ||
                      std::is_same_v<List, std::vector<uint64_t>> ||
                      std::is_same_v<List, std::vector<double>>) {
          out->reserve(list.size());
          for (const auto number : list) {
            const double wide = static_cast<double>(number);
            if (std::is_integral_v<T> && (std::trunc(wide) != wide || std::abs(wide) > 1e9)) {
              return Refuse(key, "small whole numbers", std::to_string(wide));
            }
            out->push_back(static_cast<T>(number));
          }
          return Status();
        } else {
          return Refuse(key, "a list of numbers", "another kind of value");
        }
      },
      *value);
}

Status ReadId(const TensorFile& file, std::string_view key, size_t tokens, Token* out) {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> id, file.Int(key));
  if (!id.has_value() || *id == -1) return Status();
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens) {
    return Refuse(key, "an id below " + std::to_string(tokens), std::to_string(*id));
  }
  *out = static_cast<Token>(*id);
  return Status();
}

Status ReadBool(const TensorFile& file, std::string_view key, bool absent, bool* out) {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> value, file.Bool(key));
  *out = value.value_or(absent);
  return Status();
}

Status ReadKind(const TensorFile& file, Vocab* vocab) {
  constexpr std::string_view kKnown = "gpt2 (byte-level BPE) or llama (SentencePiece BPE)";
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> model, file.String(kModelKey));
  if (!model.has_value()) {
    return Refuse(kModelKey, kKnown, "nothing",
                  "the file holds no vocabulary; convert the model again with it");
  }
  if (*model == "gpt2") {
    vocab->kind = Vocab::Kind::kByteLevelBpe;
  } else if (*model == "llama") {
    vocab->kind = Vocab::Kind::kSentencePieceBpe;
  } else {
    std::string what = QuoteName(*model);
    if (*model == "bert") what += " (WordPiece)";
    if (*model == "t5") what += " (SentencePiece unigram)";
    if (*model == "rwkv") what += " (RWKV's greedy trie)";
    return Refuse(kModelKey, kKnown, what);
  }
  return Status();
}

Status ReadIds(const TensorFile& file, Vocab* vocab) {
  const std::pair<std::string_view, Token*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &vocab->bos},     {"tokenizer.ggml.eos_token_id", &vocab->eos},
      {"tokenizer.ggml.eot_token_id", &vocab->eot},     {"tokenizer.ggml.unknown_token_id", &vocab->unk},
      {"tokenizer.ggml.padding_token_id", &vocab->pad},
  };
  for (const auto& [key, id] : ids) BALLAST_RETURN_IF_ERROR(ReadId(file, key, vocab->tokens.size(), id));
  return Status();
}

// Where the file is silent the family's habit holds: SentencePiece models start with BOS and a space.
Status ReadRules(const TensorFile& file, Vocab* vocab) {
  const bool sentencepiece = vocab->kind == Vocab::Kind::kSentencePieceBpe;
  const bool bos = vocab->bos >= 0 && (sentencepiece || PreTokenizerImpliesBos(vocab->pre));
  BALLAST_RETURN_IF_ERROR(ReadBool(file, "tokenizer.ggml.add_bos_token", bos, &vocab->add_bos));
  BALLAST_RETURN_IF_ERROR(ReadBool(file, "tokenizer.ggml.add_eos_token", false, &vocab->add_eos));
  return ReadBool(file, "tokenizer.ggml.add_space_prefix", sentencepiece, &vocab->add_space_prefix);
}

Result<Vocab> ReadVocab(const TensorFile& file) {
  Vocab vocab;
  BALLAST_RETURN_IF_ERROR(ReadKind(file, &vocab));
  BALLAST_RETURN_IF_ERROR(ReadTexts(file, kTokensKey, &vocab.tokens));
  BALLAST_RETURN_IF_ERROR(ReadNumbers(file, kTypesKey, &vocab.types));
  BALLAST_RETURN_IF_ERROR(ReadNumbers(file, kScoresKey, &vocab.scores));
  if (vocab.kind == Vocab::Kind::kByteLevelBpe) {
    BALLAST_RETURN_IF_ERROR(ReadTexts(file, kMergesKey, &vocab.merges));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::optional<std::string> pre, file.String(kPreKey));
  vocab.pre = pre.value_or("default");
  BALLAST_RETURN_IF_ERROR(ReadIds(file, &vocab));
  BALLAST_RETURN_IF_ERROR(ReadRules(file, &vocab));
  return vocab;
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> LoadTokenizer(const TensorFile& file) {
  if (HasHfTokenizer(file)) return LoadHfTokenizer(file);
  Result<Vocab> vocab = ReadVocab(file);
  if (!vocab.ok()) return InFile(file, vocab.status());
  Result<std::unique_ptr<const Tokenizer>> made = Tokenizer::Create(std::move(vocab).value());
  if (!made.ok()) return InFile(file, made.status());
  return made;
}

}  // namespace ballast
