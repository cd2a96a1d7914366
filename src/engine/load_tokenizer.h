// From a model file's metadata to a Tokenizer, with every field checked (kModel errors).
#ifndef BALLAST_ENGINE_LOAD_TOKENIZER_H_
#define BALLAST_ENGINE_LOAD_TOKENIZER_H_

#include <memory>

#include "base/status.h"
#include "formats/tensor_file.h"
#include "text/tokenizer.h"

namespace ballast {

Result<std::unique_ptr<const Tokenizer>> LoadTokenizer(const TensorFile& file);

}  // namespace ballast

#endif  // BALLAST_ENGINE_LOAD_TOKENIZER_H_
