// One transfer on the rdma transport: cuts its plan into work requests, and knows which of them are
// done. Owned by the engine's driver.
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

// A work request of an operation, numbered in the order in which they were cut.
struct NumberedWork {
  RdmaOperation* operation = nullptr;
  WorkRequest work;
  uint64_t number = 0;
  bool is_flush = false;  // moves nothing, and ends after what was written before it has arrived
};

class RdmaOperation final : public Operation {
 public:
  struct Setup {
    std::shared_ptr<const MovePlan> plan;
    uint64_t slice_bytes = 0;  // of a work request, for as long as the operation lives
    uint64_t token = 0;
    std::function<void()> attend = {};  // instead of the token: it failed, or is finished
    std::optional<Error> refusal;       // it never begins
    // What is in flight has to end by force.
    std::function<void(RdmaOperation&)> abort;
  };

  explicit RdmaOperation(Setup setup);

  void Stop() override { stopped_ = true; }
  void Abort() override;
  bool finished() const override { return finished_; }
  const std::optional<Error>& error() const override { return error_; }
  bool error_is_counted() const override { return error_is_counted_; }
  const Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override;

  // The rest is for the transport.
  uint64_t token() const { return setup_.token; }
  const std::function<void()>& attend() const { return setup_.attend; }
  WorkOperation direction() const { return direction_; }
  const PlanStretches& stretches() const { return stretches_; }
  bool has_more() const {
    return !stopped_ && (!returned_.empty() || next_ < progress_.chunks_total);
  }
  bool has_unmoved() const { return has_more() || (!stopped_ && writes_in_flight() != 0); }
  // What Take gives next. REQUIRES has_more().
  const WorkRequest& Next();
  // REQUIRES has_more(). It is in flight from here on, until one of the next three.
  NumberedWork Take(TimePoint now);
  void NotPosted(const NumberedWork& work);
  void Moved(const NumberedWork& work);
  void Lost(const NumberedWork& work);  // its queue pair ended; it may be posted again
  void FailWith(Error why, bool is_counted = false);
  // What was written counts as moved when it has been flushed to where the peer sees it: through
  // each lane of the connection that it went through, or by the end of the peer's queue pairs.
  void UseLane(size_t lane);
  bool wants_flush() const { return !unflushed_.empty() && writes_in_flight() == 0 && !has_more(); }
  const std::vector<size_t>& unflushed() const { return unflushed_; }
  NumberedWork TakeFlush(size_t lane);  // of one of these
  // Something of it has gone through the connection and is not known to have arrived.
  bool needs_peers_end() const { return !unflushed_.empty() || flushes_ != 0 || flush_lost_; }
  // The connection is gone.
  void ForgetLanes();
  // Packets of it may be under way to a peer, until that has ended its queue pairs.
  void AwaitQuiet() { ++unquiet_; }
  void BecameQuiet() { --unquiet_; }
  // True once when the engine has to attend to it.
  bool Update();

 private:
  size_t writes_in_flight() const { return in_flight_ - flushes_; }
  void FailUncut(Error why);

  const Setup setup_;
  const WorkOperation direction_;
  PlanStretches stretches_;
  WorkCutter cutter_;
  uint64_t next_ = 0;  // number of the next that is cut
  std::deque<NumberedWork> returned_;
  std::vector<bool> done_;
  std::vector<size_t> unflushed_;  // lanes that it wrote through
  size_t flushes_ = 0;             // in flight
  bool flush_lost_ = false;        // nothing but the end of the peer's queue pairs helps
  size_t in_flight_ = 0;
  int unquiet_ = 0;
  bool stopped_ = false;
  bool finished_ = false;
  bool told_of_error_ = false;
  std::optional<Error> error_;
  bool error_is_counted_ = false;
  Progress progress_;
};

}  // namespace gantry::transport
