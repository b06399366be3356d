#include "sidecar/memory/gpu_devices.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/gpu/gpu_drivers.h"

namespace gantry::memory {
namespace {

// Three on each of a pair feed their copy engines with blocks of 64 KiB as fast as their link moves
// them while the GPUs are busy, also where processors are slow (docs/benchmarks.md); more pay for
// smaller blocks only.
constexpr int kWorkersOfGpu = 3;
constexpr int kWorkersMin = 4;

int WorkersThatPay(int gpus) { return std::max(kWorkersMin, kWorkersOfGpu * gpus); }

}  // namespace

Status GpuDevices::Load() {
  Result<std::unique_ptr<gpu::GpuDriver>> driver = gpu::LoadGpuDriver();
  if (!driver && driver.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kPathUnavailable, driver.error().message, driver.error().hint);
  }
  ASSIGN_OR_RETURN(driver_, std::move(driver));
  for (const std::string& feature : driver_->missing()) {
    log::Info("the GPU driver lacks a feature", {{"missing", feature}});
  }
  if (!driver_->devices().empty()) return {};
  return Fail(ErrorCode::kPathUnavailable, "a GPU driver is installed, but it sees no GPU",
              "in a container, ask for the devices of the workload's GPUs");
}

Status GpuDevices::Open(int index, int workers_max) {
  if (workers_max != kAutomatic && index >= workers_max) {
    return Fail(ErrorCode::kPathUnavailable, "--gpu-workers leaves this one without a GPU");
  }
  RETURN_IF_ERROR(Load());
  const auto& devices = driver_->devices();
  const auto gpus = static_cast<int>(devices.size());
  if (workers_max == kAutomatic && index >= WorkersThatPay(gpus)) {
    return Fail(ErrorCode::kPathUnavailable, "the other workers are enough for the GPUs");
  }
  const auto own = static_cast<size_t>(index % gpus);
  ASSIGN_OR_RETURN(context_, driver_->OpenContext(devices[own].ordinal));
  if (const Status trimmed = context_->TrimForCopies(); !trimmed) {
    log::Info("a copy worker takes twice the GPU memory", {{"error", trimmed.error()}});
  }
  // Here, as it takes a tenth of a second, and not under the first transfer, which does without if
  // it has to.
  static_cast<void>(context_->LoadKernels());
  for (size_t i = 0; i < devices.size(); ++i) {
    const gpu::DeviceInfo& device = devices[(own + i) % devices.size()];
    uuids_.push_back(device.uuid);
    if (i == 0 || driver_->ReachesPeer(devices[own].ordinal, device.ordinal)) {
      reached_.insert(device.uuid);
    }
  }
  return {};
}

void GpuDevices::Close() {
  uuids_.clear();
  reached_.clear();
  others_.clear();
  context_.reset();
}

gpu::SharingRules GpuDevices::sharing() const { return driver_->sharing(); }

std::string GpuDevices::PciAddressOf(const std::string& uuid) const {
  if (driver_ == nullptr) return {};
  for (const gpu::DeviceInfo& device : driver_->devices()) {
    if (device.uuid == uuid) return device.pci_address;
  }
  return {};
}

int GpuDevices::NextReached() const {
  for (size_t i = 1; i < uuids_.size(); ++i) {
    if (!Reaches(uuids_[i])) continue;
    for (const gpu::DeviceInfo& device : driver_->devices()) {
      if (device.uuid == uuids_[i]) return device.ordinal;
    }
  }
  return -1;
}

std::vector<std::unique_ptr<gpu::GpuMemory>> GpuDevices::AllocateOnOthers(uint64_t bytes) const {
  std::vector<std::unique_ptr<gpu::GpuMemory>> made;
  for (const gpu::DeviceInfo& device : driver_->devices()) {
    if (device.uuid == context_->device().uuid || !Reaches(device.uuid)) continue;
    auto memory = context_->AllocateOn(device.ordinal, bytes);
    if (memory) {
      made.push_back(*std::move(memory));
    } else if (memory.error().code != ErrorCode::kPathUnavailable) {
      log::Info("a GPU gives a worker of another one no memory",
                {{"gpu", device.uuid}, {"why", memory.error()}});
    }
  }
  return made;
}

Result<std::shared_ptr<gpu::GpuContext>> GpuDevices::ContextFor(const std::string& uuid) {
  if (Reaches(uuid)) return context_;
  const auto seen =
      std::find_if(driver_->devices().begin(), driver_->devices().end(),
                   [&](const gpu::DeviceInfo& device) { return device.uuid == uuid; });
  if (context_ != nullptr && seen != driver_->devices().end()) {
    std::shared_ptr<gpu::GpuContext>& other = others_[uuid];
    if (other == nullptr) {
      auto opened = driver_->OpenContext(seen->ordinal);
      if (!opened) {
        return Fail(ErrorCode::kPathUnavailable,
                    "GPU " + uuid + " refused a further context, which its memory needs here as " +
                        "it is out of reach of the worker's own: " + opened.error().message,
                    "free memory of that GPU, or leave workers fewer GPUs (--gpu-workers)");
      }
      other = *std::move(opened);
      static_cast<void>(other->TrimForCopies());
    }
    return other;
  }
  return Fail(ErrorCode::kPathUnavailable, "GPU " + uuid + " is not visible to this sidecar",
              "give the sidecar's container the GPUs of its workload and of its namespace's peers");
}

}  // namespace gantry::memory
