// Owners of libgantry's handles, and its errors as ours. Values; thread-safe as libgantry is.
#pragma once

#include <memory>

#include "client/include/gantry.h"
#include "client/include/gantry_messages.h"
#include "lib/base/result.h"

namespace gantry::nixl {

struct DestroysHandle {
  void operator()(gantry_client* client) const { gantry_client_destroy(client); }
  void operator()(gantry_arena* arena) const { gantry_arena_destroy(arena); }
  void operator()(gantry_buffer* buffer) const { gantry_buffer_destroy(buffer); }
  void operator()(gantry_view* view) const { gantry_view_destroy(view); }
  void operator()(gantry_transfer* transfer) const { gantry_transfer_destroy(transfer); }
  void operator()(char* text) const { gantry_free(text); }
};
template <typename Handle>
using Owned = std::unique_ptr<Handle, DestroysHandle>;

// Frees the error.
inline Status Take(gantry_error* error) {
  if (error == nullptr) return {};
  Error taken(ErrorCodeByName(gantry_error_code(error)), gantry_error_message(error),
              gantry_error_hint(error), gantry_error_field(error));
  gantry_error_destroy(error);
  return Fail(std::move(taken));
}

}  // namespace gantry::nixl
