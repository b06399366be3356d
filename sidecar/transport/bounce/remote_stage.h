// The staging memory that a peer lends to a session. The first transfer that needs it borrows it;
// it is returned after some idle time. The driver makes all calls except Usable.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lib/base/mutex.h"
#include "sidecar/copy/slice_pool.h"
#include "sidecar/transport/bounce/stage_exchange.h"
#include "sidecar/transport/rdma/rdma_peer.h"
#include "sidecar/transport/rdma/rdma_remote_buffer.h"

namespace gantry::transport {

class RemoteStage : public std::enable_shared_from_this<RemoteStage> {
 public:
  struct Times {
    milliseconds idle_max{5'000};   // then it is returned, for others to use
    milliseconds ask_again{1'000};  // delay after a refusal
  };

  // `core` belongs to the transport that reaches the peer's memory. `name` is for messages.
  RemoteStage(const RdmaCore& core, std::string name, std::shared_ptr<RdmaPeer> peer,
              std::shared_ptr<StageExchange> exchange, const Times& times);
  RemoteStage(const RemoteStage&) = delete;
  RemoteStage& operator=(const RemoteStage&) = delete;

  const std::shared_ptr<RdmaPeer>& peer() const { return peer_; }
  // The peer's refusal, until it is due to be asked again. Any thread.
  Status Usable() const EXCLUDES(mutex_);

  // The borrowed memory. It stays while any user has acquired it.
  struct StageLease {
    static Result<std::shared_ptr<StageLease>> Of(const wire::StageGrant& grant,
                                                  const std::shared_ptr<RdmaPeer>& peer);
    StageLease(uint64_t of_stage, uint64_t bytes, std::shared_ptr<const RdmaRemoteBuffer> of_slices)
        : stage(of_stage),
          slice_bytes(bytes),
          memory(std::move(of_slices)),
          slices(static_cast<uint32_t>(memory->chunks().size())) {}
    const uint64_t stage;
    const uint64_t slice_bytes;
    const std::shared_ptr<const RdmaRemoteBuffer> memory;  // the slices, one after another
    SlicePool slices;
  };
  // The state of one transfer's copies. Thread-safe.
  struct CopyControl {
    std::atomic<bool> stopped = false;  // do not ask the peer any more
    std::atomic<bool> begun = false;    // the peer was asked
  };
  using OnAcquired = std::function<void(Result<std::shared_ptr<StageLease>>)>;
  // Calls back once: at once (then it returns 0) or later, unless Cancel gets the returned number
  // first. After a success, call Release once, when nothing uses the slices any more.
  uint64_t Acquire(OnAcquired on_acquired);
  void Cancel(uint64_t number);
  void Release();
  // Calls back once, later: see StageExchange::Copy. A few copies run at a time, the others queue.
  // A busy peer is asked again, until `stopped` is set.
  void Copy(wire::StagedMove move, std::shared_ptr<CopyControl> control,
            std::function<void(const Status&)> done);
  // How long bytes may still move after a copy failed with kPeerLost.
  milliseconds lease() const { return core_.devices.options().lease; }

 private:
  struct QueuedCopy {
    wire::StagedMove move;
    std::shared_ptr<CopyControl> control;
    std::function<void(const Status&)> done;
  };

  Result<wire::StageGrant> RequestStage() const;  // these two run on helper threads
  Status RequestCopy(const QueuedCopy& copy) const;
  void RunCopies();
  void Open();
  void Opened(const Result<wire::StageGrant>& grant);
  void CloseIfIdle();

  const RdmaCore core_;
  const std::string name_;
  const std::shared_ptr<RdmaPeer> peer_;
  const std::shared_ptr<StageExchange> exchange_;
  const Times times_;

  mutable Mutex mutex_;
  std::optional<Error> refusal_ GUARDED_BY(mutex_);  // from the last attempt
  TimePoint refused_until_ GUARDED_BY(mutex_){};

  std::shared_ptr<StageLease> stage_lease_;
  std::map<uint64_t, OnAcquired> acquiring_;  // waiting for Opened
  uint64_t last_number_ = 0;
  size_t users_ = 0;               // acquired and not yet released
  TimePoint left_{};               // when the last user left
  bool checks_idle_ = false;       // an idle check is scheduled
  std::deque<QueuedCopy> copies_;  // waiting for their turn
  int copying_ = 0;
  bool is_opening_ = false;
  bool is_closing_ = false;
};

}  // namespace gantry::transport
