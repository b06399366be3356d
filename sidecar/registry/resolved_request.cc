#include "sidecar/registry/resolved_request.h"

#include <string>
#include <string_view>
#include <utility>

#include "sidecar/memory/gpu_handle_file.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::registry {
namespace {

constexpr size_t kNobody = static_cast<size_t>(-1);

// For each allocation a buffer that peers may write to, or kNobody.
std::vector<size_t> WrittenBy(const wire::RegistrationRequest& request,
                              const std::vector<CheckedBuffer>& buffers) {
  std::vector<size_t> written_by(request.allocations.size(), kNobody);
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!request.buffers[i].access.remote_write) continue;
    for (const uint32_t used : buffers[i].allocations) written_by[used] = i;
  }
  return written_by;
}

// Mapped for writing whenever the descriptor allows it: what the workload itself does with its
// memory is not limited by what its peers may do.
Result<memory::AllocationSource> HostSource(const wire::AllocationSpec& spec,
                                            std::shared_ptr<const UniqueFd> fd, size_t written_by,
                                            memory::Unsealed unsealed) {
  memory::AllocationSource source;
  source.kind = spec.kind;
  source.size = spec.size;
  auto writable = memory::CheckHostFd(fd->get(), spec.size, true, unsealed);
  source.writable = writable.has_value();
  if (!writable) {
    const bool read_only = writable.error().code == ErrorCode::kFdReadOnly;
    if (!read_only) return Fail(std::move(writable).error());
    if (written_by != kNobody) {
      return Fail(std::move(writable).error().WithField(ElementPointer("buffers", written_by) +
                                                        "/access/remote_write"));
    }
    RETURN_IF_ERROR(memory::CheckHostFd(fd->get(), spec.size, false, unsealed));
  }
  source.fd = std::move(fd);
  return source;
}

// The descriptor that a workload handed over; errors name `field`.
Result<std::shared_ptr<const UniqueFd>> FdOf(const WorkloadTable& workloads,
                                             std::string_view workload, std::string_view token,
                                             const char* field) {
  auto found = workloads.FdByToken(workload, token);
  if (!found) return Fail(std::move(found).error().WithField(field));
  return found;
}

// Whether it is a dma-buf at all the devices find out, which register it.
Result<memory::DmaBuf> DmaBufOf(const wire::AllocationSpec& spec, std::string_view workload,
                                const WorkloadTable& workloads) {
  memory::DmaBuf dma_buf;
  dma_buf.why_none = spec.no_dma_buf_because;
  if (!spec.dma_buf) return dma_buf;
  ASSIGN_OR_RETURN(dma_buf.fd,
                   FdOf(workloads, workload, spec.dma_buf->fd_token, "/dma_buf/fd_token"));
  if (Status is = memory::CheckDmaBufFd(dma_buf.fd->get(), spec.dma_buf->size); !is) {
    return Fail(Below("/dma_buf", std::move(is).error()));
  }
  dma_buf.offset = spec.dma_buf->offset;
  dma_buf.size = spec.dma_buf->size;
  return dma_buf;
}

// Whether it is what it was said to be the workers find out, who map it.
Result<memory::AllocationSource> GpuSource(const wire::AllocationSpec& spec,
                                           std::shared_ptr<const UniqueFd> fd,
                                           memory::DmaBuf dma_buf, std::string exporter) {
  memory::AllocationSource source;
  source.dma_buf = std::move(dma_buf);
  source.kind = spec.kind;
  source.size = spec.size;
  source.writable = true;
  source.gpu = spec.gpu();
  source.exporter = std::move(exporter);
  source.base = spec.base;
  source.fd = std::move(fd);
  if (source.gpu.form == wire::GpuExport::kDmaBuf) {
    RETURN_IF_ERROR(memory::CheckDmaBufFd(source.fd->get(), source.gpu.fd_offset + source.size));
  }
  if (source.gpu.form == wire::GpuExport::kHandle) {
    ASSIGN_OR_RETURN(UniqueFd file, memory::MakeHandleFile(spec.ipc_handle));
    source.fd = std::make_shared<const UniqueFd>(std::move(file));
  }
  return source;
}

