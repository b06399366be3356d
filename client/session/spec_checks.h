// Checks the fields of a caller's specification before it is sent. Thread-safe.
#pragma once

#include "client/include/gantry.h"
#include "lib/base/result.h"

namespace gantry::client {

// kInvalidArgument with the field that is wrong.
Status CheckSpec(const gantry_transfer_spec& spec);
Status CheckSpec(const gantry_view_spec& spec);

}  // namespace gantry::client
