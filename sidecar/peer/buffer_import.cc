#include "sidecar/peer/buffer_import.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/memory/host_memory.h"
#include "sidecar/transport/bounce/bounce_remote_buffer.h"
#include "sidecar/transport/rdma/rdma_remote_buffer.h"
#include "sidecar/transport/tcp/tcp_remote_buffer.h"

namespace gantry::peer {
namespace {

class FlatTargets final : public transport::RemoteTarget {
 public:
  explicit FlatTargets(uint64_t length) : length_(length) {}

  void Add(wire::Path path, std::shared_ptr<const RemoteTarget> target) {
    by_path_[static_cast<size_t>(path)] = std::move(target);
    empty_ = false;
  }
  bool empty() const { return empty_; }

  uint64_t length() const override { return length_; }
  const RemoteTarget* Over(wire::Path path) const override {
    return by_path_[static_cast<size_t>(path)].get();
  }

 private:
  const uint64_t length_;
  bool empty_ = true;
  std::array<std::shared_ptr<const RemoteTarget>, wire::kPathCount> by_path_;
};

// Keys are told for the devices that have the buffer, and found by the device's number.
Result<std::shared_ptr<const transport::RemoteTarget>> RdmaTargetOf(
    const wire::PeerBuffer& buffer, const std::shared_ptr<transport::RdmaPeer>& queue_pairs) {
  const size_t peer_devices = queue_pairs->peer_devices();
  std::vector<uint32_t> devices = buffer.rdma_devices;
  for (uint32_t i = 0; buffer.rdma_devices.empty() && i < peer_devices; ++i) devices.push_back(i);
  const size_t keys = buffer.rdma_chunks.front().keys.size();
  if (keys != devices.size() || devices.back() >= peer_devices) {
    return Fail(ErrorCode::kMalformedBody, "the peer's chunks have " + std::to_string(keys) +
                                               " keys, for " + std::to_string(devices.size()) +
                                               " of its " + std::to_string(peer_devices) +
                                               " RDMA devices");
  }
  transport::DeviceSet set;
  for (const uint32_t device : devices) set.Add(device);
  std::vector<wire::RdmaChunk> chunks = buffer.rdma_chunks;
  for (wire::RdmaChunk& chunk : chunks) {
    std::vector<uint32_t> by_device(peer_devices);
    for (size_t i = 0; i < keys; ++i) by_device[devices[i]] = chunk.keys[i];
    chunk.keys = std::move(by_device);
  }
  return std::make_shared<const transport::RdmaRemoteBuffer>(queue_pairs, std::move(chunks), set);
}

}  // namespace

Result<engine::RemoteBuffer> ImportBuffer(const std::string& peer, const wire::PeerBuffer& buffer) {
  std::vector<uint64_t> sizes;
  sizes.reserve(buffer.allocations.size());
  for (const wire::PeerAllocation& allocation : buffer.allocations) {
    sizes.push_back(allocation.size);
  }
  engine::RemoteBuffer imported;
  ASSIGN_OR_RETURN(imported.pieces, memory::PieceMap::Create(buffer.pieces, sizes));
  if (imported.pieces.length() != buffer.length) {
    return Fail(ErrorCode::kMalformedBody,
                "the peer says that the buffer has " + std::to_string(buffer.length) +
                    " bytes, its pieces have " + std::to_string(imported.pieces.length()));
  }
  if (buffer.layout) RETURN_IF_ERROR(wire::CheckLayout(*buffer.layout, buffer.length));
  imported.reference = {peer, buffer.workload, buffer.name, buffer.generation};
  imported.length = buffer.length;
  imported.access = buffer.access;
  imported.layout = buffer.layout;
  imported.allocations.resize(buffer.allocations.size());
  imported.paths = buffer.paths;
  return imported;
}

Status AddressFlat(const wire::PeerBuffer& buffer, const PeerPaths& paths,
                   engine::RemoteBuffer* imported) {
  const auto leads = [&](wire::Path path) {
    return buffer.paths[static_cast<size_t>(path)].available;
  };
  auto targets = std::make_shared<FlatTargets>(buffer.length);
  if (paths.streams != nullptr && leads(wire::Path::kTcp)) {
    targets->Add(wire::Path::kTcp, std::make_shared<transport::TcpRemoteBuffer>(
                                       paths.streams, buffer.id, buffer.generation, buffer.length));
  }
  if (paths.queue_pairs != nullptr && leads(wire::Path::kRdma) && !buffer.rdma_chunks.empty()) {
    ASSIGN_OR_RETURN(auto target, RdmaTargetOf(buffer, paths.queue_pairs));
    targets->Add(wire::Path::kRdma, std::move(target));
  }
  if (paths.stage != nullptr && leads(wire::Path::kBounce)) {
    targets->Add(wire::Path::kBounce, std::make_shared<transport::BounceRemoteBuffer>(
                                          paths.stage, buffer.id, buffer.generation,
                                          buffer.length));
  }
  if (targets->empty()) return {};
  const std::vector<uint64_t> sizes = {buffer.length};
  ASSIGN_OR_RETURN(imported->flat, memory::PieceMap::Create({{0, 0, buffer.length}}, sizes));
  imported->target = std::move(targets);
  return {};
}

Result<std::shared_ptr<const memory::MappedAllocation>> MapDescriptor(
    memory::MemoryMapper& mapper, const wire::PeerAllocation& allocation,
    std::shared_ptr<const UniqueFd> fd, bool writable, const std::string& exporter) {
  memory::AllocationSource source;
  source.kind = allocation.kind;
  if (source.kind == wire::MemoryKind::kGpu) {
    source.gpu = allocation.gpu;
    source.exporter = exporter + "/" + std::to_string(allocation.id);
  } else {
    RETURN_IF_ERROR(memory::CheckHostFd(fd->get(), allocation.size, writable));
  }
  source.fd = std::move(fd);
  source.size = allocation.size;
  source.writable = writable;
  return memory::MappedAllocation::Create(mapper, std::move(source));
}

}  // namespace gantry::peer
