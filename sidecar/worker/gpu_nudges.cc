#include "sidecar/worker/gpu_nudges.h"

namespace gantry::worker {
namespace {

constexpr uint64_t kOnOthers = 2 << 20;  // all of the links have some of it

}  // namespace

Result<std::unique_ptr<GpuNudges>> GpuNudges::Create(const memory::GpuDevices& gpus) {
  std::unique_ptr<GpuNudges> made(new GpuNudges());
  gpu::GpuContext& context = *gpus.context();
  ASSIGN_OR_RETURN(made->own_, context.Allocate(2 * kBytes));
  ASSIGN_OR_RETURN(made->done_, context.NewEvent());
  ASSIGN_OR_RETURN(made->stream_, context.NewStream());
  made->others_ = gpus.AllocateOnOthers(kOnOthers);
  return made;
}

Status GpuNudges::Nudge() {
  ASSIGN_OR_RETURN(const bool done, IsDone());
  if (!done) return {};
  RETURN_IF_ERROR(stream_->Copy(own_->range().base, NextPart(), kBytes));
  return stream_->Record(*done_);
}

gpu::DeviceAddress GpuNudges::NextPart() {
  if (others_.empty()) return own_->range().base + kBytes;
  const gpu::DeviceAddress from = others_[turn_]->range().base + part_ * kBytes;
  if (++turn_ < others_.size()) return from;
  turn_ = 0;
  part_ = (part_ + 1) % (kOnOthers / kBytes);
  return from;
}

}  // namespace gantry::worker
