// BPE as tokenizer.json describes it: characters become symbols, merges join them by rank.
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "text/hf_model.h"
#include "text/merge_table.h"
#include "text/token_index.h"
#include "text/tokenizer_base.h"
#include "text/unicode.h"
#include "text/utf8_scan.h"

namespace ballast {
namespace {

class HfBpe : public HfModel {
 public:
  HfBpe(const Vocab& vocab, const HfPipeline& pipeline) : vocab_(vocab), pipeline_(pipeline) {}

  Status Create() {
    all_.Reset(&vocab_.tokens);
    plain_.Reset(&vocab_.tokens);
    for (Token id = 0; id < static_cast<Token>(vocab_.tokens.size()); ++id) {
      if (pipeline_.in_model[static_cast<size_t>(id)]) all_.Insert(id);
      if (IsPlain(vocab_, pipeline_, id)) plain_.Insert(id);
    }
    byte_tokens_ = FindByteTokens(vocab_, pipeline_);
    affixed_ = !pipeline_.word_prefix.empty() || !pipeline_.word_suffix.empty();
    for (uint32_t c = 0; c < short_chars_.size(); ++c) {
      std::string text;
      AppendUtf8(c, &text);
      short_chars_[c] = plain_.Find(text);
    }
    return BuildMerges();
  }

  void Encode(std::string_view word, Scratch* scratch, std::vector<Token>* out) const override;

 private:
  Status BuildMerges();
  Token SymbolOf(std::string_view word, size_t at, size_t bytes, std::string* scratch) const;
  bool FallBack(std::string_view bytes, uint32_t begin, PairMerger* merger) const;

  const Vocab& vocab_;
  const HfPipeline& pipeline_;
  TokenIndex all_;    // of the model
  TokenIndex plain_;  // and not control
  MergeTable merges_;
  std::vector<Token> byte_tokens_;
  std::array<Token, 0x800> short_chars_{};  // by code point: the characters of one or two bytes
  bool affixed_ = false;
};

Status HfBpe::BuildMerges() {
  merges_.Reset(pipeline_.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < pipeline_.merges.size(); ++rank) {
    const HfMerge& merge = pipeline_.merges[rank];
    const std::string_view left = std::string_view(merge.text).substr(0, merge.left_bytes);
    const std::string_view right = std::string_view(merge.text).substr(merge.left_bytes);
    const auto refuse = [&](const char* expected) {
      return Status::Expected(Code::kModel, "merge " + std::to_string(rank), expected,
                              QuoteForMessage(std::string(left) + " " + std::string(right)));
    };
    const Token left_id = all_.Find(left), right_id = all_.Find(right);
    if (left_id < 0 || right_id < 0) return refuse("two tokens of the vocabulary");
    if (right.size() < pipeline_.word_prefix.size()) return refuse("a right part that holds the prefix");
    joined.assign(left).append(right.substr(pipeline_.word_prefix.size()));
    const Token id = all_.Find(joined);
    if (id < 0) return refuse("two parts that join into a token of the vocabulary");
    // Plain text never becomes a control token, even where a merge says so.
    if (plain_.Find(joined) >= 0) merges_.InsertOrReplace(left_id, right_id, static_cast<uint32_t>(rank), id);
  }
  return Status();
}

Token HfBpe::SymbolOf(std::string_view word, size_t at, size_t bytes, std::string* scratch) const {
  if (affixed_) {
    scratch->assign(at > 0 ? pipeline_.word_prefix : "").append(word.substr(at, bytes));
    if (at + bytes == word.size()) *scratch += pipeline_.word_suffix;
    return plain_.Find(*scratch);
  }
  if (bytes <= 2) {
    size_t n = 0;
    return short_chars_[DecodeUtf8(word, at, &n)];
  }
  return plain_.Find(word.substr(at, bytes));
}

// The character as byte tokens, if it has them all.
bool HfBpe::FallBack(std::string_view bytes, uint32_t begin, PairMerger* merger) const {
  for (const char c : bytes) {
    if (byte_tokens_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : bytes) merger->Add(begin++, 1, byte_tokens_[static_cast<uint8_t>(c)]);
  return true;
}

void HfBpe::Encode(std::string_view word, Scratch* scratch, std::vector<Token>* out) const {
  if (pipeline_.ignore_merges) {
    if (const Token whole = plain_.Find(word); whole >= 0) return out->push_back(whole);
  }
  PairMerger& merger = scratch->merger;
  merger.Clear();
  size_t unknown = 0, unknown_begin = 0;  // bytes waiting to become one unknown token
  const auto flush = [&] {
    if (unknown > 0) {
      merger.Add(static_cast<uint32_t>(unknown_begin), static_cast<uint32_t>(unknown), vocab_.unk);
    }
    unknown = 0;
  };
  for (size_t at = 0, n = 0; at < word.size(); at += n) {
    n = Utf8CharBytes(word, at);
    const Token id = SymbolOf(word, at, n, &scratch->text);
    if (id >= 0) {
      flush();
      merger.Add(static_cast<uint32_t>(at), static_cast<uint32_t>(n), id);
      continue;
    }
    if (pipeline_.byte_fallback && FallBack(word.substr(at, n), static_cast<uint32_t>(at), &merger)) continue;
    if (!pipeline_.has_unk) continue;
    if (!pipeline_.fuse_unk) flush();
    if (unknown == 0) unknown_begin = at;
    unknown += n;
  }
  flush();
  merger.Merge([this](const MergeSymbol& left, const MergeSymbol& right, uint32_t* rank, Token* id) {
    return merges_.Find(left.id, right.id, rank, id);
  });
  for (const MergeSymbol& symbol : merger.symbols) {
    if (symbol.bytes > 0) out->push_back(symbol.id);
  }
}

}  // namespace

std::vector<Token> FindByteTokens(const Vocab& vocab, const HfPipeline& pipeline) {
  std::vector<Token> out(256, -1);
  TokenIndex index;
  index.Reset(&vocab.tokens);
  for (Token id = 0; id < static_cast<Token>(vocab.tokens.size()); ++id) {
    if (vocab.tokens[static_cast<size_t>(id)].size() == 6 && pipeline.in_model[static_cast<size_t>(id)]) {
      index.Insert(id);
    }
  }
  for (unsigned b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", b);
    out[b] = index.Find(text);
  }
  return out;
}

bool IsPlain(const Vocab& vocab, const HfPipeline& pipeline, Token id) {
  const auto at = static_cast<size_t>(id);
  return pipeline.in_model[at] && vocab.types[at] != Vocab::kControl && vocab.types[at] != Vocab::kUnknown;
}

Result<std::unique_ptr<const HfModel>> MakeHfBpe(const Vocab& vocab, const HfPipeline& pipeline) {
  auto made = std::make_unique<HfBpe>(vocab, pipeline);
  BALLAST_RETURN_IF_ERROR(made->Create());
  return std::unique_ptr<const HfModel>(std::move(made));
}

}  // namespace ballast
