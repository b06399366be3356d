#include "sidecar/worker/pool/mapping_directory.h"

#include <algorithm>
#include <limits>
#include <string>

#include "lib/base/log.h"
#include "sidecar/worker/process/mapping_table.h"
#include "sidecar/worker/process/probe_list.h"

namespace gantry::worker {
Result<memory::MappingId> MappingDirectory::Map(const memory::AllocationSource& source,
                                                bool in_turn) {
  if (source.fd == nullptr) return Fail(ErrorCode::kNotExportable, "no descriptor to map");
  const MutexLock lock(mutex_);
  Participants workers = UsableWorkers(source.kind);
  ASSIGN_OR_RETURN(const memory::MappingId id, TakeId());
  const Status status = ExchangeWith(&workers, MapRequest(id, source), source.fd->get(), in_turn);
  for (size_t i = 0; i < workers.slots.size(); ++i) {
    if (!source.pinned) workers.slots[i]->CountMap(workers.replies[i].status.has_value());
  }
  const bool mapped = std::any_of(workers.replies.begin(), workers.replies.end(),
                                  [](const WorkerReply& reply) { return bool(reply.status); });
  if (!status || !mapped) {
    RollBack(workers, id);
    Release(id);
    if (!status) return Fail(status.error());
    return Fail(ErrorCode::kWorkerLost, "no copy worker could map the allocation",
                "the workers are being replaced; try again");
  }
  mappings_[id.slot] = {id.generation, source, {}};
  CountGpuMemory(&mappings_[id.slot]);
  for (size_t i = 0; i < workers.slots.size(); ++i) {
    if (workers.replies[i].status && !source.pinned) ++workers.slots[i]->mapped;
  }
  return id;
}

Status MappingDirectory::Unmap(memory::MappingId id) {
  const MutexLock lock(mutex_);
  if (id.generation == 0 || id.slot >= mappings_.size() ||
      mappings_[id.slot].generation != id.generation) {
    return Fail(ErrorCode::kStaleGeneration, "the mapping was released before");
  }
  Participants workers = UsableWorkers(mappings_[id.slot].source.kind);
  WorkerRequest request;
  request.kind = RequestKind::kUnmap;
  request.mapping = id;
  Status status = ExchangeWith(&workers, request, /*fd=*/-1);
  const bool counts = !mappings_[id.slot].source.pinned;
  for (size_t i = 0; i < workers.slots.size(); ++i) {
    if (workers.replies[i].status && counts) --workers.slots[i]->mapped;
  }
  DiscountGpuMemory(mappings_[id.slot]);
  Release(id);
  return status;
}

Result<std::optional<memory::ProbeMismatch>> MappingDirectory::Compare(
    std::span<const memory::MemoryProbe> probes) {
  for (size_t done = 0, some = 0; done < probes.size(); done += some) {
    some = std::min(OfOneKind(probes.subspan(done)), kProbesPerListMax);
    ASSIGN_OR_RETURN(auto mismatch, CompareSome(probes.subspan(done, some)));
    if (!mismatch) continue;
    mismatch->probe += done;
    return mismatch;
  }
  return std::nullopt;
}

wire::MemoryKind MappingDirectory::KindOf(memory::MappingId id) const {
  return id.slot < mappings_.size() ? mappings_[id.slot].source.kind : wire::MemoryKind::kHost;
}

size_t MappingDirectory::OfOneKind(std::span<const memory::MemoryProbe> probes) const {
  const MutexLock lock(mutex_);
  const wire::MemoryKind kind = KindOf(probes.front().mapping);
  size_t some = 1;
  while (some < probes.size() && KindOf(probes[some].mapping) == kind) ++some;
  return some;
}

Result<std::optional<memory::ProbeMismatch>> MappingDirectory::CompareSome(
    std::span<const memory::MemoryProbe> probes) {
  ASSIGN_OR_RETURN(const SharedBlock list, MakeProbeList(probes));
  const MutexLock lock(mutex_);
  Participants workers = UsableWorkers(KindOf(probes.front().mapping));
  WorkerRequest request;
  request.kind = RequestKind::kCompare;
  request.size = probes.size();
  RETURN_IF_ERROR(ExchangeWith(&workers, request, list.fd().get()));
  bool compared = false;
  for (size_t i = 0; i < workers.replies.size(); ++i) {
    const WorkerReply& reply = workers.replies[i];
    if (!reply.status) {  // over what it looked at, perhaps: nobody knows what it saw
      return Fail(ErrorCode::kWorkerLost, "a copy worker was lost while it looked at the memory",
                  "it is being replaced; try again");
    }
    compared = true;
    if (reply.said.empty()) continue;
    ASSIGN_OR_RETURN(memory::ProbeMismatch mismatch, ParseMismatch(reply.said, probes.size()));
    mismatch.finder = "copy worker " + std::to_string(workers.slots[i]->index);
    return mismatch;
  }
  if (compared) return std::nullopt;
  return Fail(ErrorCode::kWorkerLost, "no copy worker was there to look at the memory",
              "the workers are being replaced; try again");
}

void MappingDirectory::CountGpuMemory(Mapping* mapping) {
  if (mapping->source.kind != wire::MemoryKind::kGpu) return;
  // Without an identity (its handle cannot be read any more) it counts by itself.
  mapping->identity =
      memory::IdentityOf(mapping->source).value_or(memory::MemoryIdentity{0, mapping->generation});
  if (gpu_mappings_[mapping->identity]++ == 0) gpu_bytes_ += mapping->source.size;
}

void MappingDirectory::DiscountGpuMemory(const Mapping& mapping) {
  if (mapping.source.kind != wire::MemoryKind::kGpu) return;
  const auto found = gpu_mappings_.find(mapping.identity);
  if (--found->second > 0) return;
  gpu_mappings_.erase(found);
  gpu_bytes_ -= mapping.source.size;
}

Status MappingDirectory::Restore(WorkerSlot& slot, WorkerProcess& process, bool tolerant,
                                 Status* has_gpu) {
  const MutexLock lock(mutex_);
  if (slot.gpu >= 0) RETURN_IF_ERROR(LeavesRoomForPids(process));
  for (uint32_t number = 0; number < mappings_.size(); ++number) {
    const Mapping& mapping = mappings_[number];
    const bool on_gpu = mapping.source.kind == wire::MemoryKind::kGpu;
    if (mapping.generation == 0 || (on_gpu && slot.gpu < 0)) continue;
    Status mapped =
        tolerant && suspects_.contains(mapping.generation)
            ? Fail(ErrorCode::kNotExportable, "new copy workers were lost over an allocation")
            : MapInOne(slot, process, number);
    if (mapped) continue;
    if (!tolerant || mapped.error().code == ErrorCode::kWorkerLost) return mapped;
    log::Error("a new copy worker works without an allocation that it cannot map",
               {{"worker", slot.index}, {"slot", number}, {"error", mapped.error()}});
    if (!on_gpu) continue;
    RETURN_IF_ERROR(UnmapGpuMemory(slot, process, number));
    *has_gpu = Fail(mapped.error());
    slot.SetGpu({}, *has_gpu);
  }
  // Still under the lock: the next Map already counts on this worker.
  if (slot.BecomeUsable(process)) return {};
  return Fail(ErrorCode::kWorkerLost, "it died while it was being set up");
}

Status MappingDirectory::LeavesRoomForPids(const WorkerProcess& process) {
  const bool conflicts = std::any_of(mappings_.begin(), mappings_.end(), [&](const Mapping& each) {
    return each.generation != 0 && memory::IsByHandle(each.source) &&
           each.source.gpu.exporter_pid == process.pid();
  });
  if (!conflicts) return {};
  ++pid_conflicts_;
  return Fail(ErrorCode::kWorkerLost,
              "it has the PID " + std::to_string(process.pid()) +
                  " of an owner of GPU memory, whose memory it could not map",
              "the next one has another");
}

Status MappingDirectory::MapInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) {
  const Mapping& mapping = mappings_[number];
  WorkerRequest request = MapRequest({number, mapping.generation}, mapping.source);
  request.number = ++last_request_;
  WorkerReply reply{&process, {}, false};
  Exchange({&reply, 1}, request, mapping.source.fd->get(), patience_);
  const bool counts = !mapping.source.pinned;  // the sidecar's own is none of the workloads'
  if (counts) slot.CountMap(reply.status.has_value());
  if (reply.lost) {
    suspects_.insert(mapping.generation);
    return Fail(ErrorCode::kWorkerLost, reply.status.error().message, reply.status.error().hint);
  }
  if (!reply.status) return reply.status;
  suspects_.erase(mapping.generation);
  if (counts) ++slot.mapped;
  return {};
}

