// NIXL's handle of a transfer: prepared once, posted any number of times, and over only when no
// byte can move any more. Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "connectors/nixl/abi/nixl_interface.h"
#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/c_handles.h"
#include "connectors/nixl/agent/lease.h"
#include "connectors/nixl/transfer/block_plan.h"
#include "connectors/nixl/transfer/descriptor_ranges.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

using ViewHandle = std::shared_ptr<gantry_view>;

// How one post ended.
struct TransferEnd {
  NixlStatus status = NixlStatus::kSuccess;
  std::optional<Error> error;
  std::string path;
  microseconds took{0};
};

class NixlTransfer : public BackendReqH, public std::enable_shared_from_this<NixlTransfer> {
 public:
  // A post's own part.
  struct Post {
    std::shared_ptr<Lease> lease;
    AgentCard target;
    std::string workload;  // of this agent
    std::string id;        // unique in the workload
    std::string message;   // a whole one in Gantry's sense; empty: none
    ViewHandle view;       // null: by ranges
  };

  NixlTransfer(Operation operation, TransferRanges ranges, std::optional<BlockPlan> blocks,
               std::string agent, const PluginConfig& config)
      : operation_(operation),
        ranges_(std::move(ranges)),
        blocks_(std::move(blocks)),
        agent_(std::move(agent)),
        config_(config) {}

  const std::string& agent() const { return agent_; }
  uint64_t bytes() const { return ranges_.bytes; }
  // The same as blocks; nothing where it is none.
  const std::optional<BlockPlan>& blocks() const { return blocks_; }

  // kConflict while it moves bytes. After another error nothing moves. Success also where it is not
  // known whether the sidecar has got it.
  Status Submit(Post post);
  // Nothing while it goes on. It is told of its end once.
  std::optional<TransferEnd> Look();
  // Asks it to stop. Returns whether it is over. The first time it waits for a moment. NIXL takes
  // a second release for granted, so that one waits until the transfer has to be quiet.
  bool Stop();
  // The same for a handle whose release was refused: it waits for no end, and leaves a transfer
  // alone that was posted since.
  bool StopSoon();
  // NIXL has the handle, and nothing else need hold it until Drop.
  void Hold();
  void Drop();
  bool was_refused() const;
  bool is_active() const;
  // Why the last transfer took no faster path, for a person; empty: it took the fastest.
  std::string SlowPathReasons() const;

 private:
  enum class State { kIdle, kUnanswered, kRunning, kLost };

  Status Send() REQUIRES(mutex_);
  Result<Owned<gantry_transfer>> SendRanges(gantry_transfer_spec spec) REQUIRES(mutex_);
  Result<Owned<gantry_transfer>> SendBlocks(gantry_transfer_spec spec) REQUIRES(mutex_);
  Result<Owned<gantry_transfer>> SendSpec(const gantry_transfer_spec& spec) REQUIRES(mutex_);
  std::optional<TransferEnd> LookAtRunning() REQUIRES(mutex_);
  // Stops a transfer of which only the id is known. Returns whether it is over, or never began.
  bool EndById() REQUIRES(mutex_);
  void Cancel(milliseconds wait) REQUIRES(mutex_);
  // An error instead of an answer: the one place that decides when it means the sidecar's loss.
  void NoteFailure(const Error& error) REQUIRES(mutex_);
  TransferEnd End(std::optional<Error> error) REQUIRES(mutex_);

  const Operation operation_;
  const TransferRanges ranges_;
  const std::optional<BlockPlan> blocks_;
  const std::string agent_;
  const PluginConfig& config_;  // of the engine, which outlives it

  mutable Mutex mutex_;
  std::shared_ptr<NixlTransfer> self_ GUARDED_BY(mutex_);
  State state_ GUARDED_BY(mutex_) = State::kIdle;
  Post post_ GUARDED_BY(mutex_);
  Owned<gantry_transfer> transfer_ GUARDED_BY(mutex_);
  gantry_transfer_status last_ GUARDED_BY(mutex_) = {};
  TimePoint posted_ GUARDED_BY(mutex_);
  bool was_stopped_ GUARDED_BY(mutex_) = false;
  TimePoint next_look_ GUARDED_BY(mutex_);  // kLost: from here on it is quiet
};

}  // namespace gantry::nixl
