// Memory to memory over TCP, several connections for each peer; of GPUs through staging. The peer's
// side is a TcpServer, which resolves buffers by their names for each request; so a plan for this
// transport names buffers and not allocations. Bytes are moved by io threads, not by copy workers.
// Owned by the engine's driver, but for Probe, CanReach and AddPeer, which are thread-safe.
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
  // `wake`: called from any thread when Poll has something to say. All references outlive this.
  // `staging`: for memory of GPUs, or why there is none.
  TcpTransport(const TcpOptions& options, IoLoops& loops, HelperThreads& helpers,
               ChannelSecurity* security, std::function<void()> wake,
               Result<StagingHalf*> staging = Fail(ErrorCode::kPathUnavailable,
                                                   "nothing stages memory of GPUs here"));
  // REQUIRES that all operations are gone. Closes all peers.
  ~TcpTransport() override;

  // One for each session with a peer; Close it when the session ends.
  std::shared_ptr<TcpPeer> AddPeer(std::string name, std::shared_ptr<TcpStreamOpener> opener)
      EXCLUDES(peers_mutex_);

  metrics::TcpConnections Totals() const;  // thread-safe

  wire::Path path() const override { return wire::Path::kTcp; }
  Status Probe() override { return {}; }
  bool AddressesBuffers() const override { return true; }
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override;
  bool Poll(std::vector<uint64_t>* attention) override;
  // Whoever has something to say wakes the engine.
  nanoseconds Unattended() const override { return std::chrono::hours(1); }

 private:
  // Jobs that have something to say. Shared with them: they may outlive the transport.
  struct Inbox {
    Mutex mutex;
    std::function<void()> wake GUARDED_BY(mutex);  // null: nobody polls any more
    std::vector<std::shared_ptr<TcpJob>> jobs GUARDED_BY(mutex);
  };
  // The bytes of the plan's local allocations, and the peer that all its buffers belong to.
  struct Route {
    std::vector<std::span<std::byte>> local;
    std::shared_ptr<TcpPeer> peer;
    StagingHalf* staging = nullptr;  // null: there is no memory of GPUs
  };
  Result<Route> RouteOf(const MovePlan& plan) const;

  const Result<StagingHalf*> staging_;
  const TcpCore core_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::vector<std::shared_ptr<TcpJob>> attended_;  // scratch of Poll

  Mutex peers_mutex_;
  std::vector<std::weak_ptr<TcpPeer>> peers_ GUARDED_BY(peers_mutex_);
};

}  // namespace gantry::transport
