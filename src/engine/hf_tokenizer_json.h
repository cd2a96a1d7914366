// tokenizer.json as an HfPipeline and its vocabulary.
//
// The vocabulary and the merges, which are nearly all of the file, are taken as they are read; only the rest
// becomes a tree. Thread safety: pure function. Every refusal is kModel, one line.
#ifndef BALLAST_ENGINE_HF_TOKENIZER_JSON_H_
#define BALLAST_ENGINE_HF_TOKENIZER_JSON_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/hf_pipeline.h"
#include "text/tokenizer.h"

namespace ballast {

struct HfTokenizerJson {
  Vocab vocab;  // tokens, types and unk; the other ids are not in this file
  HfPipeline pipeline;
};

// `name` opens messages.
Result<HfTokenizerJson> ParseHfTokenizerJson(const std::string& name, std::string_view text);

}  // namespace ballast

#endif  // BALLAST_ENGINE_HF_TOKENIZER_JSON_H_
