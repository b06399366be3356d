// Why GPU memory is copied by the means chosen. Each reason belongs to one means: engines or
// kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::transport {

// Metrics have a label for each, in this order: kGpuJobKinds in metric_labels.h.
enum class GpuCopyReason : uint8_t {
  kEnginesAsked,
  kFewBlocks,
  kWellFed,
  kNoKernels,
  kBusy,
  kNoPeerAccess,
  kWithHost,
  kKernelAsked,
  kIdle,
  kProbe,
};
inline constexpr size_t kGpuCopyReasons = 10;

constexpr worker::GpuMeans MeansOf(GpuCopyReason reason) {
  return reason < GpuCopyReason::kKernelAsked ? worker::GpuMeans::kCopyEngine
                                              : worker::GpuMeans::kKernel;
}

// For people.
constexpr std::string_view TextOf(GpuCopyReason reason) {
  switch (reason) {
    case GpuCopyReason::kEnginesAsked:
      return "--gpu-copies asks for copy engines";
    case GpuCopyReason::kFewBlocks:
      return "few blocks: a copy engine begins at once";
    case GpuCopyReason::kWellFed:
      return "the workers feed the copy engines as fast as they copy";
    case GpuCopyReason::kNoKernels:
      return "the GPU's driver has no copy kernel";
    case GpuCopyReason::kBusy:
      return "the GPU is busy: a kernel had to wait for its turn";
    case GpuCopyReason::kNoPeerAccess:
      return "the GPUs have no access to each other's memory: copy engines go through the host";
    case GpuCopyReason::kWithHost:
      return "one side is the host's: copy engines reach it";
    case GpuCopyReason::kKernelAsked:
      return "--gpu-copies asks for a kernel";
    case GpuCopyReason::kIdle:
      return "a kernel is the fastest while the GPU computes nothing else";
    case GpuCopyReason::kProbe:
      return "a look whether the GPU is still busy";
  }
  return "";
}

}  // namespace gantry::transport
