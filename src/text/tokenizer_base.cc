#include "text/tokenizer_base.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "text/utf8_scan.h"

namespace ballast {
namespace {

// Ordinary text is encoded in stretches of at most this, so that the working memory (about 50 bytes per byte)
// and 32-bit offsets stay bounded. Ids differ from an uncut run at most at a cut.
constexpr size_t kMaxStretch = 1 << 20;
constexpr size_t kStretchSearch = 64 << 10;

// Texts that end a turn or a document, as model families spell them.
constexpr std::string_view kTurnEnds[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eot|>",
    "<|eom|>",
    "<|return|>",
    "<|call|>",
    "<|endofturn|>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_sentence|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "_<EOT>",
    "[EOS]",
    "[EOT]",
    "[|endofturn|]",
    "<eos>",
    "</s>",
};

bool IsTurnEnd(std::string_view text) {
  return std::find(std::begin(kTurnEnds), std::end(kTurnEnds), text) != std::end(kTurnEnds);
}

// Spelled so that no training text holds it by chance: safe to treat as control whatever its type.
bool IsUnmistakable(std::string_view text) {
  return text.starts_with("<|") || text == "<end_of_turn>" || text.starts_with("<｜");
}

bool LooksSpecial(std::string_view text) {
  return text.size() >= 3 && (text.front() == '<' || text.front() == '[');
}

}  // namespace

size_t StretchBytes(std::string_view text) {
  if (text.size() <= kMaxStretch) return text.size();
  for (size_t at = kMaxStretch; at > kMaxStretch - kStretchSearch; --at) {
    if (text[at] == ' ' && text[at - 1] != ' ') return at;
  }
  size_t at = kMaxStretch;
  while (at > kMaxStretch - 3 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::string QuoteForMessage(std::string_view text) {
  constexpr size_t kMaxQuoted = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxQuoted)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02X", static_cast<unsigned char>(c));
      out += escaped;
    }
  }
  return out + (text.size() > kMaxQuoted ? "...'" : "'");
}

std::string DescribeToken(const Vocab& vocab, size_t id) {
  return "token " + std::to_string(id) + " " + QuoteForMessage(vocab.tokens[id]);
}

Status TokenizerBase::Init() {
  BALLAST_RETURN_IF_ERROR(CheckSizes());
  BALLAST_RETURN_IF_ERROR(CheckIds());
  BALLAST_RETURN_IF_ERROR(CheckTypes());
  MendSpecialTypes();
  BALLAST_RETURN_IF_ERROR(FixTypes());
  all_.Reset(&vocab_.tokens);
  for (Token id = 0; Valid(id); ++id) all_.Insert(id);
  FindTurnEnds();
  BuildPieces();
  return BuildSpecials();
}

Status TokenizerBase::CheckSizes() const {
  const size_t n = vocab_.tokens.size();
  const std::string one_each = "one for each of the " + std::to_string(n) + " tokens";
  if (n == 0) return Status::Expected(Code::kModel, "vocabulary", "at least one token", "none");
  if (n > static_cast<size_t>(std::numeric_limits<Token>::max())) {
    return Status::Expected(Code::kModel, "vocabulary", "fewer than 2^31 tokens", std::to_string(n));
  }
  if (!vocab_.types.empty() && vocab_.types.size() != n) {
    return Status::Expected(Code::kModel, "token types", one_each, std::to_string(vocab_.types.size()));
  }
  const bool needs_scores = vocab_.kind == Vocab::Kind::kSentencePieceBpe;
  if ((needs_scores || !vocab_.scores.empty()) && vocab_.scores.size() != n) {
    return Status::Expected(Code::kModel, "token scores", one_each, std::to_string(vocab_.scores.size()));
  }
  return Status();
}

Status TokenizerBase::CheckIds() const {
  const std::pair<const char*, Token> ids[] = {{"BOS token id", vocab_.bos},
                                               {"EOS token id", vocab_.eos},
                                               {"EOT token id", vocab_.eot},
                                               {"UNK token id", vocab_.unk},
                                               {"PAD token id", vocab_.pad}};
  for (const auto& [what, id] : ids) {
    if (id == -1 || Valid(id)) continue;
    return Status::Expected(Code::kModel, what, "an id below " + std::to_string(vocab_.tokens.size()),
                            std::to_string(id));
  }
  const std::string none = "none";
  if (vocab_.add_bos && vocab_.bos < 0) {
    return Status::Expected(Code::kModel, "BOS token id", "one, since add_bos_token is set", none);
  }
  if (vocab_.add_eos && vocab_.eos < 0) {
    return Status::Expected(Code::kModel, "EOS token id", "one, since add_eos_token is set", none);
  }
  return Status();
}

Status TokenizerBase::CheckTypes() {
  if (vocab_.types.empty()) vocab_.types.assign(vocab_.tokens.size(), Vocab::kNormal);
  for (size_t id = 0; id < vocab_.types.size(); ++id) {
    int32_t& token_type = vocab_.types[id];
    if (token_type == 0) token_type = Vocab::kNormal;  // GGUF's "undefined"
    if (token_type < Vocab::kNormal || token_type > Vocab::kByte) {
      return Status::Expected(Code::kModel, "type of " + DescribeToken(vocab_, id), "1 to 6",
                              std::to_string(token_type));
    }
  }
  return Status();
}

