// Devices as some are: they tell how large a memory region may be, and of what is larger they
// register the beginning and say that all went well. Over any other Verbs, which outlive it. Used
// as those are.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

class ShortDevice final : public VerbsDevice {
 public:
  ShortDevice(std::unique_ptr<VerbsDevice> device, uint64_t region_bytes_max)
      : device_(std::move(device)), limits_(device_->limits()) {
    limits_.region_bytes_max = std::min(limits_.region_bytes_max, region_bytes_max);
  }

  const std::string& name() const override { return device_->name(); }
  const VerbsLimits& limits() const override { return limits_; }
  Result<VerbsPort> Port() const override { return device_->Port(); }
  std::vector<GidEntry> Gids() const override { return device_->Gids(); }
  Result<std::unique_ptr<VerbsRegion>> Register(std::span<std::byte> memory,
                                                const RegionAccess& access) override {
    return device_->Register(memory.first(Registered(memory.size())), access);
  }
  Result<std::unique_ptr<VerbsRegion>> RegisterDmabuf(int fd, uint64_t offset, uint64_t length,
                                                      uint64_t iova,
                                                      const RegionAccess& access) override {
    return device_->RegisterDmabuf(fd, offset, Registered(length), iova, access);
  }
  Result<std::unique_ptr<VerbsCompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return device_->CreateCompletionQueue(depth);
  }
  Result<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      VerbsCompletionQueue& queue, const QueuePairOptions& options) override {
    return device_->CreateQueuePair(queue, options);
  }
  int event_fd() const override { return device_->event_fd(); }
  PortChange NextEvent() override { return device_->NextEvent(); }

 private:
  uint64_t Registered(uint64_t length) const { return std::min(length, limits_.region_bytes_max); }

  const std::unique_ptr<VerbsDevice> device_;
  VerbsLimits limits_;
};

class ShortVerbs final : public Verbs {
 public:
  ShortVerbs(Verbs& verbs, uint64_t region_bytes_max)
      : verbs_(verbs), region_bytes_max_(region_bytes_max) {}

  Result<std::vector<std::string>> Devices() override { return verbs_.Devices(); }
  Result<std::unique_ptr<VerbsDevice>> Open(const std::string& name, uint8_t port) override {
    ASSIGN_OR_RETURN(std::unique_ptr<VerbsDevice> device, verbs_.Open(name, port));
    return std::make_unique<ShortDevice>(std::move(device), region_bytes_max_);
  }

 private:
  Verbs& verbs_;
  const uint64_t region_bytes_max_;
};

}  // namespace gantry::transport
