#include "sidecar/transport/rdma/verbs/dma_buf_ability.h"

#include "lib/base/log.h"
#include "sidecar/memory/dma_buf.h"

namespace gantry::transport {
namespace {

constexpr int kNoFd = -1;

}  // namespace

DmaBufAbility::DmaBufAbility(VerbsDevice& device) {
  const auto tried = device.RegisterDmabuf(kNoFd, 0, memory::kDmaBufPageBytes, 0, {});
  if (tried || tried.error().code != ErrorCode::kPathUnavailable) return;
  none_ = Error(ErrorCode::kPathUnavailable, "RDMA device " + device.name() +
                                                 " takes no dma-buf (" + tried.error().message +
                                                 "), and without one it reaches no memory of GPUs");
}

Status DmaBufAbility::Check(const std::string& gpu_uuid) const {
  if (none_) return Fail(*none_);
  const MutexLock lock(mutex_);
  const auto known = by_gpu_.find(gpu_uuid);
  if (known != by_gpu_.end()) return Fail(known->second);
  return {};
}

void DmaBufAbility::Learn(const std::string& gpu_uuid, const Error& refusal) {
  if (refusal.code != ErrorCode::kPathUnavailable) return;
  const MutexLock lock(mutex_);
  if (!by_gpu_.emplace(gpu_uuid, refusal).second) return;
  log::Warning("memory of a GPU cannot be reached by RDMA, and is not registered any more",
               {{"gpu", gpu_uuid}, {"why", refusal}});
}

}  // namespace gantry::transport
