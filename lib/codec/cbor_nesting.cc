#include "lib/codec/cbor_nesting.h"

#include <cstddef>

namespace gantry::wire {
namespace {

constexpr size_t kTextOpeningsInARowMax = 2048;

}  // namespace

bool HasDeepTextChunks(std::string_view body) {
  // A row that is too long covers one of these places.
  for (size_t at = 0; at < body.size(); at += kTextOpeningsInARowMax) {
    if (body[at] != '\x7f' && body[at] != '\x5f') continue;
    size_t begin = at;
    size_t end = at;
    while (begin > 0 && body[begin - 1] == body[at]) --begin;
    while (end < body.size() && body[end] == body[at]) ++end;
    if (end - begin > kTextOpeningsInARowMax) return true;
  }
  return false;
}

}  // namespace gantry::wire
