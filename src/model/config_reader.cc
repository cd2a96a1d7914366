#include "model/config_reader.h"

#include <cmath>

namespace ballast {

Status ConfigReader::Int(std::string_view suffix, int64_t low, int64_t high, int64_t fallback,
                         int64_t& out) const {
  const std::string key = prefix_ + std::string(suffix);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<int64_t> value, file_.Int(key));
  if (!value && fallback < low) return Missing(key, "an integer");
  out = value.value_or(fallback);
  if (value && (out < low || out > high)) {
    return Status::Expected(Code::kModel, file_.path() + ": " + key,
                            std::to_string(low) + " to " + std::to_string(high), std::to_string(out));
  }
  return Status();
}

Status ConfigReader::Int(std::string_view suffix, int64_t low, int64_t high, int64_t fallback,
                         int& out) const {
  int64_t wide = 0;
  BALLAST_RETURN_IF_ERROR(Int(suffix, low, high, fallback, wide));
  out = static_cast<int>(wide);
  return Status();
}

Status ConfigReader::Positive(std::string_view suffix, double fallback, double& out) const {
  const std::string key = prefix_ + std::string(suffix);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> value, file_.Float(key));
  if (!value && fallback <= 0) return Missing(key, "a number");
  out = value.value_or(fallback);
  if (!std::isfinite(out) || out <= 0) {
    return Status::Expected(Code::kModel, file_.path() + ": " + key, "a finite number above 0",
                            std::to_string(out));
  }
  return Status();
}

Status ConfigReader::Positive(std::string_view suffix, double fallback, float& out) const {
  double wide = 0;
  BALLAST_RETURN_IF_ERROR(Positive(suffix, fallback, wide));
  out = static_cast<float>(wide);
  return Status();
}

Status ConfigReader::OptionalPositive(std::string_view suffix, float& out) const {
  const std::string key = prefix_ + std::string(suffix);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<double> value, file_.Float(key));
  if (!value) return Status();
  if (!std::isfinite(*value) || *value < 0) {
    return Status::Expected(Code::kModel, file_.path() + ": " + key, "a finite number, 0 or above",
                            std::to_string(*value));
  }
  out = static_cast<float>(*value);
  return Status();
}

Status ConfigReader::Bool(std::string_view suffix, bool fallback, bool& out) const {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<bool> value, file_.Bool(prefix_ + std::string(suffix)));
  out = value.value_or(fallback);
  return Status();
}

}  // namespace ballast
