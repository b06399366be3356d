#include "connectors/nixl/transfer/nixl_status.h"

namespace gantry::nixl {

// Engines take kRemoteDisconnect as the word to forget an agent and to ask for its metadata again.
NixlStatus StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerUnavailable:
    case ErrorCode::kPeerLost:
    case ErrorCode::kStaleGeneration:
    case ErrorCode::kUnregistered:
    case ErrorCode::kDraining:
    case ErrorCode::kLeaseExpired:
      return NixlStatus::kRemoteDisconnect;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange:
    case ErrorCode::kOverlap:
    case ErrorCode::kBodyTooLarge:
    case ErrorCode::kMalformedBody:
      return NixlStatus::kInvalidParameter;
    case ErrorCode::kNotFound:
      return NixlStatus::kNotFound;
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kFdReadOnly:
    case ErrorCode::kConflict:
      return NixlStatus::kNotAllowed;
    case ErrorCode::kNotExportable:
    case ErrorCode::kFdNotSealed:
    case ErrorCode::kFdTooShort:
      return NixlStatus::kNotSupported;
    case ErrorCode::kVersionMismatch:
      return NixlStatus::kMismatch;
    case ErrorCode::kCancelled:
      return NixlStatus::kCancelled;
    default:
      return NixlStatus::kBackend;
  }
}

NixlStatus StatusOf(const Error& error) {
  const NixlStatus status = StatusOf(error.code);
  const bool is_local = error.field.starts_with("local") || error.field.starts_with("/local");
  return is_local && status == NixlStatus::kRemoteDisconnect ? NixlStatus::kBackend : status;
}

NixlStatus StatusOfOwn(const Error& error) {
  const NixlStatus status = StatusOf(error.code);
  const bool is_of_others = status == NixlStatus::kRemoteDisconnect;
  return is_of_others || error.code == ErrorCode::kConflict ? NixlStatus::kBackend : status;
}

}  // namespace gantry::nixl
