// Unigram (Kudo 2018): the cut of a word into tokens whose scores sum to most, found by Viterbi's algorithm.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "text/hf_model.h"
#include "text/tokenizer_base.h"
#include "text/utf8_scan.h"

namespace ballast {
namespace {

constexpr double kUnknownPenalty = 10;   // below the worst score, as SentencePiece has it
constexpr size_t kMaxTokenBytes = 1024;  // longer ones are refused: each costs a step at every byte

class HfUnigram : public HfModel {
 public:
  HfUnigram(const Vocab& vocab, const HfPipeline& pipeline) : vocab_(vocab), pipeline_(pipeline) {}

  Status Create();
  void Encode(std::string_view word, Scratch* scratch, std::vector<Token>* out) const override;

 private:
  struct Entry {
    std::string_view text;
    Token id;
  };
  template <typename Take>
  void ForPrefixes(std::string_view text, const Take& take) const;
  void FindPath(std::string_view word, Scratch* scratch) const;
  void EmitUnknown(std::string_view piece, std::vector<Token>* out) const;

  const Vocab& vocab_;
  const HfPipeline& pipeline_;
  std::vector<Entry> entries_;   // sorted by text, each once
  std::vector<uint32_t> first_;  // entries_[first_[b] .. first_[b + 1]) open with byte b
  std::vector<Token> byte_tokens_;
  double unknown_score_ = 0;
};

Status HfUnigram::Create() {
  double worst = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < vocab_.tokens.size(); ++id) {
    if (!pipeline_.in_model[id]) continue;
    if (!std::isfinite(pipeline_.scores[id])) {
      return Status::Expected(Code::kModel, "score of " + DescribeToken(vocab_, id), "a finite number",
                              "another");
    }
    worst = std::min(worst, pipeline_.scores[id]);
    if (!IsPlain(vocab_, pipeline_, static_cast<Token>(id)) || vocab_.tokens[id].empty()) continue;
    if (vocab_.tokens[id].size() > kMaxTokenBytes) {
      return Status::Expected(Code::kModel, DescribeToken(vocab_, id),
                              "at most " + std::to_string(kMaxTokenBytes) + " bytes",
                              std::to_string(vocab_.tokens[id].size()));
    }
    entries_.push_back({vocab_.tokens[id], static_cast<Token>(id)});
  }
  unknown_score_ = worst - kUnknownPenalty;
  // Of equal texts the last one counts, as in a table that is filled in order.
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  std::reverse(entries_.begin(), entries_.end());
  entries_.erase(std::unique(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.text == b.text; }),
                 entries_.end());
  std::reverse(entries_.begin(), entries_.end());
  first_.assign(257, 0);
  for (const Entry& entry : entries_) ++first_[static_cast<uint8_t>(entry.text[0]) + 1u];
  for (size_t b = 1; b < first_.size(); ++b) first_[b] += first_[b - 1];
  byte_tokens_ = FindByteTokens(vocab_, pipeline_);
  return Status();
}

// Every token that `text` begins with, shortest first: narrows the sorted entries byte by byte.
template <typename Take>
void HfUnigram::ForPrefixes(std::string_view text, const Take& take) const {
  const auto byte = [](std::string_view s, size_t i) { return static_cast<uint8_t>(s[i]); };
  auto low = entries_.begin() + first_[byte(text, 0)];
  auto high = entries_.begin() + first_[byte(text, 0) + 1u];
  for (size_t depth = 1; low != high; ++depth) {
    if (low->text.size() == depth) {
      take(depth, low->id);
      ++low;
    }
    if (depth >= text.size()) return;
    const uint8_t next = byte(text, depth);
    low = std::partition_point(low, high, [&](const Entry& e) { return byte(e.text, depth) < next; });
    high = std::partition_point(low, high, [&](const Entry& e) { return byte(e.text, depth) == next; });
  }
}

void HfUnigram::FindPath(std::string_view word, Scratch* s) const {
  s->best.assign(word.size() + 1, 0);
  s->starts.assign(word.size() + 1, -1);
  s->ids.assign(word.size() + 1, -1);
  const auto offer = [&](size_t begin, size_t end, double score, Token id) {
    const double total = s->best[begin] + score;
    if (s->starts[end] >= 0 && total <= s->best[end]) return;
    s->best[end] = total;
    s->starts[end] = static_cast<int64_t>(begin);
    s->ids[end] = id;
  };
  for (size_t at = 0, n = 0; at < word.size(); at += n) {
    n = Utf8CharBytes(word, at);
    bool single = false;
    ForPrefixes(word.substr(at), [&](size_t bytes, Token id) {
      offer(at, at + bytes, pipeline_.scores[static_cast<size_t>(id)], id);
      single = single || bytes == n;
    });
    if (!single) offer(at, at + n, unknown_score_, -1);
  }
}

void HfUnigram::EmitUnknown(std::string_view piece, std::vector<Token>* out) const {
  bool bytes = pipeline_.byte_fallback;
  for (const char c : piece) bytes = bytes && byte_tokens_[static_cast<uint8_t>(c)] >= 0;
  if (bytes) {
    for (const char c : piece) out->push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  } else if (pipeline_.has_unk) {
    out->push_back(vocab_.unk);
  }
}

void HfUnigram::Encode(std::string_view word, Scratch* s, std::vector<Token>* out) const {
  if (word.empty()) return;
  FindPath(word, s);
  s->ends.clear();
  for (int64_t end = static_cast<int64_t>(word.size()); end > 0; end = s->starts[static_cast<size_t>(end)]) {
    s->ends.push_back(end);
  }
  int64_t begin = 0, unknown = -1;  // where a run of unknown pieces began
  for (auto it = s->ends.rbegin(); it != s->ends.rend(); ++it) {
    const Token id = s->ids[static_cast<size_t>(*it)];
    if (unknown >= 0 && (id >= 0 || !pipeline_.fuse_unk)) {
      EmitUnknown(word.substr(static_cast<size_t>(unknown), static_cast<size_t>(begin - unknown)), out);
      unknown = -1;
    }
    if (id >= 0) {
      out->push_back(id);
    } else if (unknown < 0) {
      unknown = begin;
    }
    begin = *it;
  }
  if (unknown >= 0) EmitUnknown(word.substr(static_cast<size_t>(unknown)), out);
}

}  // namespace

Result<std::unique_ptr<const HfModel>> MakeHfUnigram(const Vocab& vocab, const HfPipeline& pipeline) {
  auto made = std::make_unique<HfUnigram>(vocab, pipeline);
  BALLAST_RETURN_IF_ERROR(made->Create());
  return std::unique_ptr<const HfModel>(std::move(made));
}

}  // namespace ballast
