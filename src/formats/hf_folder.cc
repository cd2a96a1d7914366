#include "formats/hf_folder.h"

#include <unistd.h>

#include <cstring>
#include <set>
#include <utility>

#include "formats/json.h"
#include "formats/text.h"

namespace ballast {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kTemplateKey[] = "tokenizer.chat_template";
constexpr size_t kMaxShards = 1024;
constexpr const char* kSideFiles[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
    "added_tokens.json", "chat_template.jinja",   "chat_template.json"};

// A name that stays inside the folder.
bool IsPlain(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name.size() <= 255;
}

}  // namespace

bool HfFolderReader::Has(const std::string& name) const {
  if (files_ != nullptr) return files_->contains(name);
  return access(PathOf(name).c_str(), F_OK) == 0;
}

Status HfFolderReader::Load(const std::string& name) {
  TensorFile::Part part;
  part.name = name;
  if (files_ != nullptr) {
    part.owned = std::move(files_->at(name));
    part.bytes = part.owned;
  } else {
    BALLAST_ASSIGN_OR_RETURN(part.mapped, MappedFile::Open(PathOf(name)));
    part.bytes = part.mapped.bytes();
  }
  file_.parts_.push_back(std::move(part));
  return Status();
}

std::string_view HfFolderReader::TextOf(const TensorFile::Part& part) const {
  return {reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size()};
}

Status HfFolderReader::Read(TensorFile* file, Files* files) { return HfFolderReader(file, files).ReadAll(); }

Status HfFolderReader::ReadAll() {
  if (!Has(kConfig)) {
    return Status::Expected(Code::kModel, file_.path_, "a Hugging Face folder with config.json", "none",
                            "name the .gguf file itself, or the folder that holds config.json");
  }
  BALLAST_RETURN_IF_ERROR(Load(kConfig));
  BALLAST_ASSIGN_OR_RETURN(config_, ReadHfConfig(PathOf(kConfig), TextOf(file_.parts_.back())));
  for (TensorFile::Meta& meta : config_.metadata) {
    BALLAST_CHECK(file_.AddMeta(std::move(meta.key), std::move(meta.value)));
  }
  const std::string& path = file_.path_;
  file_.AddMeta("general.name", path.substr(path.find_last_of('/') + 1));
  if (!config_.family->Is(HfFamily::kOnlyNamed)) {
    BALLAST_RETURN_IF_ERROR(ReadWeights());
    BALLAST_RETURN_IF_ERROR(CheckOutput());
    BALLAST_RETURN_IF_ERROR(AddMadeTensors());
  } else {
    file_.format_ = "Hugging Face folder";
  }
  BALLAST_RETURN_IF_ERROR(AddSideFiles());
  return AddChatTemplate();
}

Status HfFolderReader::ReadWeights() {
  std::map<std::string, std::string> weight_map;
  std::set<std::string> shards;
  const bool sharded = !Has(kWeights);
  if (sharded && !Has(kIndex)) {
    const bool pickled = Has("pytorch_model.bin") || Has("pytorch_model.bin.index.json");
    return Status::Expected(Code::kModel, file_.path_, std::string(kWeights) + " or " + kIndex,
                            pickled ? "pickled weights, which can run code and are not read" : "neither",
                            pickled ? "convert them: transformers' save_pretrained writes safetensors" : "");
  }
  if (sharded) {
    BALLAST_RETURN_IF_ERROR(ReadIndex(&weight_map));
    for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
    if (shards.size() > kMaxShards) {
      return Status::Expected(Code::kModel, PathOf(kIndex),
                              "at most " + std::to_string(kMaxShards) + " files",
                              std::to_string(shards.size()));
    }
  } else {
    shards.insert(kWeights);
  }
  size_t found = 0;
  for (const std::string& shard : shards) {
    BALLAST_RETURN_IF_ERROR(ReadShard(shard, sharded ? &weight_map : nullptr, &found));
  }
  file_.format_ = "safetensors, " + std::to_string(shards.size()) + (shards.size() == 1 ? " file" : " files");
  return Status();
}

Status HfFolderReader::ReadIndex(std::map<std::string, std::string>* weight_map) {
  BALLAST_RETURN_IF_ERROR(Load(kIndex));
  BALLAST_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(PathOf(kIndex), TextOf(file_.parts_.back())));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return Status::Expected(Code::kModel, PathOf(kIndex) + ": weight_map", "an object of tensors and files",
                            map == json.end() ? "no such key" : "none");
  }
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlain(shard.get_ref<const std::string&>())) {
      return Status::Expected(
          Code::kModel, PathOf(kIndex) + ": tensor " + QuoteName(tensor), "the name of a file in the folder",
          shard.is_string() ? QuoteName(shard.get_ref<const std::string&>()) : "a value of another kind");
    }
    (*weight_map)[tensor] = shard.get<std::string>();
  }
  return Status();
}

