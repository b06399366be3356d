// Serialises a transfer or an event for the API. Thread-safe.
#pragma once

#include "lib/codec/body_writer.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/messaging/transfer_status.h"

namespace gantry::api {

void WriteTransfer(const engine::TransferStatus& transfer, wire::BodyWriter* writer);
void WriteEvent(const engine::Event& event, wire::BodyWriter* writer);

}  // namespace gantry::api
