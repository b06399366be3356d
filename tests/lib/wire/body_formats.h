// One body in both formats, for tests that read each. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/codec/schema_reader.h"

namespace gantry::wire {

inline constexpr auto kJson = BodyFormat::kJson;
inline constexpr auto kCbor = BodyFormat::kCbor;

inline std::string CborOf(const std::string& json_text) {
  const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(nlohmann::json::parse(json_text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace gantry::wire