Status HfFolderReader::ReadShard(const std::string& name,
                                 const std::map<std::string, std::string>* weight_map, size_t* found) {
  const std::string shown = file_.path_ + "/" + QuoteName(name);
  if (!Has(name)) {
    return Status::Expected(Code::kModel, shown, "a shard of the model, as the index says", "no such file",
                            "the download is not complete");
  }
  BALLAST_RETURN_IF_ERROR(Load(name));
  const auto part = static_cast<uint32_t>(file_.parts_.size() - 1);
  BALLAST_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensors(shown, file_.parts_.back().bytes));
  size_t wanted = 0;
  if (weight_map != nullptr) {
    for (const auto& [tensor, shard] : *weight_map) wanted += shard == name ? 1 : 0;
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    if (weight_map != nullptr) {
      const auto at = weight_map->find(entry.name);
      if (at == weight_map->end() || at->second != name) {
        return Status::Expected(Code::kModel, shown + ": tensor " + QuoteName(entry.name),
                                "an entry of the index that names this file",
                                at == weight_map->end() ? "none" : "one that names " + QuoteName(at->second));
      }
      ++*found;
      --wanted;
    }
    BALLAST_RETURN_IF_ERROR(AddEntry(shown, part, entry));
  }
  if (wanted == 0) return Status();
  for (const auto& [tensor, shard] : *weight_map) {
    if (shard != name) continue;
    bool there = false;
    for (const SafetensorsEntry& entry : header.tensors) there = there || entry.name == tensor;
    if (there) continue;
    return Status::Expected(Code::kModel, shown + ": tensor " + QuoteName(tensor), "data, as the index says",
                            "no such tensor");
  }
  return Status();
}

Status HfFolderReader::AddEntry(const std::string& shard, uint32_t part, const SafetensorsEntry& entry) {
  const std::string where = shard + ": tensor " + QuoteName(entry.name);
  const HfTensorName name = TranslateTensorName(*config_.family, entry.name, config_.layers);
  if (name.skip) return Status();
  if (name.gguf.empty()) {
    return Status::Expected(Code::kModel, where,
                            "a tensor that " + std::string(config_.family->model_type) + " has", "another");
  }
  if (name.gguf == "output.weight") {
    has_lm_head_ = true;
    if (config_.tied.value_or(false)) return Status();  // a copy of the embedding
  }
  const std::optional<DType> dtype = SafetensorsDType(entry.dtype);
  if (!dtype.has_value()) return Status::Expected(Code::kModel, where, "F32, F16 or BF16", entry.dtype);
  const auto width = static_cast<uint64_t>(Info(*dtype).block_bytes);
  if (entry.shape.empty() || entry.shape.size() > 4 || entry.bytes == 0) {
    return Status::Expected(Code::kModel, where, "1 to 4 dimensions, each at least 1", "another shape");
  }
  if (entry.offset % width != 0) {
    return Status::Expected(Code::kModel, where, "data aligned to " + std::to_string(width) + " bytes",
                            "data at byte " + std::to_string(entry.offset),
                            "save the model again with a safetensors of 2023 or later");
  }
  TensorInfo tensor;
  tensor.name = name.gguf;
  tensor.dtype = *dtype;
  tensor.dims.assign(entry.shape.rbegin(), entry.shape.rend());
  tensor.offset = entry.offset;
  tensor.bytes = entry.bytes;
  tensor.part = part;
  const auto [at, added] = origin_.emplace(name.gguf, entry.name);
  if (!added || !file_.AddTensor(std::move(tensor))) {
    return Status::Expected(Code::kModel, where, "each tensor once", "it again as " + QuoteName(at->second));
  }
  return Status();
}

Status HfFolderReader::CheckOutput() const {
  if (has_lm_head_ || config_.tied.value_or(true)) return Status();
  return Status::Expected(Code::kModel, file_.path_ + ": tensor lm_head.weight",
                          "one, since tie_word_embeddings is false", "no such tensor");
}

Status HfFolderReader::AddMadeTensors() {
  for (const auto& [name, values] : config_.made) {
    TensorFile::Part part;
    part.owned.resize(values.size() * sizeof(float));
    std::memcpy(part.owned.data(), values.data(), part.owned.size());
    part.bytes = part.owned;
    TensorInfo tensor;
    tensor.name = name;
    tensor.dims = {static_cast<int64_t>(values.size())};
    tensor.bytes = part.bytes.size();
    tensor.part = static_cast<uint32_t>(file_.parts_.size());
    file_.parts_.push_back(std::move(part));
    BALLAST_CHECK(file_.AddTensor(std::move(tensor)));
  }
  return Status();
}

Status HfFolderReader::AddSideFiles() {
  for (const char* name : kSideFiles) {
    if (Has(name)) BALLAST_RETURN_IF_ERROR(Load(name));
  }
  return Status();
}

// A file of its own wins over tokenizer_config.json, whose chat_template is a text or a list of named ones.
Status HfFolderReader::AddChatTemplate() {
  if (const auto text = file_.SideFile("chat_template.jinja")) {
    file_.AddMeta(kTemplateKey, std::string(*text));
    return Status();
  }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto text = file_.SideFile(name);
    if (!text.has_value()) continue;
    BALLAST_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(PathOf(name), *text));
    const auto found = json.find("chat_template");
    if (found == json.end() || found->is_null()) continue;
    const auto refuse = [&] {
      return Status::Expected(Code::kModel, PathOf(name) + ": chat_template",
                              "a text, or a list of {name, template}", "a value of another kind");
    };
    if (found->is_string()) {
      file_.AddMeta(kTemplateKey, found->get<std::string>());
      return Status();
    }
    if (!found->is_array()) return refuse();
    for (const nlohmann::json& each : *found) {
      if (!each.is_object() || !each.contains("name") || !each["name"].is_string() ||
          !each.contains("template") || !each["template"].is_string()) {
        return refuse();
      }
      const std::string which = each["name"].get<std::string>();
      const std::string key = which == "default" ? kTemplateKey : kTemplateKey + ("." + which);
      file_.AddMeta(key, each["template"].get<std::string>());
    }
    return Status();
  }
  return Status();
}

}  // namespace ballast
