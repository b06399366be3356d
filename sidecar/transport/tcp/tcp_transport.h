// Memory to memory over TCP, several connections per peer; GPU memory goes through staging. The
// peer's TcpServer resolves buffers by name at each request, so plans address buffers. I/O threads
// move the bytes, not copy workers, and wake the engine when there is work. The driver alone calls
// Start and Poll; all other calls are thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/transport/tcp/tcp_job.h"
#include "sidecar/transport/tcp/tcp_peer.h"
#include "sidecar/transport/transport.h"

namespace gantry::transport {

class TcpTransport final : public Transport {
 public:
  // `wake` runs on any thread when Poll has work. `staging` is for GPU memory, or tells why there
  // is none. All references outlive this.
  TcpTransport(const TcpOptions& options, IoLoops& loops, HelperThreads& helpers,
               ChannelSecurity* security, std::function<void()> wake,
               Result<StagingHalf*> staging = Fail(ErrorCode::kPathUnavailable,
                                                   "nothing stages memory of GPUs here"));
  // REQUIRES that all operations are destroyed. Closes all peers.
  ~TcpTransport() override;

  // Call once per session with a peer; Close the peer when the session ends.
  std::shared_ptr<TcpPeer> AddPeer(std::string name, std::shared_ptr<TcpStreamOpener> opener)
      EXCLUDES(peers_mutex_);

  metrics::TcpConnections Totals() const;  // thread-safe

  TransportTraits traits() const override {
    return {.path = wire::Path::kTcp, .addresses_buffers = true};
  }
  Status Probe() override { return {}; }
  Status CanCarry(const LocalSide& /*local*/,
                  const std::vector<RemoteAllocation>& /*remote*/) const override {
    return {};
  }
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override;
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override;

 private:
  // Jobs that need the driver. Shared with the jobs, which may outlive the transport.
  struct Inbox {
    Mutex mutex;
    std::function<void()> wake GUARDED_BY(mutex);  // null: the transport is gone
    std::vector<std::shared_ptr<TcpJob>> jobs GUARDED_BY(mutex);
  };
  // The memory of the plan's local allocations, and the peer that owns all its remote buffers.
  struct Route {
    std::vector<std::span<std::byte>> local;
    std::shared_ptr<TcpPeer> peer;
    StagingHalf* staging = nullptr;  // null: no GPU memory is involved
  };
  Result<Route> RouteOf(const MovePlan& plan) const;

  const Result<StagingHalf*> staging_;
  const TcpCore core_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::vector<std::shared_ptr<TcpJob>> updated_;  // scratch of Poll

  Mutex peers_mutex_;
  std::vector<std::weak_ptr<TcpPeer>> peers_ GUARDED_BY(peers_mutex_);
};

}  // namespace gantry::transport
