// What the JSON and the CBOR fuzzer do alike: every reader gets the bytes, and what is accepted
// must hold what the readers promise. Used by one thread at a time.
#pragma once

#include <cstdlib>
#include <string_view>

#include "lib/wire/hold_body.h"
#include "lib/wire/registration_body.h"
#include "lib/wire/request_bodies.h"
#include "lib/wire/transfers_body.h"
#include "lib/wire/view_body.h"

namespace gantry::wire {

inline void Demand(bool holds) {
  if (!holds) std::abort();
}

inline void CheckTransfer(const TransferRequest& request) {
  const bool by_view = !request.view.empty();
  Demand(!request.workload.empty());
  Demand(request.local.empty() == by_view && request.remote.empty() == by_view);
  Demand(request.by_blocks ? request.ranges.empty() : !request.ranges.empty());
  Demand(by_view || request.local_blocks.size() == request.remote_blocks.size());
  Demand(!by_view || request.groups.empty() != request.local_blocks.empty());
  for (const TransferGroup& group : request.groups) {
    Demand(by_view && !group.local_blocks.empty() && !group.remote_blocks.empty());
    Demand(group.layers.empty() ||
           (group.layers.size() == 2 && group.layers[0] <= group.layers[1]));
  }
  Demand(!request.fence || (request.fence->waits && request.fence->value > 0));
  for (const TransferRange& range : request.ranges) {
    Demand(range.length <= INT64_MAX && range.local_offset <= INT64_MAX);
  }
  for (const BufferReference& remote : request.remote) {
    const auto again = ParseReference(FormatReference(remote), "", 3);
    Demand(again && *again == remote);
  }
  Demand(request.user_data.size() <= static_cast<size_t>(kUserDataBytesMax));
}

// A refusal says why, with a code of a client's mistake.
template <typename Body>
void CheckRefusal(const Result<Body>& body) {
  if (body) return;
  const ErrorCode code = body.error().code;
  Demand(code == ErrorCode::kMalformedBody || code == ErrorCode::kInvalidArgument ||
         code == ErrorCode::kBodyTooLarge);
  Demand(!body.error().message.empty());
}

inline void ReadEveryBody(BodyFormat format, std::string_view bytes) {
  const auto transfers = ReadTransferBody(format, bytes);
  CheckRefusal(transfers);
  if (transfers) {
    Demand(transfers->is_list || transfers->requests.size() == 1);
    for (const TransferRequest& request : transfers->requests) CheckTransfer(request);
  }
  const auto registration = ReadRegistrationBody(format, bytes);
  CheckRefusal(registration);
  if (registration) Demand(!registration->buffers.empty() && !registration->workload.empty());
  const auto view = ReadViewBody(format, bytes);
  CheckRefusal(view);
  if (view) {
    Demand(!view->workload.empty() && !view->remote_workload.empty() && !view->groups.empty());
    for (const ViewGroup& group : view->groups) Demand(!group.pairs.empty());
  }
  CheckRefusal(ReadWorkloadBody(format, bytes));
  CheckRefusal(ReadResolveBody(format, bytes));
  CheckRefusal(ReadSuspendBody(format, bytes));
  CheckRefusal(ReadResumeBody(format, bytes));
  CheckRefusal(ReadPeerBody(format, bytes));
  CheckRefusal(ReadPollBody(format, bytes));
  CheckRefusal(ReadHoldBody(format, bytes));
  CheckRefusal(ReadHoldExtension(format, bytes));
  const auto notification = ReadNotificationBody(format, bytes);
  CheckRefusal(notification);
  if (notification) Demand(notification->content.message.size() <= kNotificationBytesMax);
}

}  // namespace gantry::wire
