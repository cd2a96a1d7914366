#include "support/tiny_llama.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/temp_path.h"

namespace ballast::testing {

void TinyLlama::Add(const std::string& name, int64_t rows, int64_t cols, float scale, float offset) {
  std::vector<float> data =
      TestFloats(rows * cols, spec_.seed * 1000 + static_cast<uint32_t>(order_.size()), scale);
  for (float& x : data) x += offset;
  tensors_[name] = std::move(data);
  dims_[name] = rows == 1 ? std::vector<int64_t>{cols} : std::vector<int64_t>{cols, rows};
  order_.push_back(name);
}

TinyLlama::TinyLlama(const TinySpec& spec) : spec_(spec) {
  const int q = spec.heads * spec.head_dim;
  const int k = spec.kv_heads * spec.head_dim;
  // Scales chosen so that attention is far from uniform, yet float rounding is not blown up by a chaotic
  // network.
  const float in = 2.0f / std::sqrt(static_cast<float>(spec.embed));
  Add("token_embd.weight", spec.vocab, spec.embed, 1.0f);
  for (int i = 0; i < spec.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    Add(blk + "attn_norm.weight", 1, spec.embed, 0.3f, 1.0f);
    Add(blk + "attn_q.weight", q, spec.embed, in);
    Add(blk + "attn_k.weight", k, spec.embed, in);
    Add(blk + "attn_v.weight", k, spec.embed, in);
    if (spec.biases) {
      Add(blk + "attn_q.bias", 1, q, 0.5f);
      Add(blk + "attn_k.bias", 1, k, 0.5f);
      Add(blk + "attn_v.bias", 1, k, 0.5f);
    }
    Add(blk + "attn_output.weight", spec.embed, q, in);
    Add(blk + "ffn_norm.weight", 1, spec.embed, 0.3f, 1.0f);
    Add(blk + "ffn_gate.weight", spec.ffn, spec.embed, in);
    Add(blk + "ffn_up.weight", spec.ffn, spec.embed, in);
    Add(blk + "ffn_down.weight", spec.embed, spec.ffn, in);
  }
  Add("output_norm.weight", 1, spec.embed, 0.3f, 1.0f);
  if (spec.separate_output) Add("output.weight", spec.vocab, spec.embed, 1.0f);
  if (spec.rope_factors) Add("rope_freqs.weight", 1, spec.rope_dims / 2, 0.9f, 2.0f);
}

GgufBuilder TinyLlama::Builder() const {
  GgufBuilder b;
  const std::string a = spec_.architecture + ".";
  b.Set("general.architecture", spec_.architecture);
  b.Set("general.name", std::string("tiny test network"));
  b.Set(a + "block_count", static_cast<uint32_t>(spec_.layers));
  b.Set(a + "context_length", static_cast<uint32_t>(spec_.trained_context));
  b.Set(a + "embedding_length", static_cast<uint32_t>(spec_.embed));
  b.Set(a + "feed_forward_length", static_cast<uint32_t>(spec_.ffn));
  b.Set(a + "attention.head_count", static_cast<uint32_t>(spec_.heads));
  b.Set(a + "attention.head_count_kv", static_cast<uint32_t>(spec_.kv_heads));
  b.Set(a + "attention.key_length", static_cast<uint32_t>(spec_.head_dim));
  b.Set(a + "attention.value_length", static_cast<uint32_t>(spec_.head_dim));
  b.Set(a + "attention.layer_norm_rms_epsilon", 1e-5f);
  b.Set(a + "rope.dimension_count", static_cast<uint32_t>(spec_.rope_dims));
  b.Set(a + "rope.freq_base", static_cast<float>(spec_.rope_base));
  if (spec_.linear_factor > 1) {
    b.Set(a + "rope.scaling.type", std::string("linear"));
    b.Set(a + "rope.scaling.factor", static_cast<float>(spec_.linear_factor));
  }
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types = {3, 3, 3};
  for (int i = 3; i < spec_.vocab; ++i) {
    tokens.push_back(std::string(1, static_cast<char>('!' + (i - 3) % 94)) +
                     (i - 3 >= 94 ? std::to_string(i) : ""));
    types.push_back(1);
  }
  b.Set("tokenizer.ggml.model", std::string("gpt2"));
  b.Set("tokenizer.ggml.pre", std::string("gpt-2"));
  b.Set("tokenizer.ggml.tokens", tokens);
  b.Set("tokenizer.ggml.token_type", types);
  b.Set("tokenizer.ggml.merges", std::vector<std::string>{});
  b.Set("tokenizer.ggml.eos_token_id", uint32_t{2});
  for (const std::string& name : order_) {
    const bool matrix = dims_.at(name).size() == 2;
    b.AddTensor(name, matrix ? spec_.weights : DType::kF32, dims_.at(name), tensors_.at(name));
  }
  return b;
}

std::string TinyLlama::WriteTemp(const std::string& name) const {
  const std::string path = TempPath(name + ".gguf");
  EXPECT_TRUE(Builder().Write(path)) << path;
  return path;
}

Definition::Definition(const TinyLlama& model, int64_t pinned, int64_t window)
    : model_(model), pinned_(pinned), window_(window) {
  sink_mass_.resize(static_cast<size_t>(model.spec().layers) * model.spec().heads);
}

std::vector<double> Definition::MatVec(const std::string& name, const std::vector<double>& x) const {
  const std::vector<float>& w = model_.Tensor(name);
  const size_t cols = x.size();
  std::vector<double> y(w.size() / cols);
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t c = 0; c < cols; ++c) y[r] += static_cast<double>(w[r * cols + c]) * x[c];
  }
  return y;
}

