// RDMA devices whose work is done when it is posted, and which move nothing: what the transport
// itself costs. Two of them need nothing in common. Used by one thread at a time.
#pragma once

#include <sys/eventfd.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/unique_fd.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::transport {

class InstantRegion final : public VerbsRegion {
 public:
  uint32_t local_key() const override { return 1; }
  uint32_t remote_key() const override { return 2; }
  Status Deregister() override { return {}; }
};

class InstantQueue final : public VerbsCompletionQueue {
 public:
  void Add(const WorkCompletion& completion) { completions_.push_back(completion); }

  int Poll(std::span<WorkCompletion> completions) override {
    size_t taken = 0;
    for (; taken < completions.size() && !completions_.empty(); ++taken) {
      completions[taken] = completions_.front();
      completions_.pop_front();
    }
    return static_cast<int>(taken);
  }
  Status Arm() override { return {}; }
  int fd() const override { return event_.get(); }
  void TakeEvents() override {}

 private:
  const UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::deque<WorkCompletion> completions_;
};

class InstantQueuePair final : public VerbsQueuePair {
 public:
  InstantQueuePair(InstantQueue& queue, uint32_t number) : queue_(queue), number_(number) {}

  uint32_t number() const override { return number_; }
  uint32_t inline_bytes() const override { return 0; }
  Status Connect(const QueuePairAddress&, const QueuePairAddress&,
                 const QueuePairOptions&) override {
    return {};
  }
  size_t Post(std::span<const WorkItem> items, int*) override {
    for (const WorkItem& item : items) {
      if (item.signalled) queue_.Add({item.id, WorkStatus::kSuccess, number_, 0});
    }
    return items.size();
  }
  Status Fail() override { return {}; }

 private:
  InstantQueue& queue_;
  const uint32_t number_;
};

class InstantDevice final : public VerbsDevice {
 public:
  explicit InstantDevice(std::string name) : name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  const VerbsLimits& limits() const override { return limits_; }
  Result<VerbsPort> Port() const override { return VerbsPort{true, true, 4096, 1U << 30, 0}; }
  std::vector<GidEntry> Gids() const override {
    GidEntry gid;
    gid.gid[0] = 0x20;
    gid.gid[15] = 1;
    gid.type = GidType::kRoceV2;
    return {gid};
  }
  Result<std::unique_ptr<VerbsRegion>> Register(std::span<std::byte>,
                                                const RegionAccess&) override {
    return std::make_unique<InstantRegion>();
  }
  Result<std::unique_ptr<VerbsRegion>> RegisterDmabuf(int, uint64_t, uint64_t, uint64_t,
                                                      const RegionAccess&) override {
    return std::make_unique<InstantRegion>();
  }
  Result<std::unique_ptr<VerbsCompletionQueue>> CreateCompletionQueue(uint32_t) override {
    return std::make_unique<InstantQueue>();
  }
  Result<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(VerbsCompletionQueue& queue,
                                                          const QueuePairOptions&) override {
    return std::make_unique<InstantQueuePair>(static_cast<InstantQueue&>(queue), ++last_pair_);
  }
  int event_fd() const override { return event_.get(); }
  PortChange NextEvent() override { return PortChange::kNone; }

 private:
  const std::string name_;
  const VerbsLimits limits_ = {UINT64_MAX, 1U << 20, 1U << 16, 1U << 15, 1U << 15, 16, 16};
  const UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  uint32_t last_pair_ = 0;
};

class InstantVerbs final : public Verbs {
 public:
  explicit InstantVerbs(std::vector<std::string> names) : names_(std::move(names)) {}

  Result<std::vector<std::string>> Devices() override { return names_; }
  Result<std::unique_ptr<VerbsDevice>> Open(const std::string& name, uint8_t) override {
    return std::make_unique<InstantDevice>(name);
  }

 private:
  const std::vector<std::string> names_;
};

}  // namespace gantry::transport
