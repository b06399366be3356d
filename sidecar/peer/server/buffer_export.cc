#include "sidecar/peer/server/buffer_export.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "sidecar/transport/rdma/verbs/memory_region_set.h"

namespace gantry::peer {
namespace {

Status CheckAccess(const registry::Buffer::Description& description) {
  const wire::Access& access = description.access;
  if (access.remote_read || access.remote_write) return {};
  return Fail(ErrorCode::kPermissionDenied,
              "buffer '" + description.workload + "/" + description.name + "' is not open to peers",
              "register it with remote_read or remote_write");
}

// A descriptor of the same memory that cannot write.
Result<std::shared_ptr<const UniqueFd>> ReadOnly(const std::shared_ptr<const UniqueFd>& shared) {
  const UniqueFd& fd = *shared;
  if ((::fcntl(fd.get(), F_GETFL) & O_ACCMODE) == O_RDONLY) return shared;
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.valid()) return std::make_shared<const UniqueFd>(std::move(opened));
  return Fail(SystemError(ErrorCode::kNotExportable, "opening the memory for reading only", errno));
}

bool IsOnGpu(const std::shared_ptr<const memory::MappedAllocation>& allocation) {
  return allocation->kind() == wire::MemoryKind::kGpu;
}

void Refuse(wire::Path path, std::string reason, std::vector<wire::PathReport>* paths) {
  wire::PathReport& report = (*paths)[static_cast<size_t>(path)];
  if (report.available) report = {path, false, std::move(reason)};
}

constexpr char kOnGpu[] = "the buffer is GPU memory";
constexpr char kUnsealed[] = "the buffer's file can shrink";

// What a path cannot carry because of where this buffer's bytes lie.
void RefuseFor(const registry::Buffer::Allocations& allocations, const WhyNotStaged& why_not,
               std::vector<wire::PathReport>* paths) {
  const bool unsealed = std::any_of(allocations.begin(), allocations.end(),
                                    [](const auto& each) { return each->unsealed(); });
  if (unsealed && !why_not.unsealed_for_tcp.empty()) {
    Refuse(wire::Path::kTcp, std::string(kUnsealed) + ": " + why_not.unsealed_for_tcp, paths);
  }
  if (std::none_of(allocations.begin(), allocations.end(), IsOnGpu)) return;
  for (const wire::PathInfo& info : wire::kPathTable) {
    if (info.memory == wire::PathMemory::kHostOnly) Refuse(info.path, kOnGpu, paths);
  }
  if (!why_not.for_tcp.empty()) {
    Refuse(wire::Path::kTcp, std::string(kOnGpu) + ": " + why_not.for_tcp, paths);
  }
}

// A peer that only reads gets a descriptor for that, which the file's mode may not allow.
void RefuseUnopenable(const memory::MappedAllocation& allocation,
                      std::vector<wire::PathReport>* paths) {
  const auto opened = ReadOnly(allocation.fd());
  if (opened) return;
  for (const wire::PathInfo& info : wire::kPathTable) {
    if (!info.shares_memory) continue;
    Refuse(info.path,
           std::string(kUnsealed) + ", and its mode does not let this sidecar open it for peers: " +
               opened.error().message,
           paths);
  }
}

// Once it is known whether the devices have the buffer: peers reach it there, or what it is copied
// to, which memory of the host is not.
void RefuseBounce(const registry::Buffer::Allocations& allocations, const std::string& why_not,
                  wire::PeerBuffer* buffer) {
  if (!buffer->rdma_chunks.empty()) return;
  if (!std::all_of(allocations.begin(), allocations.end(), IsOnGpu)) {
    Refuse(wire::Path::kBounce, buffer->paths[static_cast<size_t>(wire::Path::kRdma)].reason,
           &buffer->paths);
  } else if (!why_not.empty()) {
    Refuse(wire::Path::kBounce, std::string(kOnGpu) + ": " + why_not, &buffer->paths);
  }
}

// What was registered, and nothing else.
void AddChunks(const registry::Buffer::NicRegistration& nic_registration,
               wire::PeerBuffer* buffer) {
  wire::PathReport& report = buffer->paths[static_cast<size_t>(wire::Path::kRdma)];
  if (!report.available) return;
  const auto* const set =
      nic_registration ? dynamic_cast<const transport::MemoryRegionSet*>(nic_registration->get())
                       : nullptr;
  if (set == nullptr) {
    report.available = false;
    report.reason =
        nic_registration ? "the buffer is on no RDMA device" : nic_registration.error().message;
    return;
  }
  if (set->chunks() > static_cast<size_t>(wire::kPeerChunksMax)) {
    report.available = false;
    report.reason = "the buffer has " + std::to_string(set->chunks()) + " chunks, a description " +
                    std::to_string(wire::kPeerChunksMax) + " at most";
    return;
  }
  buffer->rdma_devices = set->devices().List();
  buffer->rdma_chunks = set->ChunkDescriptors();
}

}  // namespace

