// Any bytes as a message of the peer API: refused, or taken as something that the engine can use
// without looking twice. The first byte chooses the message.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/byte_range.h"
#include "lib/wire/fd_ticket_protocol.h"
#include "lib/wire/peer_execution_messages.h"
#include "lib/wire/peer_messages.h"
#include "lib/wire/rdma_messages.h"
#include "lib/wire/stage_messages.h"
#include "sidecar/peer/identity/peer_rules.h"
#include "sidecar/peer/link/buffer_import.h"

namespace gantry::peer {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void FuzzDescriptor(const std::string& bytes) {
  v1::BufferDescriptor message;
  if (!message.ParseFromString(bytes)) return;
  const auto buffer = wire::FromMessage(message);
  if (!buffer) return;
  v1::BufferDescriptor again;
  wire::ToMessage(*buffer, &again);
  Check(wire::FromMessage(again).has_value());
  uint64_t in_chunks = 0;
  for (const wire::RdmaChunk& chunk : buffer->rdma_chunks) {
    Check(chunk.keys.size() == buffer->rdma_chunks.front().keys.size() && !chunk.keys.empty());
    Check(chunk.address + chunk.length >= chunk.address);
    in_chunks += chunk.length;
  }
  Check(buffer->rdma_chunks.empty() || in_chunks == message.length());
  const std::vector<uint32_t>& devices = buffer->rdma_devices;
  Check(devices.empty() || devices.size() == buffer->rdma_chunks.at(0).keys.size());
  Check(std::adjacent_find(devices.begin(), devices.end(), std::greater_equal<>()) ==
        devices.end());
  const auto imported = ImportBuffer("peer", *buffer);
  if (!imported) return;
  Check(imported->length == imported->pieces.length() && imported->length > 0);
  uint64_t offset = 0;
  for (const wire::Piece& piece : imported->pieces.pieces()) {
    const memory::Extent extent = imported->pieces.Locate(offset, piece.length);
    Check(extent.allocation < buffer->allocations.size());
    Check(Fits(extent.offset, extent.length, buffer->allocations[extent.allocation].size));
    Check(EndOf(offset, piece.length, &offset));
  }
  if (const auto& layout = imported->layout; layout && layout->blocks > 0) {
    uint64_t last = 0;
    Check(Product(layout->blocks - 1, layout->block_stride, &last));
    Check(Fits(last, layout->block_bytes, imported->length));
  }
}

void FuzzRequests(const std::string& bytes) {
  if (v1::ConnectRequest message; message.ParseFromString(bytes)) {
    const auto wanted = wire::FromMessage(message);
    Check(!wanted || wanted->size() == static_cast<size_t>(message.wanted_size()));
  }
  if (v1::Revoked message; message.ParseFromString(bytes)) {
    const auto revocation = wire::FromMessage(message);
    Check(!revocation || revocation->grace_ms <= revocation->deadline_ms);
  }
  if (v1::OpenStreamsReply message; message.ParseFromString(bytes)) {
    const auto streams = wire::FromMessage(message, "fd00::1");
    Check(!streams || (streams->address.port != 0 && !streams->tickets.empty()));
  }
  if (v1::HelloReply message; message.ParseFromString(bytes)) {
    const auto paths = wire::FromMessage(message.paths());
    Check(!paths || paths->size() == static_cast<size_t>(wire::kPathCount));
    (void)wire::ChoosePeerVersion(wire::kPeerVersions,
                                  {message.version_min(), message.version_max()});
  }
  if (const auto rules = PeerRules::Parse(bytes)) (void)rules->GrantFor({"spiffe://a/b", "a.svc"});
  (void)MatchesPattern(std::string_view(bytes).substr(0, bytes.size() / 2),
                       std::string_view(bytes).substr(bytes.size() / 2));
  if (v1::UseHoldRequest message; message.ParseFromString(bytes)) {
    const auto use = wire::FromMessage(message);
    if (use) {
      v1::UseHoldRequest again;
      wire::ToMessage(*use, &again);
      Check(wire::FromMessage(again).has_value());
    }
  }
  if (v1::EndHoldUseRequest message; message.ParseFromString(bytes)) {
    (void)wire::FromMessage(message);
  }
  if (v1::NotifyRequest message; message.ParseFromString(bytes)) (void)wire::FromMessage(message);
  if (v1::Identity message; message.ParseFromString(bytes)) (void)wire::FromMessage(message);
  if (v1::Reference message; message.ParseFromString(bytes)) (void)wire::FromMessage(message);
  if (v1::Problem message; message.ParseFromString(bytes)) (void)wire::FromMessage(message);
}

void FuzzQueuePairs(const std::string& bytes) {
  if (v1::HelloReply message; message.ParseFromString(bytes)) {
    if (const auto devices = wire::RdmaDevicesOf(message)) {
      v1::HelloReply again;
      wire::ToMessage(*devices, &again);
      Check(wire::RdmaDevicesOf(again).value().size() == devices->size());
    }
  }
  if (v1::ConnectQueuePairsRequest message; message.ParseFromString(bytes)) {
    if (const auto requests = wire::FromMessage(message)) {
      Check(!requests->empty());
      for (const auto& request : *requests) Check(request.device < wire::kRdmaDevicesMax);
      v1::ConnectQueuePairsRequest again;
      wire::ToMessage(*requests, &again);
      Check(wire::FromMessage(again).value().size() == requests->size());
    }
  }
  if (v1::ConnectQueuePairsReply message; message.ParseFromString(bytes)) {
    if (const auto grant = wire::FromMessage(message)) {
      for (const auto& end : grant->ends) {  // number 0: it was not made
        Check(end.number == 0 || (end.number >> 24 == 0 && end.mtu >= 256));
      }
      v1::ConnectQueuePairsReply again;
      wire::ToMessage(*grant, &again);
      Check(wire::FromMessage(again).value().ends.size() == grant->ends.size());
    }
  }
}

void FuzzStages(const std::string& bytes) {
  if (v1::OpenStageRequest message; message.ParseFromString(bytes)) {
    const auto slices = wire::SlicesOf(message);
    Check(!slices || (*slices >= 1 && *slices <= wire::kStageSlicesMax));
  }
  if (v1::OpenStageReply message; message.ParseFromString(bytes)) {
    if (const auto grant = wire::FromMessage(message)) {
      Check(grant->stage != 0 && grant->slice_bytes != 0 && !grant->slices.empty());
      const size_t keys = grant->slices.front().keys.size();
      Check(keys != 0 && (grant->devices.empty() || grant->devices.size() == keys));
      for (const wire::RdmaChunk& slice : grant->slices) {
        Check(slice.keys.size() == keys && slice.length == grant->slice_bytes);
        Check(slice.address + slice.length >= slice.address);
      }
      v1::OpenStageReply again;
      wire::ToMessage(*grant, &again);
      Check(wire::FromMessage(again).value().slices == grant->slices);
    }
  }
  if (v1::CopyStagedRequest message; message.ParseFromString(bytes)) {
    if (const auto move = wire::FromMessage(message)) {
      Check(move->stage != 0 && move->time_ms != 0 && !move->slices.empty());
      uint64_t total = 0;
      for (const wire::StagedMove::Range& range : move->ranges) {
        uint64_t end = 0;
        Check(range.buffer < move->buffers.size() && range.length != 0);
        Check(EndOf(range.offset, range.length, &end) && EndOf(total, range.length, &total));
      }
      Check(total != 0);
      std::vector<uint32_t> slices = move->slices;
      std::sort(slices.begin(), slices.end());
      Check(std::adjacent_find(slices.begin(), slices.end()) == slices.end());
      Check(slices.back() < wire::kStageSlicesMax);
      v1::CopyStagedRequest again;
      wire::ToMessage(*move, &again);
      Check(wire::FromMessage(again).value().slices == move->slices);
    }
  }
  if (v1::CopyStagedReply message; message.ParseFromString(bytes)) {
    (void)wire::FromMessage(message);
  }
}

void FuzzExecutions(const std::string& bytes) {
  if (v1::ExecuteRequest message; message.ParseFromString(bytes)) {
    if (const auto execution = wire::FromMessage(message)) {
      v1::ExecuteRequest again;
      wire::ToMessage(*execution, &again);
      const auto taken = wire::FromMessage(again);
      Check(taken && *taken == *execution);
      for (const wire::TransferRange& range : execution->ranges) {
        Check(range.local_index < execution->callers.size());
        Check(range.remote_index < execution->callees.size());
      }
    }
  }
  if (v1::ExecuteEvent message; message.ParseFromString(bytes)) {
    (void)wire::FromMessage(message.ended());
    (void)wire::PathByNumber(message.accepted().path());
    (void)wire::FromMessage(message.accepted().paths());
  }
}

void FuzzTickets(const std::string& bytes) {
  if (const auto request = wire::DecodeFdTicketRequest(bytes)) {
    Check(wire::Encode(*request) == bytes);
  }
  if (const auto count = wire::DecodeFdTicketReply(bytes)) {
    Check(*wire::DecodeFdTicketReply(wire::EncodeFdTicketReply(*count)) == *count);
  }
}

}  // namespace
}  // namespace gantry::peer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'd') gantry::peer::FuzzDescriptor(bytes);
  if (data[0] == 'e') gantry::peer::FuzzExecutions(bytes);
  if (data[0] == 'q') gantry::peer::FuzzQueuePairs(bytes);
  if (data[0] == 's') gantry::peer::FuzzStages(bytes);
  if (data[0] == 'r') gantry::peer::FuzzRequests(bytes);
  if (data[0] == 't') gantry::peer::FuzzTickets(bytes);
  return 0;
}
