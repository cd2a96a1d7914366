// HfPipeline, run: added tokens, normaliser, pre-tokenizer, model, template; and back to bytes.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "text/byte_table.h"
#include "text/hf_model.h"
#include "text/hf_pipeline.h"
#include "text/hf_steps.h"
#include "text/special_matcher.h"
#include "text/tokenizer_base.h"
#include "text/unicode.h"
#include "text/utf8_scan.h"

namespace ballast {
namespace {

// The start of the character before `at`. REQUIRES: at > 0, UTF-8 before it.
size_t CharBefore(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

class HfTokenizer : public TokenizerBase {
 public:
  HfTokenizer(Vocab vocab, HfPipeline pipeline)
      : TokenizerBase(std::move(vocab)), pipeline_(std::move(pipeline)) {}

  Status Create();
  std::vector<Token> Encode(std::string_view text, const EncodeOptions& options) const override;
  using Tokenizer::Encode;

 protected:
  // The base's way of encoding is not used.
  void EncodeText(std::string_view, bool, std::vector<Token>*) const override {}
  std::string PieceBytes(Token id) const override;

 private:
  // What one call of Encode carries along.
  struct Run {
    const EncodeOptions& options;
    RegexMatcher matcher;
    HfModel::Scratch scratch;
    HfWords words;
    std::vector<Token> out;
  };
  struct Added {
    SpecialMatcher matcher;
    std::deque<std::string> texts;
  };

  Status BuildAdded();
  template <typename Plain>
  void AroundAdded(const Added& added, std::string_view text, Run* run, const Plain& plain) const;
  void EncodeRaw(std::string_view text, bool first, bool prepend, Run* run) const;
  void EncodeValid(std::string_view text, bool first, bool prepend, Run* run) const;
  void EncodeBytes(std::string_view bytes, Run* run) const;

  HfPipeline pipeline_;
  HfNormalizerChain normalizer_;
  HfPreTokenizerChain pre_tokenizer_;
  std::unique_ptr<const HfModel> model_;
  std::vector<Token> byte_tokens_;
  std::vector<int32_t> added_by_id_;  // index in pipeline_.added, or -1
  Added raw_, normalized_;
  bool byte_level_ = false;
};

Status HfTokenizer::Create() {
  for (const HfPreTokenizer& step : pipeline_.pre_tokenizers) {
    byte_level_ = byte_level_ || step.kind == HfPreTokenizer::Kind::kByteLevel;
  }
  for (const HfNormalizer& step : pipeline_.normalizers) {
    byte_level_ = byte_level_ || step.kind == HfNormalizer::Kind::kByteLevel;
  }
  space_prefix_ = pipeline_.strip_leading_space;
  BALLAST_RETURN_IF_ERROR(Init());
  BALLAST_ASSIGN_OR_RETURN(normalizer_, HfNormalizerChain::Create(pipeline_.normalizers));
  BALLAST_ASSIGN_OR_RETURN(pre_tokenizer_, HfPreTokenizerChain::Create(pipeline_.pre_tokenizers));
  if (pipeline_.model == HfPipeline::Model::kBpe) {
    BALLAST_ASSIGN_OR_RETURN(model_, MakeHfBpe(vocab_, pipeline_));
  } else {
    BALLAST_ASSIGN_OR_RETURN(model_, MakeHfUnigram(vocab_, pipeline_));
  }
  byte_tokens_ = FindByteTokens(vocab_, pipeline_);
  return BuildAdded();
}

Status HfTokenizer::BuildAdded() {
  added_by_id_.assign(vocab_.tokens.size(), -1);
  std::vector<SpecialMatcher::Entry> raw, normalized;
  RegexMatcher matcher;
  bool head_kept = true;
  for (size_t i = 0; i < pipeline_.added.size(); ++i) {
    const HfAddedToken& token = pipeline_.added[i];
    added_by_id_[static_cast<size_t>(token.id)] = static_cast<int32_t>(i);
    const bool late = token.normalized && !normalizer_.empty();
    std::deque<std::string>& texts = late ? normalized_.texts : raw_.texts;
    texts.push_back(late ? normalizer_.Apply(token.text, true, &matcher, &head_kept) : token.text);
    if (texts.back().empty()) continue;
    if (texts.back().size() > SpecialMatcher::kMaxBytes) {
      return Status::Expected(Code::kModel, "added token " + QuoteForMessage(token.text),
                              "at most " + std::to_string(SpecialMatcher::kMaxBytes) + " bytes",
                              std::to_string(texts.back().size()));
    }
    (late ? normalized : raw).push_back({texts.back(), token.id, IsControl(token.id)});
  }
  raw_.matcher.Build(std::move(raw));
  normalized_.matcher.Build(std::move(normalized));
  return Status();
}

std::string HfTokenizer::PieceBytes(Token id) const {
  const std::string& text = vocab_.tokens[static_cast<size_t>(id)];
  if (pipeline_.decode_byte_tokens && type(id) == Vocab::kByte) {
    return std::string(1, static_cast<char>(std::stoi(text.substr(3, 2), nullptr, 16)));
  }
  std::string bytes;
  if (pipeline_.decode_bytes && type(id) != Vocab::kUserDefined && ByteCharsToBytes(text, &bytes))
    return bytes;
  bytes = text;
  const auto replace = [&bytes](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size()) {
      bytes.replace(at, from.size(), to);
    }
  };
  for (const auto& [from, to] : pipeline_.replaced) replace(from, to);
  const std::string& suffix = pipeline_.decode_suffix;
  if (!suffix.empty() && bytes.ends_with(suffix))
    bytes.replace(bytes.size() - suffix.size(), suffix.size(), " ");
  return bytes;
}

// Puts the ids of added tokens into run->out, and calls plain(stretch, begin) for what lies between them.
template <typename Plain>
void HfTokenizer::AroundAdded(const Added& added, std::string_view text, Run* run, const Plain& plain) const {
  size_t done = 0;  // everything before is encoded
  for (size_t from = 0; from < text.size();) {
    const SpecialMatcher::Match match = added.matcher.Find(text, from, run->options.parse_special);
    if (match.bytes == 0) break;
    size_t begin = match.begin, end = match.begin + match.bytes, n = 0;
    from = end;
    const HfAddedToken& token =
        pipeline_.added[static_cast<size_t>(added_by_id_[static_cast<size_t>(match.id)])];
    if (token.single_word) {
      const bool before = begin > 0 && IsWordCharacter(DecodeUtf8(text, CharBefore(text, begin), &n));
      const bool behind =
          end < text.size() && Utf8CharBytes(text, end) > 0 && IsWordCharacter(DecodeUtf8(text, end, &n));
      if (before || behind) continue;
    }
    while (token.lstrip && begin > done) {
      const size_t before = CharBefore(text, begin);
      if (Utf8CharBytes(text, before) == 0 || !IsSpace(DecodeUtf8(text, before, &n))) break;
      begin = before;
    }
    while (token.rstrip && end < text.size() && Utf8CharBytes(text, end) > 0 &&
           IsSpace(DecodeUtf8(text, end, &n))) {
      end += n;
    }
    begin = std::max(begin, done);
    if (begin > done) plain(text.substr(done, begin - done), done);
    run->out.push_back(match.id);
    done = end;
    from = std::max(from, end);
  }
  if (done < text.size()) plain(text.substr(done), done);
}

std::vector<Token> HfTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  Run run{options, {}, {}, {}, {}};
  if (options.add_special) run.out = pipeline_.before;
  const size_t head = run.out.size();
  AroundAdded(raw_, text, &run, [&](std::string_view stretch, size_t begin) {
    bool prepend = begin > 0 || options.leading_space;
    bool first = begin == 0;
    while (!stretch.empty() && !options.stopped()) {
      const size_t bytes = StretchBytes(stretch);
      EncodeRaw(stretch.substr(0, bytes), first, prepend, &run);
      first = prepend = false;
      stretch.remove_prefix(bytes);
    }
  });
  // Never a second BOS.
  if (head > 0 && run.out.size() > head && run.out[head] == vocab_.bos && run.out[head - 1] == vocab_.bos) {
    run.out.erase(run.out.begin() + static_cast<long>(head) - 1);
  }
  if (options.add_special) {
    const bool ended =
        pipeline_.after.size() == 1 && !run.out.empty() && run.out.back() == pipeline_.after[0];
    if (!ended) run.out.insert(run.out.end(), pipeline_.after.begin(), pipeline_.after.end());
  }
  return std::move(run.out);
}

// Text that may hold bytes which are no UTF-8: they are a stretch of their own.
void HfTokenizer::EncodeRaw(std::string_view text, bool first, bool prepend, Run* run) const {
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = at;
    size_t n = Utf8CharBytes(text, at);
    const bool valid = n > 0;
    while (at < text.size() && (n > 0) == valid) {
      at += valid ? n : 1;
      if (at < text.size()) n = Utf8CharBytes(text, at);
    }
    const std::string_view stretch = text.substr(begin, at - begin);
    if (valid) {
      EncodeValid(stretch, first && begin == 0, prepend && begin == 0, run);
    } else {
      EncodeBytes(stretch, run);
    }
  }
}

