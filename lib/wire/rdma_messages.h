// Between the peer protocol's RDMA messages and plain values, as peer_messages.h has it: every
// count, key and address is checked on receipt. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/rdma_types.h"

namespace gantry::wire {

namespace proto = ::gantry::peer::v1;

inline constexpr int kRdmaDevicesMax = 64;  // of one sidecar

void ToMessage(std::span<const RdmaDeviceAddress> devices, proto::HelloReply* message);
Result<std::vector<RdmaDeviceAddress>> RdmaDevicesOf(const proto::HelloReply& message);

void ToMessage(const RdmaChunk& chunk, proto::RdmaChunk* message);
void ToMessage(std::span<const RdmaChunk> chunks, proto::BufferDescriptor* message);
// They cover exactly the buffer's length, each with as many keys as the first, and none wraps.
Result<std::vector<RdmaChunk>> RdmaChunksOf(const proto::BufferDescriptor& message);

// As many as the chunks have keys, ascending and none of them beyond those that there may be; or
// none.
Result<std::vector<uint32_t>> RdmaDevicesOf(const proto::BufferDescriptor& message);
Result<std::vector<uint32_t>> DevicesOfKeys(const google::protobuf::RepeatedField<uint32_t>& told,
                                            int keys);

// Without the session.
void ToMessage(std::span<const QueuePairRequest> requests,
               proto::ConnectQueuePairsRequest* message);
Result<std::vector<QueuePairRequest>> FromMessage(const proto::ConnectQueuePairsRequest& message);
void ToMessage(const QueuePairGrant& grant, proto::ConnectQueuePairsReply* message);
Result<QueuePairGrant> FromMessage(const proto::ConnectQueuePairsReply& message);

}  // namespace gantry::wire
