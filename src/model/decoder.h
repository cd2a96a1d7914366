// Decoder: the transformer decoder that every family composes from the same pieces (decoder_plan.h).
#ifndef BALLAST_MODEL_DECODER_H_
#define BALLAST_MODEL_DECODER_H_

#include <memory>
#include <string>
#include <vector>

#include "model/decoder_plan.h"
#include "model/model.h"
#include "model/weights.h"

namespace ballast {

struct Norm {
  std::vector<float> weight;  // (n); empty: the family has no such norm, x stays as it is
  std::vector<float> bias;    // (n) or empty
  bool present() const { return !weight.empty(); }
};

struct DecoderLayer {
  Norm attn_norm, attn_norm_2;   // (embed); attn_norm_2: of the attention's own input, where the two differ
  Norm q_norm, k_norm;           // (head_dim), (heads, head_dim), or all rows together
  Norm post_attn_norm;           // (embed)
  Norm ffn_norm, post_ffn_norm;  // (embed)
  Weights q, k, v, o;            // (heads * head_dim | kv_heads * head_dim, embed); o: transposed shape
  std::vector<float> q_bias, k_bias, v_bias, o_bias;  // empty in most files
  Weights gate, up, down;  // (ffn, embed), (ffn, embed), (embed, ffn); no gate unless gated
  std::vector<float> gate_bias, up_bias, down_bias;
};

class Decoder final : public Model {
 public:
  // Loads the weights that `plan` asks for from tensors under their GGUF names. kModel errors; a tensor of a
  // layer that the plan has no use for is one, since leaving it out would change the model in silence.
  static Result<std::unique_ptr<const Model>> Create(const TensorFile& file, ModelConfig config,
                                                     DecoderPlan plan, const LoadOptions& options,
                                                     ThreadPool& pool);

  std::vector<KvCache::LayerShape> CacheShape() const override;
  void Forward(std::span<const Segment> segments, Workspace& ws, ThreadPool& pool) const override;
  void Logits(Workspace& ws, std::span<const int64_t> rows, float* logits, ThreadPool& pool) const override;

 private:
  Status Load(const TensorFile& file, const LoadOptions& options, ThreadPool& pool);
  void Reserve(Workspace& ws) const;
  void Embed(std::span<const Segment> segments, Workspace& ws) const;
  void AttentionBlock(int index, std::span<const Segment> segments, bool same_positions, Workspace& ws,
                      ThreadPool& pool) const;
  void Project(const DecoderLayer& layer, const float* x, int64_t rows, Workspace& ws,
               ThreadPool& pool) const;
  void FinishQueriesAndKeys(int index, bool same_positions, Workspace& ws, ThreadPool& pool) const;
  // Adds the attention's and the MLP's share to the first `rows` rows of the residual stream.
  void Residuals(const DecoderLayer& layer, int64_t rows, Workspace& ws, ThreadPool& pool) const;
  void Mlp(const DecoderLayer& layer, const float* x, int64_t rows, Workspace& ws, ThreadPool& pool) const;
  void Apply(const Norm& norm, const float* x, int64_t rows, float* out, ThreadPool& pool) const;
  void AddResidual(const Norm& post, int64_t rows, Workspace& ws, ThreadPool& pool) const;

  DecoderPlan plan_;
  std::vector<RopeTable> ropes_;
  MatrixView embedding_;              // (vocab, embed), in the file
  bool embedding_is_output_ = false;  // its rows are read from output_, the file's are not needed
  Weights output_;                    // (vocab, embed): its own, or the embedding again
  std::vector<float> output_bias_;    // (vocab) or empty
  Norm output_norm_;                  // (embed)
  std::vector<DecoderLayer> layers_;
};

}  // namespace ballast

#endif  // BALLAST_MODEL_DECODER_H_
