#include "sidecar/transport/rdma/verbs/completion_reason.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gantry::transport {
namespace {

struct Meaning {
  WorkStatus status;
  std::string_view name;
  ErrorCode code;
  std::string_view hint;
};

constexpr std::array<Meaning, 16> kMeanings = {{
    {WorkStatus::kSuccess, "success", ErrorCode::kInternal, ""},
    {WorkStatus::kLocalLength, "local length error", ErrorCode::kInternal,
     "a work request was longer than the port's largest message: report it"},
    {WorkStatus::kLocalQueuePair, "local queue pair operation error", ErrorCode::kDeviceError,
     "the device refused the work request: see the kernel's log"},
    {WorkStatus::kLocalProtection, "local protection error", ErrorCode::kInternal,
     "a work request went beyond its local memory region: report it"},
    {WorkStatus::kFlushed, "work request flushed", ErrorCode::kPeerLost,
     "an error of its queue pair before it, or the peer's end, says why: see both logs"},
    {WorkStatus::kBindMemoryWindow, "memory window bind error", ErrorCode::kDeviceError,
     "memory windows are not used: see the kernel's log"},
    {WorkStatus::kBadResponse, "bad response", ErrorCode::kDeviceError,
     "the peer's device answered what nobody asked: look at both devices' firmware"},
    {WorkStatus::kLocalAccess, "local access error", ErrorCode::kInternal, "report it"},
    {WorkStatus::kRemoteInvalidRequest, "remote invalid request", ErrorCode::kDeviceError,
     "the peer's device does not take such requests: compare both devices' limits"},
    // A description that is fresh may be taken.
    {WorkStatus::kRemoteAccess, "remote access error", ErrorCode::kStaleGeneration,
     "the peer's buffer was deregistered or registered anew: resolve it again"},
    {WorkStatus::kRemoteOperation, "remote operation error", ErrorCode::kDeviceError,
     "the peer's device failed: see the kernel's log there"},
    {WorkStatus::kRetryExceeded, "transport retry counter exceeded", ErrorCode::kPeerUnavailable,
     "the peer's device does not answer: look at its port, the route between both, and RoCE's "
     "flow control; --rdma-timeout and --rdma-retries state the patience"},
    {WorkStatus::kReceiverNotReady, "RNR retry counter exceeded", ErrorCode::kPeerUnavailable,
     "the peer's device was not ready"},
    {WorkStatus::kRemoteAborted, "remote aborted", ErrorCode::kPeerLost,
     "the peer's end was taken back: see its log"},
    {WorkStatus::kFatal, "fatal error", ErrorCode::kDeviceError,
     "the device has to be reset: see the kernel's log"},
    {WorkStatus::kResponseTimeout, "response timeout", ErrorCode::kPeerUnavailable,
     "the peer's device does not answer: look at its port and the route between both"},
}};

const Meaning* Find(WorkStatus status) {
  const auto* found = std::find_if(kMeanings.begin(), kMeanings.end(),
                                   [&](const Meaning& one) { return one.status == status; });
  return found == kMeanings.end() ? nullptr : &*found;
}

}  // namespace

std::string_view NameOf(WorkStatus status) {
  const Meaning* const meaning = Find(status);
  return meaning == nullptr ? "general error" : meaning->name;
}

Error ErrorOf(const WorkCompletion& completion, std::string_view device, std::string_view peer) {
  const Meaning* const meaning = Find(completion.status);
  std::string message = "RDMA device " + std::string(device) + ", peer '" + std::string(peer) +
                        "': " + std::string(NameOf(completion.status)) + " (status " +
                        std::to_string(static_cast<int>(completion.status));
  if (completion.vendor_error != 0) {
    message += ", vendor's " + std::to_string(completion.vendor_error);
  }
  message += ")";
  return {meaning == nullptr ? ErrorCode::kDeviceError : meaning->code, std::move(message),
          std::string(meaning == nullptr ? "see the kernel's log" : meaning->hint)};
}

bool MayBeTriedAgain(WorkStatus status) {
  // Of the local queue pair: what a device says whose port went down meanwhile.
  return status == WorkStatus::kRetryExceeded || status == WorkStatus::kReceiverNotReady ||
         status == WorkStatus::kResponseTimeout || status == WorkStatus::kFlushed ||
         status == WorkStatus::kLocalQueuePair;
}

}  // namespace gantry::transport