// Files name <|im_end|> as EOS and type it as ordinary text, or give no types at all.
void TokenizerBase::MendSpecialTypes() {
  const auto mend = [&](Token id, Vocab::TokenType right) {
    if (!Valid(id) || !LooksSpecial(vocab_.tokens[id])) return;
    int32_t& token_type = vocab_.types[id];
    if (token_type == Vocab::kNormal || token_type == Vocab::kUserDefined) token_type = right;
  };
  mend(vocab_.bos, Vocab::kControl);
  mend(vocab_.eos, Vocab::kControl);
  mend(vocab_.eot, Vocab::kControl);
  mend(vocab_.pad, Vocab::kControl);
  mend(vocab_.unk, Vocab::kUnknown);
  for (Token id = 0; Valid(id); ++id) {
    const std::string& text = vocab_.tokens[id];
    if (IsUnmistakable(text) && IsTurnEnd(text)) mend(id, Vocab::kControl);
  }
}

void TokenizerBase::FindTurnEnds() {
  flags_.assign(vocab_.tokens.size(), 0);
  for (Token id = 0; Valid(id); ++id) {
    if (type(id) == Vocab::kControl || type(id) == Vocab::kUnknown) flags_[id] |= kIsControl;
    if (type(id) == Vocab::kUserDefined) flags_[id] |= kIsUserDefined;
  }
  // "</s>" is a turn's end where it is a control token, and an HTML tag in Gemma's vocabulary.
  for (const std::string_view text : kTurnEnds) {
    const Token id = all_.Find(text);
    if (id >= 0 && type(id) == Vocab::kControl) flags_[id] |= kEndsTurn;
  }
  for (const Token id : {vocab_.eos, vocab_.eot}) {
    if (id >= 0) flags_[id] |= kEndsTurn;
  }
  for (const Token id : vocab_.turn_ends) {
    if (Valid(id)) flags_[id] |= kEndsTurn;
  }
}

void TokenizerBase::BuildPieces() {
  size_t bytes = 0;
  for (const std::string& text : vocab_.tokens) bytes += text.size();
  pieces_.reserve(bytes);
  piece_ends_.reserve(vocab_.tokens.size());
  for (Token id = 0; Valid(id); ++id) {
    pieces_ += IsControl(id) ? vocab_.tokens[id] : PieceBytes(id);
    piece_ends_.push_back(pieces_.size());
  }
}

Status TokenizerBase::BuildSpecials() {
  std::vector<SpecialMatcher::Entry> entries;
  for (Token id = 0; Valid(id); ++id) {
    const bool control = IsControl(id);
    if (!control && type(id) != Vocab::kUserDefined) continue;
    const std::string_view text = Piece(id, true);
    if (text.empty()) continue;
    if (text.size() > SpecialMatcher::kMaxBytes) {
      return Status::Expected(Code::kModel, "special " + DescribeToken(vocab_, id),
                              "at most " + std::to_string(SpecialMatcher::kMaxBytes) + " bytes",
                              std::to_string(text.size()));
    }
    entries.push_back({text, id, control});
  }
  specials_.Build(std::move(entries));
  return Status();
}

std::vector<Token> TokenizerBase::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<Token> out;
  const bool bos = options.add_special && vocab_.add_bos;
  if (bos) out.push_back(vocab_.bos);
  bool leading_space = options.leading_space;
  for (size_t at = 0; at < text.size();) {
    const SpecialMatcher::Match match = specials_.Find(text, at, options.parse_special);
    const size_t plain_end = match.bytes > 0 ? match.begin : text.size();
    if (plain_end > at) EncodePlain(text.substr(at, plain_end - at), leading_space, options, &out);
    if (match.bytes == 0 || options.stopped()) break;
    out.push_back(match.id);
    // SentencePiece puts its space before a text, and every control token starts one.
    leading_space = IsControl(match.id);
    at = match.begin + match.bytes;
  }
  if (bos && out.size() > 1 && out[1] == vocab_.bos) out.erase(out.begin());
  if (options.add_special && vocab_.add_eos && (out.empty() || out.back() != vocab_.eos)) {
    out.push_back(vocab_.eos);
  }
  return out;
}

void TokenizerBase::EncodePlain(std::string_view text, bool leading_space, const EncodeOptions& options,
                                std::vector<Token>* out) const {
  while (!text.empty() && !options.stopped()) {
    const size_t bytes = StretchBytes(text);
    EncodeText(text.substr(0, bytes), leading_space, out);
    leading_space = false;
    text.remove_prefix(bytes);
  }
}

std::string_view TokenizerBase::Piece(Token id, bool special) const {
  if (!Valid(id) || (IsControl(id) && !special)) return {};
  const size_t begin = id > 0 ? piece_ends_[id - 1] : 0;
  return std::string_view(pieces_).substr(begin, piece_ends_[id] - begin);
}

// The mirror of Encode: the space it put before a text (at the start and after a control token, but not
// before a user-defined token) is taken away.
std::string TokenizerBase::Decode(const std::vector<Token>& ids, bool special) const {
  std::string out;
  bool strip = space_prefix_;
  for (const Token id : ids) {
    if (!Valid(id)) continue;
    std::string_view piece = Piece(id, special);
    if (IsControl(id)) {
      strip = space_prefix_;
    } else {
      if (strip && (flags_[id] & kIsUserDefined) == 0 && piece.starts_with(' ')) piece.remove_prefix(1);
      strip = false;
    }
    out += piece;
  }
  return out;
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::Create(Vocab vocab) {
  return vocab.kind == Vocab::Kind::kByteLevelBpe ? MakeByteLevelBpe(std::move(vocab))
                                                  : MakeSentencePieceBpe(std::move(vocab));
}

}  // namespace ballast
