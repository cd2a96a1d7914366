// Reads "<architecture>.<suffix>" metadata and turns absences and absurd values into one clear kModel line.
// Thread safety: const. REQUIRES: the file outlives the reader.
#ifndef BALLAST_MODEL_CONFIG_READER_H_
#define BALLAST_MODEL_CONFIG_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/tensor_file.h"

namespace ballast {

class ConfigReader {
 public:
  ConfigReader(const TensorFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  const TensorFile& file() const { return file_; }
  // An integer in [low, high]; `fallback` when absent, unless it is below `low`: then the key is required.
  Status Int(std::string_view suffix, int64_t low, int64_t high, int64_t fallback, int64_t& out) const;
  Status Int(std::string_view suffix, int64_t low, int64_t high, int64_t fallback, int& out) const;
  // A finite number above zero; required when `fallback` is not above zero.
  Status Positive(std::string_view suffix, double fallback, double& out) const;
  Status Positive(std::string_view suffix, double fallback, float& out) const;
  Status Bool(std::string_view suffix, bool fallback, bool& out) const;
  // As Positive, but 0 stays 0 and means "off": the fallback too.
  Status OptionalPositive(std::string_view suffix, float& out) const;
  Result<std::optional<std::string>> String(std::string_view suffix) const {
    return file_.String(prefix_ + std::string(suffix));
  }
  const MetaValue* Find(std::string_view suffix) const { return file_.Find(prefix_ + std::string(suffix)); }
  bool Has(std::string_view suffix) const { return file_.Find(prefix_ + std::string(suffix)) != nullptr; }
  Status Refuse(std::string_view suffix, std::string_view expected, std::string_view found) const {
    return Status::Expected(Code::kModel, file_.path() + ": " + prefix_ + std::string(suffix), expected,
                            found);
  }

 private:
  Status Missing(const std::string& key, std::string_view what) const {
    return Status::Expected(Code::kModel, file_.path() + ": " + key, what, "no such key");
  }
  const TensorFile& file_;
  std::string prefix_;
};

}  // namespace ballast

#endif  // BALLAST_MODEL_CONFIG_READER_H_
