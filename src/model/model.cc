#include "model/model.h"

#include <utility>

#include "model/llama.h"

namespace ballast {

Result<std::unique_ptr<const Model>> Model::Load(const TensorFile& file, const LoadOptions& options,
                                                 ThreadPool& pool) {
  BALLAST_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(file));
  return LoadLlama(file, std::move(config), options, pool);
}

}  // namespace ballast
