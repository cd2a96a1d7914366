// Inside the reading of tokenizer.json: its normaliser, pre-tokenizer, post-processor and decoder. Not for
// other files.
#ifndef BALLAST_ENGINE_HF_TOKENIZER_STEPS_H_
#define BALLAST_ENGINE_HF_TOKENIZER_STEPS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/hf_pipeline.h"

namespace ballast {

// Each takes the member of that name, null or not, and fills `pipeline`. Sequences recurse as deep as
// ScanJson allows.
class HfStepsReader {
 public:
  HfStepsReader(const std::string& name, HfPipeline* pipeline) : name_(name), out_(*pipeline) {}

  Status Normalizer(const nlohmann::json& json) const;
  Status PreTokenizer(const nlohmann::json& json) const;
  Status Decoder(const nlohmann::json& json) const;
  Status PostProcessor(const nlohmann::json& json, size_t tokens) const;

 private:
  Status Refuse(const std::string& where, std::string_view expected, std::string_view found) const;
  // The "type" of an object; "" for null.
  Status Type(const char* what, const nlohmann::json& json, std::string* type) const;
  template <typename T>
  Status Read(const nlohmann::json& object, const char* key, T* out) const;
  Status Pattern(const nlohmann::json& object, HfPattern* out) const;
  Status Behavior(const nlohmann::json& object, HfPreTokenizer* out) const;
  Status Metaspace(const nlohmann::json& object, HfPreTokenizer* out) const;
  Status Template(const nlohmann::json& object, size_t tokens) const;
  Status Around(const nlohmann::json& object, size_t tokens) const;
  template <typename Each>
  Status ForEach(const nlohmann::json& object, const char* key, const Each& each) const;

  const std::string& name_;
  HfPipeline& out_;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_HF_TOKENIZER_STEPS_H_
