#include "sidecar/transport/tcp/tcp_job.h"

#include <algorithm>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/transport/tcp/tcp_remote_buffer.h"

namespace gantry::transport {

TcpJob::TcpJob(Setup setup) : setup_(std::move(setup)), cursor_(plan()), tally_(plan()) {
  progress_.chunks_total = plan().segments.size();
}

bool TcpJob::HasWorkLocked() const { return !stopped_ && (!again_.empty() || !cursor_.at_end()); }

bool TcpJob::HasWork() const {
  const MutexLock lock(mutex_);
  return HasWorkLocked();
}

std::optional<MovePart> TcpJob::Take(const void* stream) {
  std::optional<MovePart> part;
  {
    const MutexLock lock(mutex_);
    if (!HasWorkLocked()) return std::nullopt;
    if (!again_.empty()) {
      part = std::move(again_.front());
      again_.pop_front();
      progress_.chunks_retried += part->pieces.size();
    } else {
      part = Cut();
      part->body.priority = setup_.priority;
    }
    if (!part->body.ranges.empty()) {
      ++inflight_;
      if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
        streams_.push_back(stream);
        progress_.workers = static_cast<int>(streams_.size());
      }
      if (!progress_.first_posted) progress_.first_posted = Clock::now();
      part->job = shared_from_this();
      return part;
    }
  }
  NotifyIfEnded();  // a plan that does not fit its memory has failed
  return std::nullopt;
}

MovePart TcpJob::Cut() {
  MovePart part;
  while (!cursor_.at_end() && AddBlock(&part)) {
  }
  return part;
}

bool TcpJob::AddBlock(MovePart* part) {
  const auto stretch = cursor_.Peek(setup_.part_bytes - part->body.bytes, setup_.part_bytes);
  if (!stretch) return false;
  if (!Fits(stretch->local_offset, stretch->length,
            plan().local[stretch->local_allocation]->size())) {
    FailLocked(Error(ErrorCode::kInternal, "a segment lies outside of its local allocation"));
    *part = MovePart();
    return false;
  }
  if (!AddRange(*stretch, part)) return false;
  AddLocal(*stretch, part);
  AddPiece(stretch->segment, stretch->length, &part->pieces);
  cursor_.Pass(*stretch);
  return true;
}

void TcpJob::AddLocal(const BlockCursor::Stretch& stretch, MovePart* part) const {
  if (setup_.staging == nullptr) {
    const std::span<std::byte> local = setup_.local[stretch.local_allocation];
    part->local.Add(local.subspan(stretch.local_offset, stretch.length).data(), stretch.length);
    return;
  }
  if (part->staged == nullptr) part->staged = std::make_shared<StagedPayload>(*setup_.staging);
  part->staged->Add(plan().local[stretch.local_allocation], stretch.local_offset, stretch.length);
}

bool TcpJob::AddRange(const BlockCursor::Stretch& stretch, MovePart* part) const {
  RequestBody& body = part->body;
  const RemoteTarget& remote = *plan().remote[stretch.remote_allocation].target;
  const auto& target = static_cast<const TcpRemoteBuffer&>(*remote.Over(wire::Path::kTcp));
  const auto length = static_cast<uint32_t>(stretch.length);
  const bool same_buffer = !body.sections.empty() && body.sections.back().buffer == target.id() &&
                           body.sections.back().generation == target.generation();
  if (same_buffer) {
    WireRange& last = body.ranges.back();
    if (last.offset + last.length == stretch.remote_offset) {
      last.length += length;
      body.bytes += length;
      return true;
    }
  }
  if (body.ranges.size() == kFrameRangesMax) return false;
  if (!same_buffer) {
    if (body.sections.size() == kFrameSectionsMax) return false;
    body.sections.push_back(
        {target.id(), target.generation(), static_cast<uint32_t>(body.ranges.size()), 0});
  }
  body.ranges.push_back({stretch.remote_offset, length});
  ++body.sections.back().ranges;
  body.bytes += length;
  return true;
}

void TcpJob::Done(const MovePart& part) {
  {
    const MutexLock lock(mutex_);
    --inflight_;
    progress_.bytes += part.body.bytes;
    if (part.staged != nullptr) progress_.staged_bytes += part.staged->staged_bytes();
    for (const SegmentTally::Piece& piece : part.pieces) {
      if (tally_.Add(piece)) ++progress_.chunks;
    }
  }
  NotifyIfEnded();
}

void TcpJob::Lost(MovePart part, const Error& why, TimePoint in_doubt_until, bool innocent) {
  {
    const MutexLock lock(mutex_);
    --inflight_;
    in_doubt_until_ = std::max(in_doubt_until_, in_doubt_until);
    if (part.retried && !innocent) {
      FailLocked(why);
    } else if (!stopped_) {
      part.retried |= !innocent;
      if (part.staged != nullptr) {  // who waits holds no slices
        part.staged->Displace();
        part.local.Clear();
      }
      part.local.Rewind();
      part.job.reset();  // a job must not keep itself
      again_.push_back(std::move(part));
    }
  }
  NotifyIfEnded();
}

void TcpJob::Refused(const MovePart&, Error why) {
  {
    const MutexLock lock(mutex_);
    --inflight_;
    FailLocked(std::move(why));
  }
  NotifyIfEnded();
}

void TcpJob::Fail(Error why) {
  {
    const MutexLock lock(mutex_);
    FailLocked(std::move(why));
  }
  NotifyIfEnded();
}

void TcpJob::FailLocked(Error why) {
  stopped_ = true;
  again_.clear();
  if (!error_) error_ = std::move(why);
}

void TcpJob::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    again_.clear();
  }
  NotifyIfEnded();
}

bool TcpJob::Quiet(TimePoint now) const {
  return inflight_ == 0 && !HasWorkLocked() && now >= in_doubt_until_;
}

void TcpJob::NotifyIfEnded() {
  const TimePoint now = Clock::now();
  {
    const MutexLock lock(mutex_);
    const bool failed = error_ && !notified_;
    if (failed) notified_ = true;
    if (!failed && !Quiet(now)) {
      if (inflight_ > 0 || HasWorkLocked()) return;
      // Only doubts are left.
      setup_.call_at(in_doubt_until_, [self = shared_from_this()] { self->NotifyIfEnded(); });
      return;
    }
    if (failed && inflight_ == 0 && !Quiet(now)) {
      setup_.call_at(in_doubt_until_, [self = shared_from_this()] { self->NotifyIfEnded(); });
    }
  }
  setup_.notify_driver(shared_from_this());
}

TcpJob::State TcpJob::Snapshot() const {
  const TimePoint now = Clock::now();
  const MutexLock lock(mutex_);
  return {Quiet(now), error_, progress_};
}

std::vector<uint32_t> TcpJob::UnfinishedItems() const {
  const MutexLock lock(mutex_);
  return tally_.UnfinishedItems();
}

}  // namespace gantry::transport
