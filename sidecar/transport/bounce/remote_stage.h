// The staging memory that a peer lends to a session: asked for by the first transfer that needs it,
// given back when none has for some time. Belongs to the engine's driver, but for Usable.
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
    milliseconds idle_max{5'000};   // then it is given back: others may need it
    milliseconds ask_again{1'000};  // after a refusal
  };

  // `core`: of the transport that reaches the peer's memory. `name`: for messages.
  RemoteStage(const RdmaCore& core, std::string name, std::shared_ptr<RdmaPeer> peer,
              std::shared_ptr<StageExchange> exchange, const Times& times);
  RemoteStage(const RemoteStage&) = delete;
  RemoteStage& operator=(const RemoteStage&) = delete;

  const std::shared_ptr<RdmaPeer>& peer() const { return peer_; }
  // Any thread: why the peer lends nothing right now, if that is known.
  Status Usable() const EXCLUDES(mutex_);

  // What was lent. It stays as long as somebody has joined.
  struct Lent {
    static Result<std::shared_ptr<Lent>> Of(const wire::StageGrant& grant,
                                            const std::shared_ptr<RdmaPeer>& peer);
    Lent(uint64_t of_stage, uint64_t bytes, std::shared_ptr<const RdmaRemoteBuffer> of_slices)
        : stage(of_stage),
          slice_bytes(bytes),
          memory(std::move(of_slices)),
          slices(static_cast<uint32_t>(memory->chunks().size())) {}
    const uint64_t stage;
    const uint64_t slice_bytes;
    const std::shared_ptr<const RdmaRemoteBuffer> memory;  // the slices, one after another
    SlicePool slices;
  };
  // Of a transfer's copies. Thread-safe.
  struct Asking {
    std::atomic<bool> stopped = false;  // the peer is not asked any more
    std::atomic<bool> begun = false;    // it was asked
  };
  using Joined = std::function<void(Result<std::shared_ptr<Lent>>)>;
  // Calls back once, at once (then the answer is 0) or later, unless Cancel gets the answer before.
  // Whoever was given something leaves once, when nothing of it uses slices.
  uint64_t Join(Joined joined);
  void Cancel(uint64_t joining);
  void Leave();
  // Calls back once, later: see StageExchange::Copy. A few run at a time, the others in their
  // order; what the peer has no time for is asked again. Once it is `stopped` it is not asked any
  // more.
  void Copy(wire::StagedMove move, std::shared_ptr<Asking> asking,
            std::function<void(const Status&)> done);
  // After a copy with kPeerLost, how long bytes of it may still move.
  milliseconds lease() const { return core_.devices.options().lease; }

 private:
  struct Asked {
    wire::StagedMove move;
    std::shared_ptr<Asking> asking;
    std::function<void(const Status&)> done;
  };

  Result<wire::StageGrant> Ask() const;  // these two by helpers
  Status AskToCopy(const Asked& asked) const;
  void RunCopies();
  void Open();
  void Opened(const Result<wire::StageGrant>& grant);
  void LookWhetherIdle();

  const RdmaCore core_;
  const std::string name_;
  const std::shared_ptr<RdmaPeer> peer_;
  const std::shared_ptr<StageExchange> exchange_;
  const Times times_;

  mutable Mutex mutex_;
  std::optional<Error> refusal_ GUARDED_BY(mutex_);  // the last time
  TimePoint refused_until_ GUARDED_BY(mutex_){};

  std::shared_ptr<Lent> lent_;
  std::map<uint64_t, Joined> joining_;  // wait for Opened
  uint64_t last_joining_ = 0;
  size_t users_ = 0;          // joined and did not leave
  TimePoint left_{};          // the last one
  bool looks_ = false;        // whether it is idle, some time later
  std::deque<Asked> copies_;  // wait for their turn
  int copying_ = 0;
  bool is_opening_ = false;
  bool is_closing_ = false;
};

}  // namespace gantry::transport
