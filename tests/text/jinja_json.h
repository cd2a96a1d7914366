// JSON as values of the template language, for tests.
#ifndef BALLAST_TESTS_TEXT_JINJA_JSON_H_
#define BALLAST_TESTS_TEXT_JINJA_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace ballast::testing {

using Json = nlohmann::ordered_json;

// All strings are data.
inline JinjaValue ToJinja(const Json& json) {
  if (json.is_null()) return JinjaValue::None();
  if (json.is_boolean()) return JinjaValue::Bool(json.get<bool>());
  if (json.is_number_integer()) return JinjaValue::Int(json.get<int64_t>());
  if (json.is_number()) return JinjaValue::Float(json.get<double>());
  if (json.is_string()) return JinjaValue::String(json.get<std::string>());
  if (json.is_array()) {
    JinjaValue::Items items;
    for (const Json& item : json) items.push_back(ToJinja(item));
    return JinjaValue::List(std::move(items));
  }
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  for (const auto& [key, value] : json.items()) entries.emplace_back(JinjaValue::String(key), ToJinja(value));
  return JinjaValue::DictOf(entries);
}

}  // namespace ballast::testing

#endif  // BALLAST_TESTS_TEXT_JINJA_JSON_H_
