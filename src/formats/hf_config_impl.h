// Inside the reading of config.json: what its two halves share. Not for other files.
#ifndef BALLAST_FORMATS_HF_CONFIG_IMPL_H_
#define BALLAST_FORMATS_HF_CONFIG_IMPL_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/hf_config.h"
#include "formats/json.h"

namespace ballast {

// A value made short for a message.
std::string ShownJson(const nlohmann::json& value);

// Turns one config object into metadata. Lives for one call of ReadHfConfig.
class ConfigTranslator {
  using Json = nlohmann::json;
  using F = HfFamily;

 public:
  ConfigTranslator(const std::string& name, const Json& json, const HfFamily& family, HfConfig* out)
      : name_(name),
        json_(json),
        family_(family),
        out_(*out),
        prefix_(std::string(family.architecture) + ".") {}

  Status Run() {
    for (const HfKey& key : HfCommonKeys(family_)) BALLAST_RETURN_IF_ERROR(Take(key));
    for (const HfKey& key : family_.keys) BALLAST_RETURN_IF_ERROR(Take(key));
    BALLAST_RETURN_IF_ERROR(TakeLayers());
    BALLAST_RETURN_IF_ERROR(TakeFamily());
    BALLAST_RETURN_IF_ERROR(TakeWindow());
    if (!family_.Is(F::kNoRope) && !alibi_) BALLAST_RETURN_IF_ERROR(TakeRope());
    BALLAST_RETURN_IF_ERROR(TakeNope());
    BALLAST_ASSIGN_OR_RETURN(out_.tied, Bool(json_, "tie_word_embeddings"));
    if (out_.tied.has_value()) Add("ballast.tie_word_embeddings", *out_.tied);
    if (family_.Is(F::kHalfSplitRope) && !alibi_) Add("ballast.rope.half_split", true);
    if (family_.Is(F::kNormPlusOne)) Add("ballast.norm.plus_one", true);
    if (family_.Is(F::kQkvPerHead) || per_head_) Add("ballast.qkv.per_head", true);
    return Status();
  }

 private:
  Status Refuse(std::string_view key, std::string_view expected, std::string_view found) const {
    return Status::Expected(Code::kModel, name_ + ": " + std::string(key), expected, found);
  }
  void Add(std::string_view key, MetaValue value) {
    const bool own = key.starts_with("ballast.");
    out_.metadata.push_back({own ? std::string(key) : prefix_ + std::string(key), std::move(value)});
  }
  std::optional<double> Added(std::string_view key) const {
    for (const TensorFile::Meta& meta : out_.metadata) {
      if (meta.key != prefix_ + std::string(key)) continue;
      if (const int64_t* whole = std::get_if<int64_t>(&meta.value)) return static_cast<double>(*whole);
      if (const double* number = std::get_if<double>(&meta.value)) return *number;
    }
    return std::nullopt;
  }

  // "a.b" goes into the object a. null when absent.
  static const Json* Find(const Json& object, std::string_view path) {
    const Json* at = &object;
    while (true) {
      const size_t dot = path.find('.');
      if (!at->is_object()) return nullptr;
      const auto found = at->find(std::string(path.substr(0, dot)));
      if (found == at->end()) return nullptr;
      at = &*found;
      if (dot == std::string_view::npos) return at;
      path.remove_prefix(dot + 1);
    }
  }

  // One value of a wanted type; absent or null: nothing.
  Result<std::optional<int64_t>> Int(const Json& object, std::string_view key) const {
    const Json* v = Find(object, key);
    if (v == nullptr || v->is_null()) return std::optional<int64_t>();
    const bool whole =
        v->is_number_integer() || (v->is_number_float() && std::trunc(v->get<double>()) == v->get<double>());
    if (!whole || std::abs(v->get<double>()) > 1e15) return Refuse(key, "a whole number", ShownJson(*v));
    return std::optional<int64_t>(static_cast<int64_t>(v->get<double>()));
  }
  Result<std::optional<double>> Number(const Json& object, std::string_view key) const {
    const Json* v = Find(object, key);
    if (v == nullptr || v->is_null()) return std::optional<double>();
    if (!v->is_number()) return Refuse(key, "a number", ShownJson(*v));
    return std::optional<double>(v->get<double>());
  }
  Result<std::optional<bool>> Bool(const Json& object, std::string_view key) const {
    const Json* v = Find(object, key);
    if (v == nullptr || v->is_null()) return std::optional<bool>();
    if (!v->is_boolean()) return Refuse(key, "true or false", ShownJson(*v));
    return std::optional<bool>(v->get<bool>());
  }
  Result<std::optional<std::string>> Text(const Json& object, std::string_view key) const {
    const Json* v = Find(object, key);
    if (v == nullptr || v->is_null()) return std::optional<std::string>();
    if (!v->is_string()) return Refuse(key, "a text", ShownJson(*v));
    return std::optional<std::string>(v->get<std::string>());
  }

  Status Take(const HfKey& key);
  Status TakeLayers();
  Status TakeFamily();
  Status TakeFalcon();
  Status TakeMpt();
  Status TakeWindow();
  Status TakeRope();
  Status TakeScaling(const Json& rope);
  Status TakeYarn(const Json& rope, double factor);
  Status TakeLongRope(const Json& rope);
  Status TakeFactors(const Json& rope, std::string_view key, std::string_view tensor);
  Status TakeNope();
  Result<std::vector<bool>> LocalLayers() const;
  double HeadDim() const {
    if (const auto given = Added("attention.key_length")) return *given;
    const double heads = Added("attention.head_count").value_or(0);
    return heads > 0 ? std::floor(Added("embedding_length").value_or(0) / heads) : 0;
  }

  const std::string& name_;
  const Json& json_;
  const HfFamily& family_;
  HfConfig& out_;
  std::string prefix_;
  bool alibi_ = false;
  bool per_head_ = false;
  std::vector<bool> local_;  // by layer; empty: the config makes no difference between them
};

}  // namespace ballast

#endif  // BALLAST_FORMATS_HF_CONFIG_IMPL_H_
