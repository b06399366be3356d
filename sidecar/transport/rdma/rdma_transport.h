// One-sided RDMA: this side's devices read and write buffers of peers, without the peers' CPUs. Its
// plans address remote buffers, which consist of chunks. The driver alone calls Start, StartPart
// and Poll; all other calls are thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/rdma/rdma_peer.h"
#include "sidecar/transport/rdma/verbs/rdma_devices.h"
#include "sidecar/transport/rdma/verbs/rdma_events.h"
#include "sidecar/transport/transport.h"

namespace gantry::transport {

class RdmaTransport final : public Transport {
 public:
  // `wake` runs on any thread when Poll has work. `count_error` reports each failed work request or
  // connection. All references outlive this.
  RdmaTransport(const RdmaDevices& devices, RdmaEvents& events, HelperThreads& helpers,
                std::function<void()> wake, std::function<void(const Error& why)> count_error);
  // REQUIRES that all operations are destroyed. Closes all peers; blocks until no connection
  // exists.
  ~RdmaTransport() override;

  // Call once per session with a peer; Close the peer when the session ends.
  std::shared_ptr<RdmaPeer> AddPeer(std::string name, std::shared_ptr<QueuePairExchange> exchange)
      EXCLUDES(peers_mutex_);

  // Connections made from here that have not ended. Any thread.
  uint64_t connections() const { return connections_.load(std::memory_order_relaxed); }

  TransportTraits traits() const override {
    return {.path = wire::Path::kRdma, .addresses_buffers = true};
  }
  Status Probe() override { return {}; }
  Status CanCarry(const LocalSide& local,
                  const std::vector<RemoteAllocation>& remote) const override;
  // Fails when none of the local buffer's devices is up.
  Status CanGoThrough(const memory::NicMemory& nic_memory) const;
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override;
  // Starts a part of another transport's operation. Poll calls `notify_driver` instead of reporting
  // a token.
  std::unique_ptr<Operation> StartPart(std::shared_ptr<const MovePlan> plan, int priority,
                                       std::function<void()> notify_driver);
  const RdmaCore& core() const { return core_; }
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override;

 private:
  // Tasks for the driver. Shared with threads that post, which may outlive the transport.
  struct Inbox {
    Mutex mutex;
    std::function<void()> wake GUARDED_BY(mutex);  // null: the transport is gone
    std::vector<std::function<void()>> tasks GUARDED_BY(mutex);

    void Post(std::function<void()> task) EXCLUDES(mutex);
  };
  // `token` is used when `notify_driver` is null.
  std::unique_ptr<Operation> Begin(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token, std::function<void()> notify_driver);
  // Collects the tokens of operations that failed or finished, and drops the finished ones.
  void CollectReady(std::vector<uint64_t>* ready_tokens);
  bool RunTasks();
  PollOutcome Outcome(bool progressed) const {
    return {.progressed = progressed, .should_spin = in_flight_ && !is_armed_};
  }
  bool DrivePeers(TimePoint now);
  Status Watch(RdmaConnection& connection);
  void Unwatch(RdmaConnection& connection);
  void Ignore(RdmaConnection& connection);

  const RdmaDevices& devices_;
  RdmaEvents& events_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  const RdmaCore core_;
  // Unfinished operations. The engine destroys an operation only when it is finished.
  std::unordered_map<RdmaOperation*, std::shared_ptr<RdmaPeer>> running_;
  std::vector<std::shared_ptr<RdmaPeer>> driven_;  // scratch of DrivePeers
  std::vector<std::function<void()>> tasks_;       // scratch of RunTasks
  std::vector<std::function<void()>> notifying_;   // scratch of CollectReady
  std::atomic<uint64_t> connections_ = 0;
  bool in_flight_ = false;
  bool is_armed_ = false;  // waiting for completion events
  TimePoint last_moved_;

  Mutex peers_mutex_;
  std::vector<std::weak_ptr<RdmaPeer>> peers_ GUARDED_BY(peers_mutex_);
};

}  // namespace gantry::transport
