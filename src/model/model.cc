#include "model/model.h"

#include <utility>

#include "model/config.h"
#include "model/decoder.h"

namespace ballast {

Result<std::unique_ptr<const Model>> Model::Load(const TensorFile& file, const LoadOptions& options,
                                                 ThreadPool& pool) {
  BALLAST_ASSIGN_OR_RETURN(ModelPlan plan, ReadModelPlan(file));
  return Decoder::Create(file, std::move(plan.config), std::move(plan.plan), options, pool);
}

}  // namespace ballast
