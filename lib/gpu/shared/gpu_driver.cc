#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

Status CheckRows(const RowCopy& rows) {
  if (rows.bytes == 0 || rows.count == 0) {
    return Fail(ErrorCode::kInvalidArgument, "a copy of rows without bytes");
  }
  for (const uint64_t pitch : {rows.to_pitch, rows.from_pitch}) {
    if (pitch >= rows.bytes && pitch <= kRowPitchMax) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "rows of " + std::to_string(rows.bytes) + " bytes at a pitch of " +
                    std::to_string(pitch) + ", which is not within these and " +
                    std::to_string(kRowPitchMax),
                "copy them one by one");
  }
  return {};
}

}  // namespace gantry::gpu
