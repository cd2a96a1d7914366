// The Llama family: Llama 1/2/3, SmolLM2, Mistral, TinyLlama and kin ("llama"), Qwen2/2.5 ("qwen2").
#ifndef BALLAST_MODEL_LLAMA_H_
#define BALLAST_MODEL_LLAMA_H_

#include <memory>

#include "model/model.h"

namespace ballast {

Result<std::unique_ptr<const Model>> LoadLlama(const TensorFile& file, ModelConfig config,
                                               const LoadOptions& options, ThreadPool& pool);

}  // namespace ballast

#endif  // BALLAST_MODEL_LLAMA_H_