Status MappingDirectory::UnmapGpuMemory(WorkerSlot& slot, WorkerProcess& process, uint32_t end) {
  for (uint32_t number = 0; number < end; ++number) {
    const Mapping& mapping = mappings_[number];
    if (mapping.generation == 0 || mapping.source.kind != wire::MemoryKind::kGpu) continue;
    RETURN_IF_ERROR(UnmapInOne(slot, process, number));
  }
  return {};
}

Status MappingDirectory::UnmapInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) {
  WorkerRequest request;
  request.kind = RequestKind::kUnmap;
  request.mapping = {number, mappings_[number].generation};
  request.number = ++last_request_;
  WorkerReply reply{&process, {}, false};
  Exchange({&reply, 1}, request, /*fd=*/-1, patience_);
  if (!reply.status) {
    return Fail(ErrorCode::kWorkerLost, "it kept memory: " + reply.status.error().message,
                reply.status.error().hint);
  }
  if (!mappings_[number].source.pinned) --slot.mapped;
  return {};
}

Status MappingDirectory::PinInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) {
  RETURN_IF_ERROR(UnmapInOne(slot, process, number));
  const Status mapped = MapInOne(slot, process, number);
  if (mapped) return {};
  return Fail(ErrorCode::kWorkerLost, "it is without memory that it had: " + mapped.error().message,
              mapped.error().hint);
}

