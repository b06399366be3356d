// Reads a JSON or CBOR body into an object by its schema, without building a tree: one handler for
// both formats, strict (no unknown or repeated fields, integers only) and limited. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/codec/schema.h"

namespace gantry::wire {

enum class BodyFormat { kJson, kCbor };

// Elements of all lists of one body together.
inline constexpr size_t kBodyElementsMax = 1 << 20;

// Fills `object`, which `schema` was written for. A body that cannot be read or has another shape
// is kMalformedBody, a value outside of its limits kInvalidArgument, too many elements
// kBodyTooLarge; Error::field is a JSON pointer. `object` may be half filled after an error.
Status ReadBody(BodyFormat format, std::string_view body, const Schema& schema, void* object);

// The body is one object or a list of them, for each of which root.enter is called with `object`.
// *is_list tells which it was. REQUIRES root.kind == kObjectOrObjects.
Status ReadBodies(BodyFormat format, std::string_view body, const Field& root, void* object,
                  bool* is_list);

}  // namespace gantry::wire
