#include "lib/base/error.h"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace gantry {
namespace {

// grpc::StatusCode by number, so that lib/base needs no gRPC.
constexpr int kCancelledStatus = 1, kInvalid = 3, kDeadline = 4, kMissing = 5, kDenied = 7,
              kExhausted = 8, kPrecondition = 9, kAborted = 10, kRange = 11, kUnimplemented = 12,
              kInternalStatus = 13, kUnavailable = 14, kNobody = 16;

constexpr std::array<ErrorCodeInfo, kErrorCodeCount> kTable = {{
    {ErrorCode::kInvalidArgument, "invalid_argument", 400, kInvalid, "invalid_argument",
     "A field of the request is wrong"},
    {ErrorCode::kMalformedBody, "malformed_body", 400, kInvalid, "malformed_body",
     "The body cannot be read"},
    {ErrorCode::kBodyTooLarge, "body_too_large", 413, kExhausted, "body_too_large",
     "The body exceeds a limit"},
    {ErrorCode::kUnsupportedMedia, "unsupported_media_type", 415, kInvalid, "unsupported_media",
     "The content type or encoding is not accepted"},
    {ErrorCode::kUnauthenticated, "unauthenticated", 401, kNobody, "unauthenticated",
     "The caller is not known"},
    {ErrorCode::kPermissionDenied, "permission_denied", 403, kDenied, "permission",
     "The caller may not do this"},
    {ErrorCode::kNotFound, "not_found", 404, kMissing, "not_found", "There is no such object"},
    {ErrorCode::kMethodNotAllowed, "method_not_allowed", 405, kUnimplemented, "method_not_allowed",
     "The resource does not have this method"},
    {ErrorCode::kConflict, "conflict", 409, kAborted, "conflict",
     "The id is in use with another content"},
    {ErrorCode::kStaleGeneration, "stale_generation", 409, kPrecondition, "stale_generation",
     "The object was replaced"},
    {ErrorCode::kLeaseExpired, "lease_expired", 410, kPrecondition, "lease_expired",
     "The hold is over"},
    {ErrorCode::kDraining, "draining", 409, kPrecondition, "draining",
     "The buffer is being deleted or is suspended"},
    {ErrorCode::kUnregistered, "unregistered", 404, kMissing, "unregistered",
     "The buffer is not registered"},
    {ErrorCode::kOutOfRange, "out_of_range", 400, kRange, "out_of_range",
     "The range lies outside of the buffer"},
    {ErrorCode::kOverlap, "overlap", 400, kInvalid, "overlap", "Destination ranges overlap"},
    {ErrorCode::kFdNotSealed, "fd_not_sealed", 422, kPrecondition, "not_exportable",
     "The file can still shrink"},
    {ErrorCode::kFdTooShort, "fd_too_short", 422, kPrecondition, "out_of_range",
     "The file is shorter than was said"},
    {ErrorCode::kFdReadOnly, "fd_read_only", 422, kPrecondition, "permission",
     "The descriptor is read-only"},
    {ErrorCode::kNotExportable, "not_exportable", 422, kPrecondition, "not_exportable",
     "The memory cannot be shared"},
    {ErrorCode::kVerificationFailed, "verification_failed", 422, kPrecondition, "device_error",
     "The memory is not what its owner means"},
    {ErrorCode::kPathUnavailable, "path_unavailable", 409, kPrecondition, "path_unavailable",
     "No path can carry this transfer"},
    {ErrorCode::kPeerUnavailable, "peer_unavailable", 503, kUnavailable, "peer_unavailable",
     "The peer does not answer"},
    {ErrorCode::kPeerLost, "peer_lost", 502, kUnavailable, "disconnect", "The peer went away"},
    {ErrorCode::kSidecarLost, "sidecar_lost", 502, kUnavailable, "disconnect",
     "The client's own sidecar went away"},
    {ErrorCode::kVersionMismatch, "version_mismatch", 409, kPrecondition, "version_mismatch",
     "No common protocol version"},
    {ErrorCode::kResourceExhausted, "resource_exhausted", 429, kExhausted, "resource_exhausted",
     "A limit is reached"},
    {ErrorCode::kDeadlineExceeded, "deadline_exceeded", 504, kDeadline, "timeout",
     "Not finished in time"},
    {ErrorCode::kCancelled, "cancelled", 409, kCancelledStatus, "cancelled",
     "The operation was cancelled"},
    {ErrorCode::kWorkerLost, "worker_lost", 500, kUnavailable, "worker_lost", "A copy worker died"},
    {ErrorCode::kDeviceError, "device_error", 500, kInternalStatus, "device_error",
     "The memory could not be mapped or copied"},
    {ErrorCode::kShuttingDown, "shutting_down", 503, kUnavailable, "shutting_down",
     "The sidecar is stopping"},
    {ErrorCode::kInternal, "internal", 500, kInternalStatus, "internal", "An unexpected failure"},
}};

constexpr bool TableFollowsEnumeration() {
  for (int i = 0; i < kErrorCodeCount; ++i) {
    if (static_cast<int>(kTable[static_cast<size_t>(i)].code) != i) return false;
  }
  return true;
}
static_assert(TableFollowsEnumeration(), "kTable must list every code in order");

std::string LimitOfDescriptors() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return " (this process may have " + std::to_string(limit.rlim_cur) + ")";
}

}  // namespace

const ErrorCodeInfo& InfoOf(ErrorCode code) { return kTable[static_cast<size_t>(code)]; }

ErrorCode ErrorCodeByName(std::string_view name) {
  for (const ErrorCodeInfo& info : kTable) {
    if (info.name == name) return info.code;
  }
  return ErrorCode::kInternal;
}

Error::Error(ErrorCode code_in, std::string message_in, std::string hint_in, std::string field_in)
    : code(code_in),
      message(std::move(message_in)),
      hint(std::move(hint_in)),
      field(std::move(field_in)) {}

Error Error::WithContext(std::string_view context) && {
  message.insert(0, ": ");
  message.insert(0, context);
  return std::move(*this);
}

Error Error::WithField(std::string field_in) && {
  field = std::move(field_in);
  return std::move(*this);
}

Error SystemError(ErrorCode code, std::string_view what, int error_number) {
  std::string message(what);
  message += ": ";
  message += std::generic_category().message(error_number);
  if (error_number == EMFILE) {
    return {ErrorCode::kResourceExhausted, message + LimitOfDescriptors(),
            "raise this process's hard limit of open files (RLIMIT_NOFILE)"};
  }
  if (error_number == ENFILE) {
    return {ErrorCode::kResourceExhausted, std::move(message),
            "the machine's limit is fs.file-max"};
  }
  return {code, std::move(message)};
}

}  // namespace gantry
