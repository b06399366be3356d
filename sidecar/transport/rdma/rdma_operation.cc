#include "sidecar/transport/rdma/rdma_operation.h"

#include <algorithm>
#include <utility>

namespace gantry::transport {

RdmaOperation::RdmaOperation(Setup setup)
    : setup_(std::move(setup)),
      direction_(setup_.plan->operation == wire::Operation::kRead ? WorkOperation::kRead
                                                                  : WorkOperation::kWrite),
      stretches_(*setup_.plan),
      cutter_(*setup_.plan, stretches_, setup_.slice_bytes) {
  if (setup_.refusal) {
    FailUncut(*setup_.refusal);
    return;
  }
  // Counted before any is posted: a plan that is not all registered moves nothing.
  WorkCutter counting(*setup_.plan, stretches_, setup_.slice_bytes);
  WorkRequest work;
  auto more = counting.Next(&work);
  for (; more && *more; more = counting.Next(&work)) ++progress_.chunks_total;
  if (more) {
    done_.resize(progress_.chunks_total);
  } else {
    FailUncut(std::move(more).error());
  }
}

// Nothing is done of all that the plan has: zero of zero would be a success.
void RdmaOperation::FailUncut(Error why) {
  progress_.chunks_total = setup_.plan->segments.size();
  FailWith(std::move(why));
}

void RdmaOperation::Abort() {
  stopped_ = true;
  if (in_flight_ != 0 || needs_peers_end()) setup_.abort(*this);
}

const WorkRequest& RdmaOperation::Next() {
  if (returned_.empty()) {
    returned_.push_back({this, {}, next_++});
    (void)cutter_.Next(&returned_.front().work);  // it was counted
  }
  return returned_.front().work;
}

NumberedWork RdmaOperation::Take(TimePoint now) {
  (void)Next();
  if (!progress_.first_posted) progress_.first_posted = now;
  ++in_flight_;
  const NumberedWork work = returned_.front();
  returned_.pop_front();
  return work;
}

void RdmaOperation::UseLane(size_t lane) {
  if (direction_ == WorkOperation::kRead) return;
  if (std::find(unflushed_.begin(), unflushed_.end(), lane) == unflushed_.end()) {
    unflushed_.push_back(lane);
  }
}

NumberedWork RdmaOperation::TakeFlush(size_t lane) {
  std::erase(unflushed_, lane);
  ++in_flight_;
  ++flushes_;
  return {this, {}, 0, true};
}

void RdmaOperation::ForgetLanes() {
  unflushed_.clear();
  flush_lost_ = false;
}

void RdmaOperation::NotPosted(const NumberedWork& work) {
  --in_flight_;
  if (work.is_flush) {
    --flushes_;
    flush_lost_ = true;
    return;
  }
  returned_.push_front(work);
}

void RdmaOperation::Moved(const NumberedWork& work) {
  --in_flight_;
  if (work.is_flush) {
    --flushes_;
    return;
  }
  done_[work.number] = true;
  progress_.bytes += work.work.length;
  ++progress_.chunks;
}

void RdmaOperation::Lost(const NumberedWork& work) {
  --in_flight_;
  if (work.is_flush) {
    --flushes_;
    flush_lost_ = true;
    return;
  }
  ++progress_.chunks_retried;
  returned_.push_back(work);
}

void RdmaOperation::FailWith(Error why, bool is_counted) {
  stopped_ = true;
  if (error_) return;
  error_ = std::move(why);
  progress_.error_is_counted = is_counted;
}

bool RdmaOperation::Update() {
  if (finished_) return false;
  const bool over = stopped_ || progress_.chunks == progress_.chunks_total;
  if (over && in_flight_ == 0 && unquiet_ == 0 && !needs_peers_end()) {
    finished_ = true;
    return true;
  }
  return error_ && !std::exchange(told_of_error_, true);
}

// Cut again: it costs what the first time did, and nothing while all goes well.
std::vector<uint32_t> RdmaOperation::UnfinishedItems() const {
  std::vector<uint32_t> items;
  WorkCutter again(*setup_.plan, stretches_, setup_.slice_bytes);
  if (done_.empty()) return again.ItemsLeft();  // it failed before its first
  WorkRequest work;
  for (size_t number = 0; number < done_.size(); ++number) {
    if (!again.Next(&work).value_or(false)) break;
    if (done_[number]) continue;
    for (uint32_t i = 0; i < work.items; ++i) items.push_back(work.first_item + i);
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

}  // namespace gantry::transport
