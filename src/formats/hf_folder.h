// A Hugging Face folder as one TensorFile.
//
// Read are config.json, the weights (model.safetensors, or the shards that model.safetensors.index.json
// names), and, as they are, the tokenizer's files. Pickled weights are never read: they can run code.
// Invariants: 1. only plain names inside the folder are opened, whatever an index says; 2. index and shards
// must agree, tensor by tensor; 3. every tensor of the weights has its GGUF name, or the folder is refused.
// Thread safety: none needed; one reader reads one folder.
#ifndef BALLAST_FORMATS_HF_FOLDER_H_
#define BALLAST_FORMATS_HF_FOLDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/hf_config.h"
#include "formats/safetensors.h"
#include "formats/tensor_file.h"

namespace ballast {

class HfFolderReader {
 public:
  using Files = std::map<std::string, std::vector<uint8_t>>;
  // Fills `file`, which has its path, from that folder; or from `files`, whose bytes it takes.
  static Status Read(TensorFile* file, Files* files);

 private:
  HfFolderReader(TensorFile* file, Files* files) : file_(*file), files_(files) {}

  Status ReadAll();
  Status ReadWeights();
  Status ReadIndex(std::map<std::string, std::string>* weight_map);
  Status ReadShard(const std::string& name, const std::map<std::string, std::string>* weight_map,
                   size_t* found);
  Status AddEntry(const std::string& shard, uint32_t part, const SafetensorsEntry& entry);
  Status CheckOutput() const;
  Status AddMadeTensors();
  Status AddChatTemplate();
  Status AddSideFiles();

  bool Has(const std::string& name) const;
  // Opens a file of the folder as a new part.
  Status Load(const std::string& name);
  std::string PathOf(std::string_view name) const { return file_.path_ + "/" + std::string(name); }
  std::string_view TextOf(const TensorFile::Part& part) const;

  TensorFile& file_;
  Files* files_;
  HfConfig config_;
  bool has_lm_head_ = false;
  std::map<std::string, std::string, std::less<>> origin_;  // GGUF name -> stored name
};

}  // namespace ballast

#endif  // BALLAST_FORMATS_HF_FOLDER_H_
