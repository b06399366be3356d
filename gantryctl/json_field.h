// Fields of the sidecar's answers, with a default where a version does not have the field.
// Thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gantry::gantryctl {

inline std::string TextOf(const nlohmann::json& object, const char* key,
                          const std::string& otherwise = {}) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

inline double NumberOf(const nlohmann::json& object, const char* key, double otherwise = 0) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

inline uint64_t CountOf(const nlohmann::json& object, const char* key, uint64_t otherwise = 0) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  const bool whole = found != object.end() && found->is_number_integer() &&
                     (found->is_number_unsigned() || found->get<int64_t>() >= 0);
  return whole ? found->get<uint64_t>() : otherwise;
}

inline bool FlagOf(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// The member, or null.
inline const nlohmann::json& MemberOf(const nlohmann::json& object, const char* key) {
  static const nlohmann::json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() ? *found : null;
}

}  // namespace gantry::gantryctl
