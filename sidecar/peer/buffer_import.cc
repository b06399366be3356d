#include "sidecar/peer/buffer_import.h"

#include <memory>
#include <utility>
#include <vector>

#include "sidecar/memory/host_memory.h"
#include "sidecar/transport/tcp/tcp_remote_buffer.h"

namespace gantry::peer {

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

Status AddressOverTcp(const wire::PeerBuffer& buffer,
                      const std::shared_ptr<transport::TcpPeer>& streams,
                      engine::RemoteBuffer* imported) {
  if (!buffer.paths[static_cast<size_t>(wire::Path::kTcp)].available) return {};
  const std::vector<uint64_t> sizes = {buffer.length};
  ASSIGN_OR_RETURN(imported->flat, memory::PieceMap::Create({{0, 0, buffer.length}}, sizes));
  imported->target = std::make_shared<transport::TcpRemoteBuffer>(streams, buffer.id,
                                                                  buffer.generation, buffer.length);
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
