#include "lib/wire/rdma_messages.h"

#include <algorithm>
#include <functional>
#include <string>

#include "lib/wire/peer_message_limit.h"

namespace gantry::wire {
namespace {

constexpr size_t kDeviceNameBytesMax = 64;
constexpr uint32_t k24Bits = 0xffffff;
constexpr uint32_t kMtuMin = 256;
constexpr uint32_t kMtuMax = 4096;
constexpr uint32_t kReadsMax = 65'535;
constexpr uint32_t kLeaseMax = 600'000;

Status CheckCount(std::string_view field, int count, int most) {
  return LimitOfPeer(field, static_cast<size_t>(count), static_cast<size_t>(most));
}

Result<Gid> GidOf(const std::string& bytes) {
  Gid gid;
  if (bytes.size() != gid.size()) {
    return Fail(ErrorCode::kMalformedBody, "a peer's gid has " + std::to_string(bytes.size()) +
                                               " bytes, not " + std::to_string(gid.size()));
  }
  std::copy(bytes.begin(), bytes.end(), gid.begin());
  return gid;
}
std::string BytesOf(const Gid& gid) { return {gid.begin(), gid.end()}; }

void ToMessage(const QueuePairAddress& address, proto::QueuePair* message) {
  message->set_number(address.number);
  message->set_packet_sequence(address.packet_sequence);
  message->set_lid(address.lid);
  message->set_gid(BytesOf(address.gid));
  message->set_mtu(address.mtu);
  message->set_reads_max(address.reads_max);
  message->set_flush_address(address.flush_address);
  message->set_flush_key(address.flush_key);
}

Result<QueuePairAddress> FromMessage(const proto::QueuePair& message) {
  const auto within = [](uint32_t value, uint32_t least, uint32_t most) {
    return value >= least && value <= most;
  };
  if (!within(message.number(), 0, k24Bits) || !within(message.packet_sequence(), 0, k24Bits) ||
      !within(message.lid(), 0, UINT16_MAX) || !within(message.mtu(), kMtuMin, kMtuMax) ||
      !within(message.reads_max(), 0, kReadsMax)) {
    return Fail(ErrorCode::kMalformedBody, "a number of a peer's queue pair is out of its range");
  }
  QueuePairAddress address;
  ASSIGN_OR_RETURN(address.gid, GidOf(message.gid()));
  address.number = message.number();
  address.packet_sequence = message.packet_sequence();
  address.lid = static_cast<uint16_t>(message.lid());
  address.mtu = message.mtu();
  address.reads_max = message.reads_max();
  address.flush_address = message.flush_address();
  address.flush_key = message.flush_key();
  return address;
}

}  // namespace

void ToMessage(std::span<const RdmaDeviceAddress> devices, proto::HelloReply* message) {
  for (const RdmaDeviceAddress& device : devices) {
    proto::RdmaDevice* part = message->add_rdma_devices();
    part->set_name(device.name);
    part->set_gid(BytesOf(device.gid));
    part->set_ethernet(device.ethernet);
    part->set_message_bytes_max(device.message_bytes_max);
  }
}

Result<std::vector<RdmaDeviceAddress>> RdmaDevicesOf(const proto::HelloReply& message) {
  RETURN_IF_ERROR(CheckCount("rdma_devices", message.rdma_devices_size(), kRdmaDevicesMax));
  std::vector<RdmaDeviceAddress> devices;
  for (const proto::RdmaDevice& part : message.rdma_devices()) {
    RETURN_IF_ERROR(LimitOfPeer("rdma_devices", part.name().size(), kDeviceNameBytesMax));
    ASSIGN_OR_RETURN(const Gid gid, GidOf(part.gid()));
    const uint32_t message_bytes_max = part.message_bytes_max();
    if (message_bytes_max != 0 && message_bytes_max < kMessageBytesMin) {
      return Fail(ErrorCode::kMalformedBody, "a peer's RDMA device takes messages of " +
                                                 std::to_string(message_bytes_max) + " bytes");
    }
    devices.push_back({part.name(), gid, part.ethernet(), message_bytes_max});
  }
  return devices;
}

void ToMessage(std::span<const RdmaChunk> chunks, proto::BufferDescriptor* message) {
  for (const RdmaChunk& chunk : chunks) ToMessage(chunk, message->add_rdma_chunks());
}

void ToMessage(const RdmaChunk& chunk, proto::RdmaChunk* message) {
  message->set_length(chunk.length);
  message->set_address(chunk.address);
  for (const uint32_t key : chunk.keys) message->add_keys(key);
}

Result<std::vector<RdmaChunk>> RdmaChunksOf(const proto::BufferDescriptor& message) {
  RETURN_IF_ERROR(CheckCount("rdma_chunks", message.rdma_chunks_size(), kPeerChunksMax));
  std::vector<RdmaChunk> chunks;
  chunks.reserve(static_cast<size_t>(message.rdma_chunks_size()));
  uint64_t left = message.length();
  for (const proto::RdmaChunk& part : message.rdma_chunks()) {
    RETURN_IF_ERROR(CheckCount("keys", part.keys_size(), kRdmaDevicesMax));
    const bool good = part.length() != 0 && part.length() <= left &&
                      part.address() <= UINT64_MAX - part.length() && part.keys_size() != 0 &&
                      part.keys_size() == message.rdma_chunks(0).keys_size();
    if (!good) {
      return Fail(
          ErrorCode::kMalformedBody,
          "chunk " + std::to_string(chunks.size()) +
              " of a peer's buffer goes beyond it, wraps, or has other keys than the first");
    }
    left -= part.length();
    chunks.push_back({part.length(), part.address(), {part.keys().begin(), part.keys().end()}});
  }
  if (!chunks.empty() && left != 0) {
    return Fail(ErrorCode::kMalformedBody,
                "the last " + std::to_string(left) + " bytes of a peer's buffer are in no chunk");
  }
  return chunks;
}

Result<std::vector<uint32_t>> RdmaDevicesOf(const proto::BufferDescriptor& message) {
  const int keys = message.rdma_chunks_size() == 0 ? 0 : message.rdma_chunks(0).keys_size();
  return DevicesOfKeys(message.rdma_devices(), keys);
}

Result<std::vector<uint32_t>> DevicesOfKeys(const google::protobuf::RepeatedField<uint32_t>& told,
                                            int keys) {
  if (told.empty()) return std::vector<uint32_t>();
  const bool ascending =
      std::adjacent_find(told.begin(), told.end(), std::greater_equal<>()) == told.end();
  if (told.size() != keys || !ascending || *told.rbegin() >= kRdmaDevicesMax) {
    return Fail(ErrorCode::kMalformedBody,
                "a peer's memory has keys for other devices than it names");
  }
  return std::vector<uint32_t>(told.begin(), told.end());
}

void ToMessage(std::span<const QueuePairRequest> requests,
               proto::ConnectQueuePairsRequest* message) {
  for (const QueuePairRequest& request : requests) {
    proto::QueuePair* part = message->add_queue_pairs();
    ToMessage(request.from, part);
    part->set_device(request.device);
  }
}

Result<std::vector<QueuePairRequest>> FromMessage(const proto::ConnectQueuePairsRequest& message) {
  RETURN_IF_ERROR(CheckCount("queue_pairs", message.queue_pairs_size(), kQueuePairsMax));
  std::vector<QueuePairRequest> requests;
  for (const proto::QueuePair& part : message.queue_pairs()) {
    if (part.device() >= kRdmaDevicesMax) {
      return Fail(ErrorCode::kMalformedBody,
                  "a peer asks for a device beyond any that it was told");
    }
    ASSIGN_OR_RETURN(const QueuePairAddress from, FromMessage(part));
    requests.push_back({part.device(), from});
  }
  if (requests.empty()) {
    return Fail(ErrorCode::kMalformedBody, "a peer asks for a connection without queue pairs");
  }
  return requests;
}

void ToMessage(const QueuePairGrant& grant, proto::ConnectQueuePairsReply* message) {
  message->set_connection(grant.connection);
  for (const QueuePairAddress& end : grant.ends) {
    proto::QueuePair* const part = message->add_queue_pairs();
    if (end.number != 0) ToMessage(end, part);
  }
  message->set_lease_ms(grant.lease_ms);
}

Result<QueuePairGrant> FromMessage(const proto::ConnectQueuePairsReply& message) {
  RETURN_IF_ERROR(CheckCount("queue_pairs", message.queue_pairs_size(), kQueuePairsMax));
  QueuePairGrant grant;
  grant.connection = message.connection();
  grant.lease_ms = std::min(message.lease_ms(), kLeaseMax);
  for (const proto::QueuePair& part : message.queue_pairs()) {
    QueuePairAddress end;
    if (part.number() != 0) {
      ASSIGN_OR_RETURN(end, FromMessage(part));
    }
    grant.ends.push_back(end);
  }
  return grant;
}

}  // namespace gantry::wire
