// A tokenizer made from hostile vocabulary and fed hostile text: never a crash, text always comes back, and
// plain text never turns into a control token.
//
// Input: one byte of options (bit 0: the kind; bit 1: space prefix; bits 2 and up: the pre-tokenizer), then
// lines until an empty one, then the text. A line is a digit, the token's type, and its text; or "m" and a
// merge.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace {

using ballast::Vocab;

void AddToken(Vocab* vocab, std::string text, int32_t type) {
  vocab->scores.push_back(-static_cast<float>(vocab->tokens.size() % 7));
  vocab->tokens.push_back(std::move(text));
  vocab->types.push_back(type);
}

// Every byte can be spelled, so that any text must come back.
void AddBytes(Vocab* vocab) {
  const bool byte_level = vocab->kind == Vocab::Kind::kByteLevelBpe;
  const char* hex = "0123456789ABCDEF";
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    if (!byte_level) {
      AddToken(vocab, std::string("<0x") + hex[b / 16] + hex[b % 16] + ">", Vocab::kByte);
      continue;
    }
    const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    const int c = prints ? b : next++;
    std::string text;
    if (c >= 0x80) text += static_cast<char>(0xC0 | (c >> 6));
    text += static_cast<char>(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
    AddToken(vocab, std::move(text), Vocab::kNormal);
  }
}

// Takes the vocabulary's lines off the front of `input`.
Vocab ReadVocab(std::string_view* input) {
  const std::vector<std::string> pres = ballast::KnownPreTokenizers();
  const uint8_t options = static_cast<uint8_t>(input->front());
  input->remove_prefix(1);
  Vocab vocab;
  vocab.kind = (options & 1) != 0 ? Vocab::Kind::kSentencePieceBpe : Vocab::Kind::kByteLevelBpe;
  vocab.add_space_prefix = (options & 2) != 0;
  vocab.pre = pres[(options >> 2) % pres.size()];
  AddBytes(&vocab);
  while (!input->empty()) {
    const std::string_view line = input->substr(0, input->find('\n'));
    input->remove_prefix(std::min(line.size() + 1, input->size()));
    if (line.empty()) break;
    if (line[0] == 'm') {
      vocab.merges.emplace_back(line.substr(1));
    } else {
      AddToken(&vocab, std::string(line.substr(1)), line[0] - '0');
    }
  }
  return vocab;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto made = ballast::Tokenizer::Create(ReadVocab(&text));
  if (!made.ok()) {
    BALLAST_CHECK(made.status().code() == ballast::Code::kModel);
    BALLAST_CHECK(made.status().message().find('\n') == std::string::npos);
    return 0;
  }
  const ballast::Tokenizer& tokenizer = **made;
  BALLAST_CHECK(tokenizer.Decode(tokenizer.Encode(text)) == text);
  const std::vector<ballast::Token> plain =
      tokenizer.Encode(text, {.add_special = false, .parse_special = false});
  BALLAST_CHECK(tokenizer.Decode(plain) == text);
  for (const ballast::Token id : plain) BALLAST_CHECK(!tokenizer.IsControl(id));
  return 0;
}
