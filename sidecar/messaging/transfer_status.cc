#include "sidecar/messaging/transfer_status.h"

namespace gantry::engine {

std::string_view NameOf(TransferState state) {
  switch (state) {
    case TransferState::kQueued:
      return "queued";
    case TransferState::kRunning:
      return "running";
    case TransferState::kStopping:
      return "stopping";
    case TransferState::kSucceeded:
      return "succeeded";
    case TransferState::kFailed:
      return "failed";
    case TransferState::kCancelled:
      return "cancelled";
    case TransferState::kExpired:
      break;
  }
  return "expired";
}

}  // namespace gantry::engine
