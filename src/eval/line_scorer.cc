#include "eval/line_scorer.h"

#include <algorithm>
#include <numbers>
#include <string>
#include <utility>

#include "eval/log_template.h"
#include "eval/nll_stats.h"
#include "kernels/ops.h"

namespace ballast {
namespace {

double Bits(std::span<const float> logits, Token next) {
  const double nll = static_cast<double>(LogSumExp(logits.data(), static_cast<int64_t>(logits.size()))) -
                     static_cast<double>(logits[static_cast<size_t>(next)]);
  return nll / std::numbers::ln2;
}

// Hands bits to lines in the order in which their tokens come.
class Tally {
 public:
  explicit Tally(std::span<const EncodedLine> lines) : lines_(lines), out_(lines.size()) {}
  void Add(double bits) {
    while (out_[line_].tokens == static_cast<int64_t>(lines_[line_].ids.size())) ++line_;
    LineSurprise& s = out_[line_];
    if (lines_[line_].masked[static_cast<size_t>(s.tokens)] == 0) {
      s.text_bits += bits;
      ++s.text_tokens;
    }
    s.bits += bits;
    ++s.tokens;
  }
  std::vector<LineSurprise> Take() { return std::move(out_); }

 private:
  std::span<const EncodedLine> lines_;
  std::vector<LineSurprise> out_;
  size_t line_ = 0;
};

}  // namespace

EncodedLine LineScorer::Encode(std::string_view line) const {
  Tokenizer::EncodeOptions options;
  options.parse_special = false;
  options.leading_space = false;
  const std::string text = std::string(line) + "\n";
  EncodedLine encoded{tokenizer_.Encode(text, options), {}};
  const std::vector<uint8_t> bytes = MaskedBytes(text);
  size_t at = 0;
  for (const Token id : encoded.ids) {
    // A byte that the vocabulary cannot spell has another token: what follows it counts as text.
    const std::string_view piece = tokenizer_.Piece(id);
    const bool known = !piece.empty() && text.compare(at, piece.size(), piece) == 0;
    if (!known) at = text.size();
    const auto end = std::min(at + piece.size(), text.size());
    encoded.masked.push_back(known && std::find(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                                bytes.begin() + static_cast<std::ptrdiff_t>(end),
                                                1) != bytes.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
  }
  return encoded;
}

// The first token of a stream cannot be predicted: one that belongs to no line goes before.
Status LineScorer::Begin() {
  if (stream_.position() > 0) return Status();
  std::vector<Token> begin;
  const Vocab& vocab = tokenizer_.vocab();
  if (vocab.add_bos && vocab.bos >= 0) begin.push_back(vocab.bos);
  for (const Token id : Encode("").ids) begin.push_back(id);
  return stream_.Append(begin);
}

Result<std::vector<LineSurprise>> LineScorer::Score(std::span<const EncodedLine> lines) {
  if (lines.empty()) return std::vector<LineSurprise>();
  BALLAST_RETURN_IF_ERROR(Begin());
  std::vector<Token> all;
  for (const EncodedLine& line : lines) all.insert(all.end(), line.ids.begin(), line.ids.end());
  Tally tally(lines);
  if (all.empty()) return tally.Take();
  // A vocabulary that cannot even spell a line end has nothing to predict the first token from.
  const std::span<const float> before = stream_.logits();
  const bool known = all.front() >= 0 && static_cast<size_t>(all.front()) < before.size();
  tally.Add(known ? Bits(before, all.front()) : 0);
  const int64_t first = stream_.position();
  Stream::AppendOptions append;
  append.all_logits = all.size() > 1;
  append.on_row = [&](const Stream::Row& row) {
    const auto next = static_cast<size_t>(row.position - first + 1);
    if (next < all.size()) tally.Add(Bits(row.logits, all[next]));
  };
  BALLAST_RETURN_IF_ERROR(stream_.Append(all, append));
  std::vector<LineSurprise> surprises = tally.Take();
  for (const LineSurprise& s : surprises) BALLAST_RETURN_IF_ERROR(CheckFinite("surprise of a line", s.bits));
  return surprises;
}

}  // namespace ballast
