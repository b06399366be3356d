// Why an operation failed: a stable code, what happened, and what the caller can do about it. The
// table in error.cc maps each code to HTTP status, gRPC status and metric reason. Error is a value:
// copies are independent. One thread at a time uses an object.
#pragma once

#include <string>
#include <string_view>

namespace gantry {

enum class ErrorCode {
  kInvalidArgument,     // a field is wrong; Error::field names it
  kMalformedBody,       // the body is not JSON/CBOR, or not of the expected shape
  kBodyTooLarge,        // larger, deeper or longer than the stated limits
  kUnsupportedMedia,    // content type or encoding that is not accepted
  kUnauthenticated,     // no lease token or peer credentials that name a caller
  kPermissionDenied,    // the caller is known and may not do this
  kNotFound,            // no such object
  kMethodNotAllowed,    // the resource exists, the method does not
  kConflict,            // the object's state excludes the request, e.g. its id has other content
  kStaleGeneration,     // the object was replaced since the caller learned of it
  kLeaseExpired,        // the lease or hold has ended
  kDraining,            // the buffer is being deleted or is suspended
  kUnregistered,        // the range is in no registered buffer
  kOutOfRange,          // offset, length or block id outside of the buffer
  kOverlap,             // two destinations of one transfer share bytes
  kFdNotSealed,         // a memfd that can still shrink
  kFdTooShort,          // a file shorter than its stated size
  kFdReadOnly,          // write access asked for on a read-only descriptor
  kNotExportable,       // memory with no descriptor or handle behind it
  kVerificationFailed,  // the mapped memory is not the memory that its owner means
  kPathUnavailable,     // no path, or not the one that was required
  kPeerUnavailable,     // the peer does not answer
  kPeerLost,            // the peer went away while it was in use
  kSidecarLost,         // client only: its own sidecar ended, and its lease with it
  kVersionMismatch,     // the other side speaks no version that this one knows
  kResourceExhausted,   // a stated limit is reached; try again later
  kDeadlineExceeded,    // not finished in time
  kCancelled,           // the caller asked to stop
  kWorkerLost,          // a copy worker died during the operation
  kDeviceError,         // the memory could not be mapped or copied
  kShuttingDown,        // the sidecar is stopping
  kInternal,            // a bug or an unexpected failure of the system
};

// How the interfaces present one code. `name` is the stable `code` of REST problems.
struct ErrorCodeInfo {
  ErrorCode code;
  std::string_view name;           // snake_case, never changes
  int http_status;                 // RFC 9110
  int grpc_status;                 // numeric grpc::StatusCode
  std::string_view metric_reason;  // closed set, label `reason`
  std::string_view title;          // one short sentence
};

const ErrorCodeInfo& InfoOf(ErrorCode code);
// Returns kInternal for a name that this build does not know.
ErrorCode ErrorCodeByName(std::string_view name);
// The number of codes; kInternal is the last one.
inline constexpr int kErrorCodeCount = static_cast<int>(ErrorCode::kInternal) + 1;

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // the failure, its subject and its cause
  std::string hint;     // the remedy; may be empty
  std::string field;    // the offending field of the request, as a JSON pointer; may be empty

  Error() = default;
  Error(ErrorCode code_in, std::string message_in, std::string hint_in = {},
        std::string field_in = {});

  // Returns the error with `context: ` in front of its message.
  Error WithContext(std::string_view context) &&;
  Error WithField(std::string field_in) &&;
};

// An Error for a failed system call: `what` and strerror(error_number). When descriptors are
// exhausted, the code is kResourceExhausted whatever `code` is, and the message names the limit.
Error SystemError(ErrorCode code, std::string_view what, int error_number);

}  // namespace gantry
