// Two sides of the rdma transport in one process, over any two Verbs: the initiator's, with the
// transport, and the owner's, with its queue pairs. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/transport/rdma/rdma_target.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/transport/driven_by_hand.h"

namespace gantry::transport {

// The peer API between both, without a network.
class DirectExchange final : public QueuePairExchange {
 public:
  DirectExchange(RdmaTarget& target, std::vector<wire::RdmaDeviceAddress> devices)
      : target_(target), devices_(std::move(devices)) {}

  const std::vector<wire::RdmaDeviceAddress>& peer_devices() const override { return devices_; }
  Result<wire::QueuePairGrant> Connect(const std::vector<wire::QueuePairRequest>& requests,
                                       TimePoint) override {
    if (const Status cut = CheckCut(); !cut) return Fail(cut.error());
    return target_.Connect("session", requests, true);
  }
  Status End(uint64_t connection, TimePoint) override {
    RETURN_IF_ERROR(CheckCut());
    target_.EndConnection("session", connection);
    return {};
  }
  // The peer does not answer from now on.
  void Cut(bool cut) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    cut_ = cut;
  }
  // Calls wait from now on; or go on.
  void Hold(bool held) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  int waiting() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return waiting_;
  }

 private:
  Status CheckCut() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++waiting_;
    while (held_) changed_.Wait(lock);
    --waiting_;
    if (cut_) return Fail(ErrorCode::kPeerUnavailable, "the peer API is cut");
    return {};
  }

  RdmaTarget& target_;
  const std::vector<wire::RdmaDeviceAddress> devices_;
  Mutex mutex_;
  Condition changed_;
  bool cut_ GUARDED_BY(mutex_) = false;
  bool held_ GUARDED_BY(mutex_) = false;
  int waiting_ GUARDED_BY(mutex_) = 0;
};

class RdmaWorld {
 public:
  RdmaWorld(Verbs& here, Verbs& there, const RdmaOptions& options, const RdmaOptions& options_there)
      : devices_(*RdmaDevices::Open(options, here)),
        devices_there_(*RdmaDevices::Open(options_there, there)),
        events_(*RdmaEvents::Create()),
        exchange_(std::make_shared<DirectExchange>(target_, devices_there_->Addresses())),
        transport_(
            *devices_, *events_, helpers_, [this] { waker_.Wake(); },
            [this](const Error& why) { errors_.push_back(why); }) {
    peer_ = transport_.AddPeer("peer", exchange_);
  }

  // From now on the memory of this side is a GPU's.
  void UseGpuHere() { gpu_here_ = true; }
  void UseGpuThere() { gpu_there_ = true; }

  // A buffer of [offset, offset + length) of the arena; 0: all of it.
  std::shared_ptr<const memory::MappedAllocation> Local(const gantry::testing::TestArena& arena,
                                                        uint64_t offset = 0, uint64_t length = 0) {
    auto allocation = Allocate(arena, gpu_here_);
    auto registered = registrar_.Register(
        {{allocation, offset, length == 0 ? arena.size() : length}}, {false, false});
    EXPECT_TRUE(registered) << registered.error().message;
    if (registered) kept_.push_back(*std::move(registered));
    return allocation;
  }
  // Likewise of the owner, as its description says it.
  std::vector<wire::RdmaChunk> Describe(const gantry::testing::TestArena& arena,
                                        uint64_t offset = 0, uint64_t length = 0,
                                        wire::Access access = {true, true}) {
    auto allocation = Allocate(arena, gpu_there_);
    auto registered = registrar_there_.Register(
        {{allocation, offset, length == 0 ? arena.size() : length}}, access);
    EXPECT_TRUE(registered) << registered.error().message;
    if (!registered) return {};
    std::vector<wire::RdmaChunk> chunks;
    for (const auto& chunk : dynamic_cast<const MemoryRegionSet&>(**registered).list()) {
      chunks.push_back({chunk.length, chunk.address, chunk.remote_keys});
    }
    kept_.push_back(*std::move(registered));
    return chunks;
  }
  RemoteAllocation Remote(std::vector<wire::RdmaChunk> chunks) {
    return {nullptr, std::make_shared<RdmaRemoteBuffer>(peer_, std::move(chunks), on_there_)};
  }

  // Polls until it is finished.
  bool Finish(const Operation& operation, milliseconds time = milliseconds(20'000)) {
    return PollUntilFinished(transport_, operation, waker_, time);
  }

  // With what was registered of its local buffers.
  std::shared_ptr<MovePlan> WithNics(std::shared_ptr<MovePlan> plan) const {
    plan->local_nic_memory = kept_;
    return plan;
  }
  // Afterwards there is a connection.
  void MoveSomething() {
    const gantry::testing::TestArena arena(4096);
    const auto operation = transport_.Start(
        WithNics(PlanOf(wire::Operation::kRead, Local(arena), Remote(Describe(arena)), 0, 0, 1)), 0,
        1);
    EXPECT_TRUE(Finish(*operation));
    EXPECT_FALSE(operation->error()) << operation->error()->message;
  }

  std::shared_ptr<const memory::MappedAllocation> Allocate(const gantry::testing::TestArena& arena,
                                                           bool on_gpu) {
    return *memory::MappedAllocation::Create(
        mapper_, on_gpu ? arena.gpu_source(0, arena.size()) : arena.source());
  }

  bool gpu_here_ = false;
  bool gpu_there_ = false;
  CountingMapper mapper_;
  gantry::testing::TestWaker waker_;
  std::vector<Error> errors_;  // that were counted
  const std::unique_ptr<RdmaDevices> devices_;
  const std::unique_ptr<RdmaDevices> devices_there_;
  // Which devices have the buffers that are made from now on.
  DeviceSet on_here_ = DeviceSet::All();
  DeviceSet on_there_ = DeviceSet::All();
  RdmaRegistrar registrar_{*devices_, [this](const auto&) { return on_here_; }};
  RdmaRegistrar registrar_there_{*devices_there_, [this](const auto&) { return on_there_; }};
  RdmaTarget target_{*devices_there_, {}};
  const std::unique_ptr<RdmaEvents> events_;
  HelperThreads helpers_{2, 64};
  const std::shared_ptr<DirectExchange> exchange_;
  std::vector<std::shared_ptr<const memory::NicMemory>> kept_;
  RdmaTransport transport_;
  std::shared_ptr<RdmaPeer> peer_;
};

}  // namespace gantry::transport
