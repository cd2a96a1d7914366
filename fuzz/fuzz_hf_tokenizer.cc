// Any bytes at all as a tokenizer.json, and any text through what comes of it: refused with one clear line,
// or a tokenizer that never crashes and from whose plain text no control token comes. The input is the JSON,
// a zero byte, and the text.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/hf_tokenizer_json.h"
#include "text/hf_pipeline.h"
#include "text/tokenizer.h"

namespace {

using ballast::Status;
using ballast::Token;

void CheckRefusal(const Status& status) {
  BALLAST_CHECK(status.code() == ballast::Code::kModel);
  BALLAST_CHECK(status.message().size() < 1000);
  for (const char c : status.message()) BALLAST_CHECK(c >= 0x20 && c <= 0x7e);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view json = input.substr(0, input.find('\0'));
  const std::string_view text = input.substr(std::min(json.size() + 1, input.size()));
  auto read = ballast::ParseHfTokenizerJson("fuzz", json);
  if (!read.ok()) {
    CheckRefusal(read.status());
    return 0;
  }
  const auto made = ballast::MakeHfTokenizer(std::move(read->vocab), std::move(read->pipeline));
  if (!made.ok()) {
    CheckRefusal(made.status());
    return 0;
  }
  const ballast::Tokenizer& tokenizer = **made;
  const std::vector<Token> ids = tokenizer.Encode(text, {.add_special = true});
  for (const Token id : ids) BALLAST_CHECK(id >= 0 && id < tokenizer.size());
  tokenizer.Decode(ids);
  for (const Token id : tokenizer.Encode(text, {.add_special = false, .parse_special = false})) {
    BALLAST_CHECK(!tokenizer.IsControl(id) || id == tokenizer.vocab().unk);
  }
  return 0;
}
