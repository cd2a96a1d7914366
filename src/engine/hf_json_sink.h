// Inside the reading of tokenizer.json: the sink that keeps vocabulary and merges out of the tree. Not for
// other files.
#ifndef BALLAST_ENGINE_HF_JSON_SINK_H_
#define BALLAST_ENGINE_HF_JSON_SINK_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/json.h"
#include "text/hf_pipeline.h"

namespace ballast {

class HfTokenizerSink : public JsonTree {
 public:
  static constexpr size_t kMaxTokens = 1 << 22;

  explicit HfTokenizerSink(std::string name) : JsonTree(std::move(name)) {}
  bool Open(bool object) override;
  bool Close() override;
  bool Key(std::string& key) override;
  bool Value(nlohmann::json value) override;
  bool Text(std::string& text) override;

  struct Entry {
    std::string text;
    int64_t id = 0;    // {"text": id}
    double score = 0;  // [["text", score]]
  };
  std::vector<Entry> vocab;
  bool has_vocab = false;
  bool vocab_is_list = false;
  std::vector<HfMerge> merges;
  bool has_merges = false;

 private:
  enum class Part : uint8_t { kTree, kVocabObject, kVocabList, kMerges };

  bool Begin(bool object);
  bool Refuse(const char* where, const char* expected);

  Part part_ = Part::kTree;
  bool inner_ = false;  // inside one entry of a list
  int filled_ = 0;      // of that entry
  Entry entry_;
  HfMerge merge_;
};

}  // namespace ballast

#endif  // BALLAST_ENGINE_HF_JSON_SINK_H_
