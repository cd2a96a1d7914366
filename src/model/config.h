// What a model file says about the network: sizes, positions, scalings. Checked before any weight is touched.
#ifndef BALLAST_MODEL_CONFIG_H_
#define BALLAST_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/tensor_file.h"
#include "kernels/rope.h"
#include "model/decoder_plan.h"

namespace ballast {

struct ModelConfig {
  std::string architecture;  // general.architecture: "llama"
  std::string name;          // general.name, else the file's name
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t embed = 0;  // hidden size
  int64_t ffn = 0;    // inner size of the MLP
  int64_t vocab = 0;
  int64_t trained_context = 0;  // tokens
  int local_layers = 0;         // layers trained with a window of their own ...
  int64_t local_window = 0;     // ... of so many tokens
  int nope_layers = 0;          // layers that do not rotate
  int rope_dims = 0;
  double rope_base = 10000;
  RopeForm rope_form = RopeForm::kInterleaved;
  RopeScaling rope_scaling;
};

// Reads and checks the metadata of a file of a family that runs. kModel errors.
struct ModelPlan {
  ModelConfig config;
  DecoderPlan plan;
};
Result<ModelPlan> ReadModelPlan(const TensorFile& file);
Result<ModelConfig> ReadConfig(const TensorFile& file);  // without the plan

// Whether Ballast can stream a model, without loading it.
struct Streamability {
  bool streamable = false;  // the positions obey the law of the cache
  bool loadable = false;    // and this version runs the architecture
  std::string positions;    // "RoPE, full (64 dimensions), base 100000"
  std::string reason;       // one sentence, for people
};
Streamability CheckStreamable(const TensorFile& file);

}  // namespace ballast

#endif  // BALLAST_MODEL_CONFIG_H_
