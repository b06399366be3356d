#include "sidecar/worker/process/gpu_keep_alive.h"

namespace gantry::worker {
namespace {

constexpr uint64_t kOnOthers = 2 << 20;  // all of the links have some of it

}  // namespace

Result<std::unique_ptr<GpuKeepAlive>> GpuKeepAlive::Create(const memory::GpuDevices& gpus) {
  std::unique_ptr<GpuKeepAlive> made(new GpuKeepAlive());
  gpu::GpuContext& context = *gpus.context();
  ASSIGN_OR_RETURN(made->own_, context.Allocate(2 * kBytes));
  made->others_ = gpus.AllocateOnOthers(kOnOthers);
  return made;
}

gpu::DeviceAddress GpuKeepAlive::NextPart() {
  if (others_.empty()) return own_->range().base + kBytes;
  const gpu::DeviceAddress from = others_[turn_]->range().base + part_ * kBytes;
  if (++turn_ < others_.size()) return from;
  turn_ = 0;
  part_ = (part_ + 1) % (kOnOthers / kBytes);
  return from;
}

}  // namespace gantry::worker