// The process that holds the lease, where the kernel says which one it is: it may do so for several
// workloads. Else the registration, whose lease nobody else has.
std::string ExporterOf(const WorkloadInfo& workload) {
  return workload.process.empty() ? std::to_string(workload.generation) : workload.process;
}

Result<std::shared_ptr<AllocationRecord>> RecordOf(const wire::AllocationSpec& spec,
                                                   const WorkloadInfo& workload, size_t written_by,
                                                   const WorkloadTable& workloads,
                                                   AllocationTable& table) {
  std::shared_ptr<const UniqueFd> fd;
  if (!spec.fd_token.empty()) {
    ASSIGN_OR_RETURN(fd, FdOf(workloads, workload.name, spec.fd_token, "/fd_token"));
  }
  ASSIGN_OR_RETURN(memory::DmaBuf dma_buf, DmaBufOf(spec, workload.name, workloads));
  auto source = spec.kind == wire::MemoryKind::kGpu
                    ? GpuSource(spec, std::move(fd), std::move(dma_buf), ExporterOf(workload))
                    : HostSource(spec, std::move(fd), written_by, table.unsealed());
  if (!source) return Fail(std::move(source).error());
  return table.Find(workload.generation, *std::move(source));
}

bool SamePieces(const Buffer::Description& existing, const memory::PieceMap& asked,
                const std::vector<std::shared_ptr<AllocationRecord>>& allocations) {
  const auto& there = existing.pieces.pieces();
  const auto& here = asked.pieces();
  if (there.size() != here.size()) return false;
  for (size_t i = 0; i < here.size(); ++i) {
    if (existing.allocation_ids[there[i].allocation] != allocations[here[i].allocation]->id() ||
        there[i].offset != here[i].offset || there[i].length != here[i].length) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::shared_ptr<AllocationRecord>> ResolvedRequest::AllocationsOf(size_t buffer) const {
  std::vector<std::shared_ptr<AllocationRecord>> used;
  used.reserve(buffers[buffer].allocations.size());
  for (const uint32_t index : buffers[buffer].allocations) used.push_back(allocations[index]);
  return used;
}

Result<ResolvedRequest> ResolveRequest(const wire::RegistrationRequest& request,
                                       std::vector<CheckedBuffer> buffers,
                                       const WorkloadTable& workloads, AllocationTable& table) {
  ResolvedRequest resolved;
  auto workload = workloads.Get(request.workload);
  if (!workload) return Fail(std::move(workload).error().WithField("/workload"));
  resolved.workload_generation = workload->generation;
  resolved.buffers = std::move(buffers);
  resolved.allocations.reserve(request.allocations.size());

  const std::vector<size_t> written_by = WrittenBy(request, resolved.buffers);
  for (size_t i = 0; i < request.allocations.size(); ++i) {
    auto record = RecordOf(request.allocations[i], *workload, written_by[i], workloads, table);
    if (!record) {
      Error error = std::move(record).error();
      if (error.field.starts_with("/buffers")) return Fail(std::move(error));
      return Fail(Below(ElementPointer("allocations", i), std::move(error)));
    }
    resolved.allocations.push_back(*std::move(record));
  }
  return resolved;
}

Status CheckSame(const Buffer& existing, const wire::BufferSpec& asked,
                 const ResolvedRequest& resolved, size_t buffer) {
  const Buffer::Description& there = existing.description();
  const char* difference = nullptr;
  const char* field = nullptr;
  if (there.access != asked.access) {
    difference = "access";
    field = "/access";
  } else if (there.layout != asked.layout) {
    difference = "layout";
    field = "/layout";
  } else if (!SamePieces(there, resolved.buffers[buffer].pieces, resolved.AllocationsOf(buffer))) {
    difference = "pieces";
    field = "/pieces";
  }
  if (difference == nullptr) return {};
  return Fail(ErrorCode::kConflict,
              "buffer '" + there.name + "' is registered with other " + difference,
              "delete it first, or choose another name", ElementPointer("buffers", buffer) + field);
}

bool MayTakeMemory(const Buffer& existing, const wire::BufferSpec& asked,
                   const ResolvedRequest& resolved, size_t buffer) {
  const Buffer::Description& there = existing.description();
  return existing.IsAsleep() && there.access == asked.access && there.layout == asked.layout &&
         there.pieces.length() == resolved.buffers[buffer].pieces.length();
}

}  // namespace gantry::registry
