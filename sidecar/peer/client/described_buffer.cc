#include "sidecar/peer/client/described_buffer.h"

#include <string>

#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/peer_identity.h"

namespace gantry::peer {

void KeepPossible(bool over_tcp, uint32_t version, std::vector<wire::PathReport>* paths) {
  for (wire::PathReport& report : *paths) {
    if (report.available && over_tcp && wire::InfoOf(report.path).shares_memory) {
      report = {report.path, false, std::string(wire::kReachedOverTcp)};
    }
    if (report.available && report.path == wire::Path::kTcp &&
        version < wire::kPeerVersionWithStreams) {
      report = {report.path, false,
                "both sidecars speak version " + std::to_string(version) +
                    " of the peer protocol, which has no data connections"};
    }
  }
}

Result<wire::PeerBuffer> TakeDescription(const v1::Description& message,
                                         const wire::BufferReference& reference) {
  if (message.has_problem()) return Fail(wire::FromMessage(message.problem()));
  ASSIGN_OR_RETURN(wire::PeerBuffer buffer, wire::FromMessage(message.buffer()));
  if (reference.workload_generation != 0 && buffer.workload_generation == 0) {
    return Fail(ErrorCode::kVersionMismatch,
                "the peer does not say which life of a workload a buffer is of",
                "update its sidecar, or name the workload without a generation");
  }
  if (reference.workload_generation != 0 &&
      reference.workload_generation != buffer.workload_generation) {
    return Fail(ErrorCode::kMalformedBody, "the peer described a buffer of another life");
  }
  const bool same_generation =
      reference.generation == 0 || reference.generation == buffer.generation;
  if (buffer.workload == reference.workload && buffer.name == reference.buffer && same_generation) {
    return buffer;
  }
  return Fail(ErrorCode::kMalformedBody, "the peer described another buffer than it was asked for");
}

}  // namespace gantry::peer