void HfTokenizer::EncodeValid(std::string_view text, bool first, bool prepend, Run* run) const {
  std::string owned;
  if (!normalizer_.empty()) {
    owned = normalizer_.Apply(text, prepend, &run->matcher, &first);
    text = owned;
  }
  AroundAdded(normalized_, text, run, [&](std::string_view stretch, size_t begin) {
    run->words.text.assign(stretch);
    pre_tokenizer_.Apply(first && begin == 0, prepend || begin > 0, &run->words, &run->matcher);
    size_t at = 0;
    for (const size_t end : run->words.ends) {
      model_->Encode(std::string_view(run->words.text).substr(at, end - at), &run->scratch, &run->out);
      at = end;
    }
  });
}

void HfTokenizer::EncodeBytes(std::string_view bytes, Run* run) const {
  if (byte_level_) {
    std::string word;
    for (const char c : bytes) AppendByteChar(static_cast<uint8_t>(c), &word);
    return model_->Encode(word, &run->scratch, &run->out);
  }
  for (const char c : bytes) {
    const Token id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0 && pipeline_.byte_fallback) {
      run->out.push_back(id);
    } else if (pipeline_.has_unk) {
      run->out.push_back(vocab_.unk);
    }
  }
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> MakeHfTokenizer(Vocab vocab, HfPipeline pipeline) {
  BALLAST_CHECK(pipeline.in_model.size() == vocab.tokens.size());
  vocab.kind = Vocab::Kind::kPipeline;
  auto made = std::make_unique<HfTokenizer>(std::move(vocab), std::move(pipeline));
  BALLAST_RETURN_IF_ERROR(made->Create());
  return std::unique_ptr<const Tokenizer>(std::move(made));
}

}  // namespace ballast