std::vector<double> Definition::Norm(const std::string& name, const std::vector<double>& x) const {
  const std::vector<float>& w = model_.Tensor(name);
  double sum = 0;
  for (double v : x) sum += v * v;
  const double inv = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(1e-5f));
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inv * static_cast<double>(w[i]);
  return y;
}

void Definition::AddBias(const std::string& name, std::vector<double>& x) const {
  if (!model_.spec().biases) return;
  const std::vector<float>& b = model_.Tensor(name);
  for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<double>(b[i]);
}

std::vector<double> Definition::Rotated(const std::vector<double>& x, int heads, int64_t index) const {
  const TinySpec& s = model_.spec();
  std::vector<double> y = x;
  const int half = s.rope_dims / 2;
  for (int i = 0; i < half; ++i) {
    double freq = std::pow(static_cast<double>(static_cast<float>(s.rope_base)), -2.0 * i / s.rope_dims) /
                  s.linear_factor;
    if (s.rope_factors)
      freq /= static_cast<double>(model_.Tensor("rope_freqs.weight")[static_cast<size_t>(i)]);
    const double c = std::cos(static_cast<double>(index) * freq);
    const double n = std::sin(static_cast<double>(index) * freq);
    for (int h = 0; h < heads; ++h) {
      const int base = h * s.head_dim;
      const size_t a = static_cast<size_t>(s.architecture == "llama" ? base + 2 * i : base + i);
      const size_t b = static_cast<size_t>(s.architecture == "llama" ? base + 2 * i + 1 : base + i + half);
      y[a] = x[a] * c - x[b] * n;
      y[b] = x[a] * n + x[b] * c;
    }
  }
  return y;
}

std::vector<double> Definition::Attend(int layer, const std::vector<double>& q) {
  const TinySpec& s = model_.spec();
  const size_t l = static_cast<size_t>(layer);
  const int64_t last = static_cast<int64_t>(cache_.size()) - 1;
  const std::vector<double> query = Rotated(q, s.heads, last);
  const int64_t watched =
      pinned_ > 0 ? pinned_ : 4;  // without pinned tokens, the first 4 while they are kept
  std::vector<double> out(q.size());
  std::vector<std::vector<double>> keys;
  for (int64_t j = 0; j <= last; ++j)
    keys.push_back(Rotated(cache_[static_cast<size_t>(j)].k[l], s.kv_heads, j));
  for (int h = 0; h < s.heads; ++h) {
    const int kv = h / (s.heads / s.kv_heads);
    std::vector<double> p(cache_.size());
    double top = -1e300;
    for (size_t j = 0; j < p.size(); ++j) {
      for (int d = 0; d < s.head_dim; ++d) {
        p[j] += query[static_cast<size_t>(h * s.head_dim + d)] *
                keys[j][static_cast<size_t>(kv * s.head_dim + d)];
      }
      p[j] /= std::sqrt(static_cast<double>(s.head_dim));
      top = std::max(top, p[j]);
    }
    double total = 0, pinned = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      p[j] = std::exp(p[j] - top);
      total += p[j];
      if (cache_[j].position < watched) pinned += p[j];
    }
    for (size_t j = 0; j < p.size(); ++j) {
      for (int d = 0; d < s.head_dim; ++d) {
        out[static_cast<size_t>(h * s.head_dim + d)] +=
            p[j] / total * cache_[j].v[l][static_cast<size_t>(kv * s.head_dim + d)];
      }
    }
    sink_mass_[l * static_cast<size_t>(s.heads) + static_cast<size_t>(h)] = pinned / total;
  }
  return out;
}

std::vector<double> Definition::Feed(int32_t token) {
  const TinySpec& s = model_.spec();
  Entry entry{next_++, {}, {}};
  entry.k.resize(static_cast<size_t>(s.layers));
  entry.v.resize(static_cast<size_t>(s.layers));
  cache_.push_back(entry);
  if (static_cast<int64_t>(cache_.size()) > pinned_ + window_) cache_.erase(cache_.begin() + pinned_);
  const std::vector<float>& table = model_.Tensor("token_embd.weight");
  std::vector<double> x(static_cast<size_t>(s.embed));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<double>(table[static_cast<size_t>(token * s.embed) + i]);
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    const std::vector<double> n = Norm(blk + "attn_norm.weight", x);
    std::vector<double> q = MatVec(blk + "attn_q.weight", n);
    std::vector<double> k = MatVec(blk + "attn_k.weight", n);
    std::vector<double> v = MatVec(blk + "attn_v.weight", n);
    AddBias(blk + "attn_q.bias", q);
    AddBias(blk + "attn_k.bias", k);
    AddBias(blk + "attn_v.bias", v);
    cache_.back().k[static_cast<size_t>(layer)] = k;
    cache_.back().v[static_cast<size_t>(layer)] = v;
    const std::vector<double> o = MatVec(blk + "attn_output.weight", Attend(layer, q));
    for (size_t i = 0; i < x.size(); ++i) x[i] += o[i];
    const std::vector<double> m = Norm(blk + "ffn_norm.weight", x);
    std::vector<double> gate = MatVec(blk + "ffn_gate.weight", m);
    const std::vector<double> up = MatVec(blk + "ffn_up.weight", m);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const std::vector<double> down = MatVec(blk + "ffn_down.weight", gate);
    for (size_t i = 0; i < x.size(); ++i) x[i] += down[i];
  }
  return MatVec(s.separate_output ? "output.weight" : "token_embd.weight", Norm("output_norm.weight", x));
}

void Definition::DropBefore(int64_t x) {
  std::erase_if(cache_, [&](const Entry& e) { return e.position >= pinned_ && e.position < x; });
}

std::vector<int32_t> RandomTokens(int64_t n, int vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab));
  return tokens;
}

}  // namespace ballast::testing
