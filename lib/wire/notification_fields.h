// The fields of a notification in a request's body: alone, or within a transfer. `At` finds the
// content in the object that is being read. Plain constants; thread-safe.
#pragma once

#include <string>
#include <utility>

#include "lib/base/base64.h"
#include "lib/codec/schema.h"
#include "lib/wire/notification.h"
#include "lib/wire/transfer_request.h"

namespace gantry::wire {

using ContentFinder = NotificationContent& (*)(void* object);

// workload[@generation]
template <ContentFinder At>
constexpr Field NotificationToField() {
  return ReadTextField(
      "to", FieldKind::kText, Need::kRequired, [](void* object, std::string&& text) -> Status {
        NotificationContent& content = At(object);
        return TakeFencedWorkload(std::move(text), &content.to, &content.to_generation);
      });
}

// Base64.
template <ContentFinder At>
constexpr Field NotificationMessageField() {
  Field field{"message", FieldKind::kText, Need::kRequired, 0,
              static_cast<int64_t>(Base64Length(kNotificationBytesMax))};
  field.text = [](void* object, std::string&& text) -> Status {
    ASSIGN_OR_RETURN(At(object).message, ParseBase64(text));
    if (At(object).message.size() <= kNotificationBytesMax) return {};
    return Fail(ErrorCode::kInvalidArgument,
                "the message is longer than " + std::to_string(kNotificationBytesMax) + " bytes");
  };
  return field;
}

template <ContentFinder At>
constexpr Field NotificationRequestIdField() {
  Field field{"request_id", FieldKind::kText, Need::kOptional, 0,
              static_cast<int64_t>(kRequestIdBytesMax)};
  field.text = [](void* object, std::string&& text) -> Status {
    At(object).request_id = std::move(text);
    return {};
  };
  return field;
}

}  // namespace gantry::wire
