// Reads a body without a schema: its events go to a handler of nlohmann's, and no tree is built.
// Thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "lib/codec/cbor_nesting.h"

namespace gantry::wire {

// Deeper than the sidecar nests; handlers refuse more.
constexpr size_t kBodyDepthMax = 32;

// Whether it is CBOR whose root is a map: no JSON begins with such a byte.
inline bool IsCborMap(std::string_view body) {
  constexpr unsigned char kMapMajor = 5;
  return !body.empty() && static_cast<unsigned char>(body.front()) >> 5 == kMapMajor;
}

// Parses JSON or CBOR. False when it cannot be read, or the handler refuses it.
template <typename Handler>
bool ParseBody(std::string_view body, Handler* handler) {
  using nlohmann::json;
  const bool cbor = IsCborMap(body);
  if (cbor && HasDeepTextChunks(body)) return false;
  return json::sax_parse(body.data(), body.data() + body.size(), handler,
                         cbor ? json::input_format_t::cbor : json::input_format_t::json);
}

}  // namespace gantry::wire