Result<bool> MappingDirectory::OpenGpu(WorkerSlot& slot, WorkerProcess& process,
                                       GpuRegistry& gpu_registry) {
  const MutexLock lock(mutex_);
  if (slot.state.load() != WorkerState::kUsable || slot.gpu >= 0) return true;
  WorkerRequest request;
  request.kind = RequestKind::kOpenGpu;
  request.number = ++last_request_;
  WorkerReply reply{&process, {}, false};
  Exchange({&reply, 1}, request, /*fd=*/-1, {std::min(patience_.longest, patience_.lag), {}});
  if (reply.lost) {
    slot.End();
    return Fail(ErrorCode::kWorkerLost, reply.status.error().message, reply.status.error().hint);
  }
  if (!reply.status) return Fail(reply.status.error());
  if (reply.said.empty()) return false;
  const Status mapped = MapGpuMemory(slot, process);
  if (!mapped) {
    if (mapped.error().code == ErrorCode::kWorkerLost) slot.End();
    return Fail(mapped.error());
  }
  // Still under the lock: the next Map already counts on its GPU.
  slot.SetGpu(gpu_registry.Take(slot.index, GreetingOf({}, reply.said)), {});
  return true;
}

Status MappingDirectory::MapGpuMemory(WorkerSlot& slot, WorkerProcess& process) {
  RETURN_IF_ERROR(LeavesRoomForPids(process));
  for (uint32_t number = 0; number < mappings_.size(); ++number) {
    const Mapping& mapping = mappings_[number];
    if (mapping.generation != 0 && mapping.source.pinned) {
      RETURN_IF_ERROR(PinInOne(slot, process, number));
    }
    if (mapping.generation == 0 || mapping.source.kind != wire::MemoryKind::kGpu) continue;
    Status mapped =
        suspects_.contains(mapping.generation)
            ? Fail(ErrorCode::kNotExportable, "new copy workers were lost over an allocation")
            : MapInOne(slot, process, number);
    if (mapped) continue;
    if (mapped.error().code == ErrorCode::kWorkerLost) return mapped;
    RETURN_IF_ERROR(UnmapGpuMemory(slot, process, number));
    // Not for good, whatever the worker called it: the allocation may go.
    return Fail(ErrorCode::kResourceExhausted,
                "it could not map all GPU memory: " + mapped.error().message, mapped.error().hint);
  }
  return {};
}

