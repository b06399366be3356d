// One transfer over bounce. Each part takes slices, is copied in on one side, carried by rdma, and
// copied out on the other. Used by the driver. Callbacks of other threads are posted to it and keep
// it alive.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sidecar/copy/slice_pool.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/plan/segment_tally.h"
#include "sidecar/transport/bounce/bounce_cutter.h"
#include "sidecar/transport/bounce/bounce_routes.h"
#include "sidecar/transport/bounce/remote_stage.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/transport.h"

namespace gantry::transport {

class BounceJob : public std::enable_shared_from_this<BounceJob> {
 public:
  struct Setup {
    std::shared_ptr<const MovePlan> plan;
    int priority = 0;
    RdmaTransport& rdma;
    std::shared_ptr<RemoteStage> remote = nullptr;
    StagingHalf* half = nullptr;               // null: nothing is staged here
    std::optional<Error> why_no_half = {};     // set when `half` is null
    BounceStage stage = {};                    // belongs to `half`
    std::function<void()> notify_driver = {};  // called when it failed or finished
  };

  explicit BounceJob(Setup setup);
  BounceJob(const BounceJob&) = delete;
  BounceJob& operator=(const BounceJob&) = delete;

  void Begin();
  void Stop();
  void Abort();
  void FailWith(Error why);
  bool finished() const { return finished_; }
  const std::optional<Error>& error() const { return error_; }
  const Progress& progress();
  std::vector<uint32_t> UnfinishedItems() const { return tally_.UnfinishedItems(); }

 private:
  struct Part {
    BouncePart part;
    BounceRoutes routes;
    SlicePool* waits_for = nullptr;  // null: waits for no slices
    uint64_t ticket = 0;             // its request in that pool
    SliceLease remote;
    SliceLease local;
    std::unique_ptr<Operation> carried;  // the rdma operation
  };
  using Id = uint64_t;
  using Step = void (BounceJob::*)(Id);

  bool is_write() const { return setup_.plan->operation == wire::Operation::kWrite; }
  void StageAcquired(Result<std::shared_ptr<RemoteStage::StageLease>> stage_lease);
  uint64_t PartBytes() const;
  void Fill();  // starts as many parts as allowed
  // The steps of a part. Each leads to the next one, or to the part's end.
  void TakeRemote(Id id);
  void TakeLocal(Id id);
  void Route(Id id);
  void CopyHere(Id id, Step next);
  void CopyThere(Id id, Step next);
  void Carry(Id id);
  void Carried(Id id);
  void Done(Id id);
  // Continues with `next`; ends the part instead if the transfer was stopped or has failed.
  void Go(Id id, Step next);
  void Go(Id id, const Status& so_far, Step next);
  // Takes slices from a pool, now or later, then continues.
  void Take(Id id, SlicePool* pool, uint64_t bytes, uint64_t slice_bytes, SliceLease Part::*lease,
            Step next);
  void End(Id id);
  void CheckFinished();  // checks whether it is finished

  const Setup setup_;
  BounceCutter cutter_;
  SegmentTally tally_;
  std::shared_ptr<RemoteStage::StageLease> stage_lease_;
  std::map<Id, Part> parts_;  // in progress
  Id last_id_ = 0;
  bool is_acquiring_ = false;
  uint64_t acquiring_ = 0;  // valid while is_acquiring_
  bool has_stage_lease_ = false;
  bool is_filling_ = false;
  // Also stops copies that wait for their turn.
  const std::shared_ptr<RemoteStage::CopyControl> copy_control_ =
      std::make_shared<RemoteStage::CopyControl>();
  bool finished_ = false;
  TimePoint in_doubt_until_{};  // bytes may move at the peer until then
  std::optional<Error> error_;
  Progress progress_;
};

}  // namespace gantry::transport
