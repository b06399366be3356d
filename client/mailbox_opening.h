// Asks the sidecar for a mailbox beside a connection to it. By one thread for a connection.
#pragma once

#include <optional>

#include "lib/base/clock.h"
#include "lib/base/mailbox.h"
#include "lib/base/result.h"

namespace gantry::client {

struct OpenedMailbox {
  enum class Outcome {
    kOpened,
    kNotNow,  // the sidecar has given out as many as it may
    kNever,   // it knows none, or one that is not known here
  };
  Outcome outcome = Outcome::kNever;
  std::optional<Mailbox> mailbox;
};

// Over a connected socket that no request is on. After an error the connection is of no use any
// more: kPeerLost, kDeadlineExceeded, or what keeps this process from receiving descriptors.
Result<OpenedMailbox> OpenMailbox(int socket, TimePoint deadline);

}  // namespace gantry::client
