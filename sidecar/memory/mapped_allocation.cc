#include "sidecar/memory/mapped_allocation.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "lib/base/log.h"

namespace gantry::memory {

Result<std::shared_ptr<const MappedAllocation>> MappedAllocation::Create(MemoryMapper& mapper,
                                                                         AllocationSource source) {
  struct stat info = {};
  if (::fstat(source.fd->get(), &info) != 0) {
    return Fail(SystemError(ErrorCode::kDeviceError, "fstat of an allocation", errno));
  }
  ASSIGN_OR_RETURN(const MappingId mapping, mapper.Map(source));
  return std::shared_ptr<const MappedAllocation>(
      new MappedAllocation(mapper, std::move(source), {info.st_dev, info.st_ino}, mapping));
}

MappedAllocation::MappedAllocation(MemoryMapper& mapper, AllocationSource source, FileIdentity file,
                                   MappingId mapping)
    : mapper_(mapper),
      source_(std::move(source)),
      file_(file),
      mapping_(mapping),
      in_process_(source_) {}

MappedAllocation::~MappedAllocation() {
  if (auto status = mapper_.Unmap(mapping_); !status) {
    log::Error("unmapping an allocation failed",
               {{"slot", mapping_.slot}, {"bytes", source_.size}, {"error", status.error()}});
  }
}

}  // namespace gantry::memory
