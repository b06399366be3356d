// The body of POST /v1/transfers: one transfer, or a list of them. Thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/schema_reader.h"
#include "lib/wire/transfer_request.h"

namespace gantry::wire {

inline constexpr size_t kTransfersPerBodyMax = 1024;
inline constexpr int64_t kUserDataBytesMax = 1024;

struct TransferBody {
  std::vector<TransferRequest> requests;
  bool is_list = false;
};

// Checks the shape alone; whether the ranges lie within the buffers is for the engine to say.
Result<TransferBody> ReadTransferBody(BodyFormat format, std::string_view body);

}  // namespace gantry::wire