MappingDirectory::Participants MappingDirectory::UsableWorkers(wire::MemoryKind kind) const {
  Participants workers;
  for (const std::unique_ptr<WorkerSlot>& slot : slots_) {
    std::shared_ptr<WorkerProcess> process = slot->process();
    if (slot->state.load() != WorkerState::kUsable || process == nullptr) continue;
    if (kind == wire::MemoryKind::kGpu && slot->gpu < 0) continue;
    workers.slots.push_back(slot.get());
    workers.replies.push_back({process.get(), {}, false});
    workers.processes.push_back(std::move(process));
  }
  return workers;
}

Status MappingDirectory::ExchangeWith(Participants* participants, WorkerRequest request, int fd,
                                      bool in_turn) {
  request.number = ++last_request_;
  (in_turn ? ExchangeInTurn : Exchange)(participants->replies, request, fd, patience_);
  Status first;
  for (size_t i = 0; i < participants->replies.size(); ++i) {
    const WorkerReply& reply = participants->replies[i];
    if (reply.status) continue;
    if (!reply.lost) {
      if (first) first = reply.status;
      continue;
    }
    log::Warning("copy worker lost in a request about a mapping",
                 {{"worker", participants->slots[i]->index}, {"error", reply.status.error()}});
    participants->slots[i]->End();
  }
  return first;
}

WorkerRequest MappingDirectory::MapRequest(memory::MappingId id,
                                           const memory::AllocationSource& source) const {
  WorkerRequest request;
  request.kind = RequestKind::kMap;
  request.mapping = id;
  request.size = source.size;
  request.writable = source.writable ? 1 : 0;
  request.pinned = source.pinned ? 1 : 0;
  request.unsealed = source.unsealed ? 1 : 0;
  if (source.kind == wire::MemoryKind::kGpu) SetGpuFacts(source.gpu, &request);
  return request;
}

// Unmaps again where it was mapped. A worker that cannot is ended: it holds what it must not.
void MappingDirectory::RollBack(const Participants& participants, memory::MappingId id) {
  Participants mapped;
  for (size_t i = 0; i < participants.replies.size(); ++i) {
    if (!participants.replies[i].status) continue;
    mapped.slots.push_back(participants.slots[i]);
    mapped.replies.push_back({participants.replies[i].process, {}, false});
  }
  WorkerRequest request;
  request.kind = RequestKind::kUnmap;
  request.mapping = id;
  const Status status = ExchangeWith(&mapped, request, /*fd=*/-1);
  if (status) return;
  log::Error("rolling back a mapping failed", {{"slot", id.slot}, {"error", status.error()}});
  for (size_t i = 0; i < mapped.replies.size(); ++i) {
    if (!mapped.replies[i].status) mapped.slots[i]->End();
  }
}

Result<memory::MappingId> MappingDirectory::TakeId() {
  if (last_generation_ == std::numeric_limits<uint32_t>::max()) {
    return Fail(ErrorCode::kResourceExhausted, "the generations of mappings are used up",
                "restart the sidecar");
  }
  if (free_.empty()) {
    if (mappings_.size() == kMappingSlots) {
      return Fail(ErrorCode::kResourceExhausted,
                  "the workers hold " + std::to_string(kMappingSlots) + " allocations, and no more",
                  "register fewer or larger allocations, or unregister what is not used");
    }
    free_.push_back(static_cast<uint32_t>(mappings_.size()));
    mappings_.emplace_back();
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  return memory::MappingId{slot, ++last_generation_};
}

void MappingDirectory::Release(memory::MappingId id) {
  suspects_.erase(id.generation);
  mappings_[id.slot] = {};
  free_.push_back(id.slot);
}

}  // namespace gantry::worker
