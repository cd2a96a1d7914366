// The tokenizer of a Hugging Face folder: tokenizer.json, and what its neighbours say of special tokens.
// Thread safety: pure functions. Errors are kModel and name file and field.
#ifndef BALLAST_ENGINE_LOAD_HF_TOKENIZER_H_
#define BALLAST_ENGINE_LOAD_HF_TOKENIZER_H_

#include <memory>

#include "base/status.h"
#include "formats/tensor_file.h"
#include "text/tokenizer.h"

namespace ballast {

// True when `file` is a folder, whose tokenizer is in files of its own.
bool HasHfTokenizer(const TensorFile& file);
Result<std::unique_ptr<const Tokenizer>> LoadHfTokenizer(const TensorFile& file);

}  // namespace ballast

#endif  // BALLAST_ENGINE_LOAD_HF_TOKENIZER_H_
