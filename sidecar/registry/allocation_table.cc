#include "sidecar/registry/allocation_table.h"

#include <string>
#include <utility>
#include <vector>

#include "sidecar/memory/gpu_handle_file.h"

namespace gantry::registry {
namespace {

// True of what has no handle.
bool HasSameHandle(const memory::AllocationSource& one, const memory::AllocationSource& other) {
  if (!memory::IsByHandle(one) || !memory::IsByHandle(other)) return true;
  const auto here = memory::ReadHandleFile(one.fd->get());
  const auto there = memory::ReadHandleFile(other.fd->get());
  return here && there && here->bytes == there->bytes;
}

}  // namespace

AllocationRecord::AllocationRecord(uint64_t id, memory::MemoryMapper& mapper,
                                   memory::AllocationSource source)
    : id_(id), mapper_(mapper), source_(std::move(source)) {}

bool AllocationRecord::mapped() const {
  MutexLock lock(mutex_);
  return !mapped_.expired();
}

Status AllocationRecord::CheckSame(const memory::AllocationSource& told) const {
  if (source_.size != told.size) {
    return Fail(ErrorCode::kConflict,
                "the allocation is registered with " + std::to_string(source_.size) +
                    " bytes, this request says " + std::to_string(told.size),
                "state the size of the whole allocation, the same each time", "/size");
  }
  const bool both_based = source_.base != 0 && told.base != 0;
  if (both_based && source_.base != told.base) {
    return Fail(ErrorCode::kConflict,
                "two allocations of one process have the id " + std::to_string(told.gpu.buffer_id) +
                    " here, at two addresses",
                "state the driver's id of each", "/buffer_id");
  }
  // Some drivers make another handle each time; a caller that takes one id for all its memory does,
  // too, and that memory is not what was mapped.
  if (both_based || HasSameHandle(source_, told)) return {};
  return Fail(ErrorCode::kConflict,
              "the allocation with the id " + std::to_string(told.gpu.buffer_id) +
                  " is registered with another handle",
              "state `base`, the address where the allocation begins, each time: then it is known "
              "that both are of one",
              "/ipc_handle");
}

Result<std::shared_ptr<const memory::MappedAllocation>> AllocationRecord::Map() {
  {
    MutexLock lock(mutex_);
    while (mapping_) changed_.Wait(lock);
    if (auto mapped = mapped_.lock()) return mapped;
    mapping_ = true;
  }
  auto made = memory::MappedAllocation::Create(mapper_, source_);
  MutexLock lock(mutex_);
  mapping_ = false;
  if (made) mapped_ = *made;
  changed_.NotifyAll();
  return made;
}

Result<std::shared_ptr<AllocationRecord>> AllocationTable::Find(uint64_t workload_generation,
                                                                memory::AllocationSource source) {
  ASSIGN_OR_RETURN(const memory::MemoryIdentity identity, memory::IdentityOf(source));
  const Key key(workload_generation, identity, source.writable);
  std::shared_ptr<AllocationRecord> record;  // its last reference never goes under the lock
  MutexLock lock(mutex_);
  std::weak_ptr<AllocationRecord>& known = records_[key];
  record = known.lock();
  if (record == nullptr) {
    const auto forget = [this, key](AllocationRecord* unused) {
      delete unused;
      Forget(key);
    };
    record = {new AllocationRecord(next_id_++, mapper_, std::move(source)), forget};
    known = record;
    return record;
  }
  RETURN_IF_ERROR(record->CheckSame(source));
  return record;
}

void AllocationTable::Forget(const Key& key) {
  MutexLock lock(mutex_);
  const auto found = records_.find(key);
  if (found != records_.end() && found->second.expired()) records_.erase(found);
}

AllocationTable::Totals AllocationTable::TotalsNow() const {
  std::vector<std::shared_ptr<AllocationRecord>> records;
  {
    MutexLock lock(mutex_);
    records.reserve(records_.size());
    for (const auto& [key, known] : records_) {
      if (auto record = known.lock()) records.push_back(std::move(record));
    }
  }
  Totals totals;
  for (const auto& record : records) {
    if (!record->mapped()) continue;
    ++totals.mapped;
    totals.mapped_bytes += record->size();
  }
  return totals;
}

}  // namespace gantry::registry
