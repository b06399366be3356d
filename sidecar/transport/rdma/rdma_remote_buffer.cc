#include "sidecar/transport/rdma/rdma_remote_buffer.h"

#include <string>

#include "sidecar/transport/rdma/rdma_peer.h"

namespace gantry::transport {

// Keys are told for the devices that have the memory, and found by the device's number.
Result<std::shared_ptr<const RdmaRemoteBuffer>> RdmaRemoteBufferOf(
    std::shared_ptr<RdmaPeer> peer, std::vector<wire::RdmaChunk> chunks,
    std::vector<uint32_t> devices) {
  const size_t peer_devices = peer->peer_devices();
  if (devices.empty()) {
    for (uint32_t i = 0; i < peer_devices; ++i) devices.push_back(i);
  }
  const size_t keys = chunks.empty() ? 0 : chunks.front().keys.size();
  if (keys == 0 || keys != devices.size() || devices.back() >= peer_devices) {
    return Fail(ErrorCode::kMalformedBody, "the peer's chunks have " + std::to_string(keys) +
                                               " keys, for " + std::to_string(devices.size()) +
                                               " of its " + std::to_string(peer_devices) +
                                               " RDMA devices");
  }
  DeviceSet set;
  for (const uint32_t device : devices) set.Add(device);
  for (wire::RdmaChunk& chunk : chunks) {
    std::vector<uint32_t> by_device(peer_devices);
    for (size_t i = 0; i < keys; ++i) by_device[devices[i]] = chunk.keys[i];
    chunk.keys = std::move(by_device);
  }
  return std::make_shared<const RdmaRemoteBuffer>(std::move(peer), std::move(chunks), set);
}

}  // namespace gantry::transport
