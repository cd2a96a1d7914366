#include "engine/hf_json_sink.h"

#include <algorithm>

namespace ballast {

bool HfTokenizerSink::Refuse(const char* where, const char* expected) {
  return Fail(Status::Expected(Code::kModel, name_ + ": " + where, expected, "something else"));
}

bool HfTokenizerSink::Begin(bool object) {
  if (keys_[1] == "vocab") {
    if (has_vocab) return Refuse("model.vocab", "it once");
    has_vocab = true;
    vocab_is_list = !object;
    part_ = object ? Part::kVocabObject : Part::kVocabList;
    return true;
  }
  if (has_merges || object) return Refuse("model.merges", "one list of pairs");
  has_merges = true;
  part_ = Part::kMerges;
  return true;
}

bool HfTokenizerSink::Open(bool object) {
  if (part_ == Part::kTree) {
    const bool ours =
        open_.size() == 2 && keys_[0] == "model" && (keys_[1] == "vocab" || keys_[1] == "merges");
    return ours ? Begin(object) : JsonTree::Open(object);
  }
  if (part_ == Part::kVocabObject || inner_ || object) {
    return part_ == Part::kMerges ? Refuse("model.merges", "pairs of texts")
                                  : Refuse("model.vocab", "texts and their ids, or [text, score]");
  }
  inner_ = true;
  filled_ = 0;
  entry_ = Entry();
  merge_ = HfMerge();
  return true;
}

bool HfTokenizerSink::Close() {
  if (part_ == Part::kTree) return JsonTree::Close();
  if (!inner_) {
    part_ = Part::kTree;
    return true;
  }
  inner_ = false;
  if (filled_ != 2) {
    return part_ == Part::kMerges ? Refuse("model.merges", "pairs of texts")
                                  : Refuse("model.vocab", "entries [text, score]");
  }
  if (part_ == Part::kMerges) {
    merges.push_back(std::move(merge_));
  } else {
    vocab.push_back(std::move(entry_));
  }
  return true;
}

bool HfTokenizerSink::Key(std::string& key) {
  if (part_ == Part::kTree) return JsonTree::Key(key);
  entry_ = Entry();
  entry_.text = std::move(key);
  return true;
}

bool HfTokenizerSink::Value(nlohmann::json value) {
  if (part_ == Part::kTree) return JsonTree::Value(std::move(value));
  if (vocab.size() >= kMaxTokens) return Refuse("model.vocab", "fewer than 4194304 tokens");
  if (part_ == Part::kVocabObject) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxTokens) {
      return Refuse("model.vocab", "ids from 0 to 4194303");
    }
    entry_.id = value.get<int64_t>();
    vocab.push_back(std::move(entry_));
    return true;
  }
  if (part_ == Part::kVocabList && inner_ && filled_ == 1 && value.is_number()) {
    entry_.score = value.get<double>();
    ++filled_;
    return true;
  }
  return part_ == Part::kMerges ? Refuse("model.merges", "pairs of texts")
                                : Refuse("model.vocab", "entries [text, score]");
}

bool HfTokenizerSink::Text(std::string& text) {
  if (part_ == Part::kTree) return JsonTree::Text(text);
  if (part_ == Part::kVocabList && inner_ && filled_ == 0) {
    entry_.text = std::move(text);
    ++filled_;
    return true;
  }
  if (part_ != Part::kMerges) return Refuse("model.vocab", "ids, or entries [text, score]");
  if (merges.size() >= 2 * kMaxTokens) return Refuse("model.merges", "fewer than 8388608");
  if (inner_) {  // ["left", "right"]
    if (filled_ == 0) merge_.left_bytes = static_cast<uint32_t>(text.size());
    if (++filled_ > 2) return Refuse("model.merges", "pairs of texts");
    merge_.text += text;
    return true;
  }
  const size_t space = text.find(' ');  // "left right"
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return Refuse("model.merges", "two tokens with one space between them");
  }
  text.erase(space, 1);
  merges.push_back({std::move(text), static_cast<uint32_t>(space)});
  return true;
}

}  // namespace ballast
