// The part of TargetStream for buffers that are staged (of GPUs, and of files that can shrink): a
// read's bytes are copied into slices before they are sent, a write's are received in slices, and
// copied on within the write's lease before it is acknowledged. Copies end on the driver's thread,
// which gives the uses back; the rest is the loop's.
#include <algorithm>
#include <utility>

#include "sidecar/transport/tcp/target_stream.h"

namespace gantry::transport {
namespace {

// So many reads of a connection are under way between a GPU and the network.
constexpr size_t kAheadMax = 8;
// What a session may have of the slices for reads that are not the next ones of their connections:
// one part in so many. Others find some free, however slowly it takes its answers.
constexpr size_t kAheadShare = 4;
// After a connection's end, until copies that do not end are ended by force.
constexpr milliseconds kCopyGrace{1'000};
// So long before a write's lease is over its copy is ended by force: whoever moves bytes then has
// to die, and the last of them to land, before the initiator counts the write as failed.
constexpr milliseconds kCopyGuard{100};

// The clock that the wire's nanoseconds are of.
TimePoint TimeOf(uint64_t monotonic_nanoseconds) {
  return TimePoint(nanoseconds(static_cast<int64_t>(monotonic_nanoseconds)));
}

}  // namespace

void TargetStream::AwaitSlices() {
  auto placed = write_->target.staged->TryPlace(
      &write_->target.memory,
      [self = shared_from_this(), number = write_->number](SliceLease lease) {
        auto kept = std::make_shared<SliceLease>(std::move(lease));
        self->loop_.Post([self, number, kept] { self->WritePlaced(number, std::move(*kept)); });
      });
  if (placed) {
    write_->placed = *placed;
    return;
  }
  write_->refusal = std::move(placed).error();
  write_->target = {};
}

void TargetStream::WritePlaced(uint64_t number, SliceLease lease) {
  const bool waits = !closed_ && write_ && write_->number == number && !write_->placed;
  if (!waits) return;  // its lease is over, or the connection
  write_->placed = true;
  auto placed = write_->target.staged->Place(std::move(lease), &write_->target.memory);
  if (!placed) {
    receiver_.StopPlacing();
    write_->refusal = placed.error();
    write_->target = {};
  }
  moved_in_ = Clock::now();
  Move();
}

// All of its bytes are there, and intact.
void TargetStream::Apply(Write write) {
  auto staged = std::make_shared<StagedAnswer>();
  staged->target = std::move(write.target);
  staged->written = staged->target.staged->total();
  staged->since = Clock::now();
  Answer answer;
  answer.header.type = FrameType::kDone;
  answer.header.request = write.request;
  answer.bytes = sizeof(Answer) + sizeof(StagedAnswer);
  answer.staged = staged;
  Queue(std::move(answer));
  ++copies_;
  staged->target.staged->Copy(
      {.to_buffer = true,
       .priority = staged->target.priority,
       .end = TimeOf(write.lease_end) - kCopyGuard,
       .owner = this},
      [self = shared_from_this(), staged](const Status& copied) {
        staged->target = {};
        self->loop_.Post([self, staged, copied] { self->Copied(staged, copied); });
      });
}

void TargetStream::StageRead(ResolvedTarget target, Answer* answer) {
  auto staged = std::make_shared<StagedAnswer>();
  staged->target = std::move(target);
  staged->since = Clock::now();
  answer->staged = staged;
  // Weak: what waits for slices must not keep a buffer in use after the connection's end.
  auto placed = staged->target.staged->TryPlace(
      &staged->target.memory,
      [self = shared_from_this(), weak = std::weak_ptr(staged)](SliceLease lease) {
        auto kept = std::make_shared<SliceLease>(std::move(lease));
        self->loop_.Post([self, weak, kept] {
          if (const auto alive = weak.lock()) self->ReadPlaced(alive, std::move(*kept));
        });
      });
  if (placed && *placed) return CopyOut(staged);
  if (placed) return;
  staged->refusal = std::move(placed).error();
  staged->ready = true;
}

void TargetStream::ReadPlaced(const std::shared_ptr<StagedAnswer>& answer, SliceLease lease) {
  auto placed = answer->target.staged->Place(std::move(lease), &answer->target.memory);
  if (placed) return CopyOut(answer);
  answer->refusal = std::move(placed).error();
  answer->ready = true;
  Move();
}

void TargetStream::CopyOut(const std::shared_ptr<StagedAnswer>& answer) {
  ++copies_;
  answer->target.staged->Copy(
      {.to_buffer = false, .priority = answer->target.priority, .owner = this},
      [self = shared_from_this(), answer](const Status& copied) {
        StagedPayload& staged = *answer->target.staged;
        // What lies in host memory is sent from where it is.
        if (staged.staged_bytes() == staged.total()) {
          staged.ForgetMemory();
          answer->target.uses.clear();
        }
        self->loop_.Post([self, answer, copied] { self->Copied(answer, copied); });
      });
}

void TargetStream::Copied(const std::shared_ptr<StagedAnswer>& answer, const Status& copied) {
  --copies_;
  if (closed_) {
    if (copies_ == 0) hub_->Remove(this);
    return;
  }
  answer->ready = true;
  if (!copied && answer->written > 0 && copied.error().code == ErrorCode::kDeadlineExceeded) {
    answer->status = FrameStatus::kLeaseExpired;
  } else if (!copied) {
    answer->refusal = Error(copied.error()).WithContext("copying the buffer's memory");
  }
  moved_in_ = Clock::now();
  Move();
}

void TargetStream::TakeStaged(Answer* answer) {
  const std::shared_ptr<StagedAnswer> staged = std::move(answer->staged);
  if (staged->refusal) return RefuseWith(*staged->refusal, answer);
  answer->header.status = staged->status;
  if (answer->header.type == FrameType::kData) {
    sending_ = std::move(staged->target);
  } else if (staged->status == FrameStatus::kOk) {
    hub_->totals.bytes_written += staged->written;
  }
}

// In the order of the requests, the front one's first: one behind it that took the last slices
// would keep them until the front one, which then waits for them, is answered.
void TargetStream::StageAhead() {
  if (sender_.busy()) return;  // its peer takes no more: others may need the slices
  for (size_t i = 0; reads_staged_ && i < std::min(answers_.size(), kAheadMax); ++i) {
    Answer& answer = answers_[i];
    if (!answer.read || answer.staged != nullptr) continue;
    if (i > 0 && TakeShare(1) == nullptr) break;
    auto resolved =
        ResolveTarget(hub_->buffers, session_, *answer.read, /*for_write=*/false, hub_->staging);
    if (!resolved) break;  // it is asked for again, and refused, in its turn
    reads_staged_ = resolved->staged != nullptr;
    if (!reads_staged_) break;
    std::shared_ptr<void> share;
    if (i > 0) share = TakeShare(resolved->staged->slices_needed());
    if (i > 0 && share == nullptr) break;
    Populate(*resolved);
    StageRead(*std::move(resolved), &answer);
    answer.staged->share = std::move(share);
  }
}

std::shared_ptr<void> TargetStream::TakeShare(size_t slices) const {
  const size_t most = hub_->staging->slices.size() / kAheadShare;
  if (ahead_->fetch_add(slices) + slices > most) {
    ahead_->fetch_sub(slices);
    return nullptr;
  }
  return {ahead_.get(), [ahead = ahead_, slices](void*) { ahead->fetch_sub(slices); }};
}

void TargetStream::EndCopies() {
  loop_.PostAt(Clock::now() + kCopyGrace, [self = shared_from_this()] {
    if (self->copies_ > 0) self->hub_->staging->copier.Abort(self.get());
  });
}

}  // namespace gantry::transport
