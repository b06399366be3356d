#include "sidecar/transport/tcp/tcp_job.h"

#include <algorithm>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/transport/tcp/tcp_remote_buffer.h"

namespace gantry::transport {

TcpJob::TcpJob(Setup setup) : setup_(std::move(setup)), segment_done_(plan().segments.size()) {
  progress_.chunks_total = plan().segments.size();
}

bool TcpJob::HasWorkLocked() const {
  return !stopped_ && (!again_.empty() || cursor_.segment < plan().segments.size());
}

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
  AttendIfEnded();  // a plan that does not fit its memory has failed
  return std::nullopt;
}

MovePart TcpJob::Cut() {
  MovePart part;
  while (cursor_.segment < plan().segments.size()) {
    const MoveSegment segment = plan().segments[cursor_.segment];
    if (!AddBlock(segment, &part)) break;
  }
  return part;
}

bool TcpJob::AddBlock(const MoveSegment& segment, MovePart* part) {
  const uint64_t room = setup_.part_bytes - part->body.bytes;
  const uint64_t left = segment.length - cursor_.within;
  // Blocks stay whole where they can.
  if (room == 0 || (left > room && segment.length <= setup_.part_bytes)) return false;
  const uint64_t length = std::min(left, room);
  const uint64_t local_size = plan().local[segment.local_allocation]->size();
  const uint64_t local_at =
      segment.local_offset + cursor_.block * segment.local_stride + cursor_.within;
  const uint64_t remote_at =
      segment.remote_offset + cursor_.block * segment.remote_stride + cursor_.within;
  if (!Fits(local_at, length, local_size)) {
    FailLocked(Error(ErrorCode::kInternal, "a segment lies outside of its local allocation"));
    *part = MovePart();
    return false;
  }
  if (!AddRange(segment, remote_at, static_cast<uint32_t>(length), part)) return false;
  AddLocal(segment, local_at, length, part);
  const auto index = static_cast<uint32_t>(cursor_.segment);
  if (part->pieces.empty() || part->pieces.back().segment != index) {
    part->pieces.push_back({index, 0});
  }
  part->pieces.back().bytes += length;
  cursor_.within += length;
  if (cursor_.within == segment.length) {
    cursor_.within = 0;
    if (++cursor_.block == segment.count) cursor_ = {cursor_.segment + 1, 0, 0};
  }
  return true;
}

void TcpJob::AddLocal(const MoveSegment& segment, uint64_t local_offset, uint64_t length,
                      MovePart* part) const {
  if (setup_.staging == nullptr) {
    const std::span<std::byte> local = setup_.local[segment.local_allocation];
    part->local.Add(local.subspan(local_offset, length).data(), length);
    return;
  }
  if (part->staged == nullptr) part->staged = std::make_shared<StagedPayload>(*setup_.staging);
  part->staged->Add(plan().local[segment.local_allocation], local_offset, length);
}

bool TcpJob::AddRange(const MoveSegment& segment, uint64_t remote_offset, uint32_t length,
                      MovePart* part) const {
  RequestBody& body = part->body;
  const RemoteTarget& remote = *plan().remote[segment.remote_allocation].target;
  const auto& target = static_cast<const TcpRemoteBuffer&>(*remote.Over(wire::Path::kTcp));
  const bool same_buffer = !body.sections.empty() && body.sections.back().buffer == target.id() &&
                           body.sections.back().generation == target.generation();
  if (same_buffer) {
    WireRange& last = body.ranges.back();
    if (last.offset + last.length == remote_offset) {
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
  body.ranges.push_back({remote_offset, length});
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
    for (const MovePart::Piece& piece : part.pieces) {
      const uint64_t all = plan().segments[piece.segment].bytes();
      if (piece.bytes < all) {
        const auto [left, added] = segment_left_.try_emplace(piece.segment, all);
        left->second -= piece.bytes;
        if (left->second > 0) continue;
        segment_left_.erase(left);
      }
      segment_done_[piece.segment] = true;
      ++progress_.chunks;
    }
  }
  AttendIfEnded();
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
  AttendIfEnded();
}

void TcpJob::Refused(const MovePart&, Error why) {
  {
    const MutexLock lock(mutex_);
    --inflight_;
    FailLocked(std::move(why));
  }
  AttendIfEnded();
}

void TcpJob::Fail(Error why) {
  {
    const MutexLock lock(mutex_);
    FailLocked(std::move(why));
  }
  AttendIfEnded();
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
  AttendIfEnded();
}

bool TcpJob::Quiet(TimePoint now) const {
  return inflight_ == 0 && !HasWorkLocked() && now >= in_doubt_until_;
}

void TcpJob::AttendIfEnded() {
  const TimePoint now = Clock::now();
  {
    const MutexLock lock(mutex_);
    const bool failed = error_ && !attended_;
    if (failed) attended_ = true;
    if (!failed && !Quiet(now)) {
      if (inflight_ > 0 || HasWorkLocked()) return;
      // Only doubts are left.
      setup_.call_at(in_doubt_until_, [self = shared_from_this()] { self->AttendIfEnded(); });
      return;
    }
    if (failed && inflight_ == 0 && !Quiet(now)) {
      setup_.call_at(in_doubt_until_, [self = shared_from_this()] { self->AttendIfEnded(); });
    }
  }
  setup_.attend(shared_from_this());
}

TcpJob::State TcpJob::Look() const {
  const TimePoint now = Clock::now();
  const MutexLock lock(mutex_);
  return {Quiet(now), error_, progress_};
}

std::vector<uint32_t> TcpJob::UnfinishedItems() const {
  const MutexLock lock(mutex_);
  std::vector<uint32_t> items;
  for (size_t i = 0; i < segment_done_.size(); ++i) {
    if (segment_done_[i]) continue;
    const MoveSegment segment = plan().segments[i];
    for (uint32_t item = 0; item < segment.items; ++item)
      items.push_back(segment.first_item + item);
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

}  // namespace gantry::transport