Result<wire::PeerBuffer> ExportBuffer(registry::Buffer& buffer, std::vector<wire::PathReport> paths,
                                      const WhyNotStaged& why_not) {
  const registry::Buffer::Description& from = buffer.description();
  RETURN_IF_ERROR(CheckAccess(from));
  ASSIGN_OR_RETURN(const registry::Buffer::Use use, buffer.Acquire("peer API"));
  wire::PeerBuffer to;
  to.workload = from.workload;
  to.name = from.name;
  to.id = from.id;
  to.generation = from.generation;
  to.workload_generation = from.workload_generation;
  to.length = buffer.length();
  to.access = from.access;
  to.layout = from.layout;
  to.pieces = from.pieces.pieces();
  for (size_t i = 0; i < use.allocations().size(); ++i) {
    const memory::MappedAllocation& allocation = *use.allocations()[i];
    if (from.access.remote_write && !allocation.writable()) {
      return Fail(ErrorCode::kFdReadOnly, "the buffer's memory is registered for reading only");
    }
    wire::PeerAllocation& told = to.allocations.emplace_back();
    told = {from.allocation_ids[i], allocation.size(), allocation.writable(), allocation.kind(),
            allocation.gpu()};
    if (!IsOnGpu(use.allocations()[i])) continue;
    told.identity_high = allocation.identity().device;
    told.identity_low = allocation.identity().inode;
  }
  to.paths = std::move(paths);
  for (const auto& allocation : use.allocations()) {
    if (allocation->unsealed() && !from.access.remote_write) {
      RefuseUnopenable(*allocation, &to.paths);
    }
  }
  RefuseFor(use.allocations(), why_not, &to.paths);
  AddChunks(use.nic_registration(), &to);
  RefuseBounce(use.allocations(), why_not.for_bounce, &to);
  return to;
}

Result<std::shared_ptr<const UniqueFd>> ExportDescriptor(registry::Buffer& buffer,
                                                         const wire::WantedAllocation& wanted) {
  const registry::Buffer::Description& description = buffer.description();
  RETURN_IF_ERROR(CheckAccess(description));
  if (description.generation != wanted.buffer_generation) {
    return Fail(ErrorCode::kStaleGeneration, "the buffer was registered anew");
  }
  if (wanted.writable && !description.access.remote_write) {
    return Fail(ErrorCode::kPermissionDenied, "the buffer may be read by peers, not written",
                "register it with remote_write");
  }
  const std::vector<uint64_t>& ids = description.allocation_ids;
  const auto found = std::find(ids.begin(), ids.end(), wanted.allocation_id);
  if (found == ids.end()) {
    return Fail(ErrorCode::kPermissionDenied, "the allocation is not one of the buffer's");
  }
  ASSIGN_OR_RETURN(const registry::Buffer::Use use, buffer.Acquire("peer API"));
  const memory::MappedAllocation& allocation =
      *use.allocations()[static_cast<size_t>(found - ids.begin())];
  // A GPU's driver maps for reading and writing; who executes keeps to the access (the sidecars of
  // a node's directory are one trust domain).
  if (allocation.kind() == wire::MemoryKind::kGpu) return allocation.fd();
  if (!wanted.writable) return ReadOnly(allocation.fd());
  if (allocation.writable()) return allocation.fd();
  return Fail(ErrorCode::kFdReadOnly, "the buffer's memory is registered for reading only");
}

}  // namespace gantry::peer
