#include "sidecar/peer/link/buffer_import.h"

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
  imported.workload_generation = buffer.workload_generation;
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
    ASSIGN_OR_RETURN(auto target, transport::RdmaRemoteBufferOf(
                                      paths.queue_pairs, buffer.rdma_chunks, buffer.rdma_devices));
    targets->Add(wire::Path::kRdma, std::move(target));
  }
  if (paths.stage != nullptr && leads(wire::Path::kBounce)) {
    targets->Add(wire::Path::kBounce,
                 std::make_shared<transport::BounceRemoteBuffer>(paths.stage, buffer.id,
                                                                 buffer.generation, buffer.length));
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
    source.of_peer = true;
    source.exporter = exporter + "/" + std::to_string(allocation.id);
    if (allocation.identity_high != 0 || allocation.identity_low != 0) {
      source.identity = {allocation.identity_high, allocation.identity_low};
    }
  } else {
    const Status usable = CheckHostFd(fd->get(), allocation.size, writable, mapper.unsealed());
    // A file that is short for now is mapped, too: its transfers fail, and those of others do not.
    const bool short_for_now = !usable && usable.error().code == ErrorCode::kFdTooShort &&
                               !memory::CannotShrink(fd->get());
    if (!usable && !short_for_now) return Fail(usable.error());
  }
  source.fd = std::move(fd);
  source.size = allocation.size;
  source.writable = writable;
  return memory::MappedAllocation::Create(mapper, std::move(source));
}

}  // namespace gantry::peer
