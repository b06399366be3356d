// One transfer of the rdma transport. Cuts its plan into work requests and tracks their completion.
// Used by the driver.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sidecar/transport/rdma/plan_stretches.h"
#include "sidecar/transport/rdma/work_cutter.h"
#include "sidecar/transport/transport.h"

namespace gantry::transport {

class RdmaOperation;

// A work request of an operation, numbered in the order of cutting.
struct NumberedWork {
  RdmaOperation* operation = nullptr;
  WorkRequest work;
  uint64_t number = 0;
  bool is_flush = false;  // a read that completes after earlier writes have arrived
};

class RdmaOperation final : public Operation {
 public:
  struct Setup {
    std::shared_ptr<const MovePlan> plan;
    uint64_t slice_bytes = 0;  // per work request; constant for the operation
    uint64_t token = 0;
    // Replaces the token: called when it failed or finished.
    std::function<void()> notify_driver = {};
    std::optional<Error> refusal;  // why it never starts
    // Forcibly ends what is in flight.
    std::function<void(RdmaOperation&)> abort;
  };

  explicit RdmaOperation(Setup setup);

  void Stop() override { stopped_ = true; }
  void Abort() override;
  bool finished() const override { return finished_; }
  const std::optional<Error>& error() const override { return error_; }
  const Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override;

  // The rest is for the transport.
  uint64_t token() const { return setup_.token; }
  const std::function<void()>& notify_driver() const { return setup_.notify_driver; }
  WorkOperation direction() const { return direction_; }
  const PlanStretches& stretches() const { return stretches_; }
  bool has_more() const {
    return !stopped_ && (!returned_.empty() || next_ < progress_.chunks_total);
  }
  bool has_unmoved() const { return has_more() || (!stopped_ && writes_in_flight() != 0); }
  // Returns the work request that Take returns next. REQUIRES has_more().
  const WorkRequest& Next();
  // Returns a work request that counts as in flight until one of the next three calls. REQUIRES
  // has_more().
  NumberedWork Take(TimePoint now);
  void NotPosted(const NumberedWork& work);
  void Moved(const NumberedWork& work);
  void Lost(const NumberedWork& work);  // its queue pair ended; it may be posted again
  void FailWith(Error why, bool is_counted = false);
  // Writes count as moved once they are flushed and visible to the peer. Each lane used needs a
  // flush, or the peer's queue pairs must end.
  void UseLane(size_t lane);
  bool wants_flush() const { return !unflushed_.empty() && writes_in_flight() == 0 && !has_more(); }
  const std::vector<size_t>& unflushed() const { return unflushed_; }
  NumberedWork TakeFlush(size_t lane);  // `lane` is one of unflushed()
  // True when writes may not have arrived, so the peer's queue pairs have to end.
  bool needs_peers_end() const { return !unflushed_.empty() || flushes_ != 0 || flush_lost_; }
  // Call when the connection is gone.
  void ForgetLanes();
  // Its packets may still reach the peer, until the peer has ended its queue pairs.
  void AwaitQuiet() { ++unquiet_; }
  void BecameQuiet() { --unquiet_; }
  // Returns true once when the engine has to handle it.
  bool Update();

 private:
  size_t writes_in_flight() const { return in_flight_ - flushes_; }
  void FailUncut(Error why);

  const Setup setup_;
  const WorkOperation direction_;
  PlanStretches stretches_;
  WorkCutter cutter_;
  uint64_t next_ = 0;  // number of the next work request to cut
  std::deque<NumberedWork> returned_;
  std::vector<bool> done_;
  std::vector<size_t> unflushed_;  // lanes that it wrote through
  size_t flushes_ = 0;             // in flight
  bool flush_lost_ = false;        // only the end of the peer's queue pairs helps
  size_t in_flight_ = 0;
  int unquiet_ = 0;
  bool stopped_ = false;
  bool finished_ = false;
  bool told_of_error_ = false;
  std::optional<Error> error_;
  Progress progress_;
};

}  // namespace gantry::transport
