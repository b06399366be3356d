#include "sidecar/transport/bounce/bounce_job.h"

#include <algorithm>
#include <utility>

#include "lib/wire/session_times.h"

namespace gantry::transport {
namespace {

constexpr size_t kPartsMax = 16;                // of one transfer, under way
constexpr uint64_t kPartBytesMax = 1ULL << 20;  // two slices here
constexpr uint64_t kPartsPerStage = 4;          // at least, where the peer lends little

// Slices on their way to who waited for them, and what they are of.
struct Granted {
  std::shared_ptr<RemoteStage::StageLease> stage_lease;
  SliceLease lease;  // goes first
};

}  // namespace

BounceJob::BounceJob(Setup setup)
    : setup_(std::move(setup)), cutter_(*setup_.plan), tally_(*setup_.plan) {
  progress_.chunks_total = setup_.plan->segments.size();
}

// Slices of the peer's are taken before those here: who waits for the former holds none of the
// latter, which all peers share.
void BounceJob::Begin() {
  if (finished_ || copy_control_->stopped) return CheckFinished();
  if (!cutter_.needs_remote_stage()) return Fill();
  is_acquiring_ = true;
  acquiring_ = setup_.remote->Acquire(
      [self = shared_from_this()](Result<std::shared_ptr<RemoteStage::StageLease>> stage_lease) {
        self->StageAcquired(std::move(stage_lease));
      });
}

void BounceJob::StageAcquired(Result<std::shared_ptr<RemoteStage::StageLease>> stage_lease) {
  is_acquiring_ = false;
  if (!stage_lease) return FailWith(std::move(stage_lease).error());
  has_stage_lease_ = true;
  stage_lease_ = *std::move(stage_lease);
  Fill();
}

uint64_t BounceJob::PartBytes() const {
  uint64_t bytes = kPartBytesMax;
  if (setup_.half != nullptr) {
    bytes = std::min(bytes, setup_.half->slices.size() * kStagingSliceBytes);
  }
  if (stage_lease_ == nullptr) return bytes;
  const uint64_t slice = stage_lease_->slice_bytes;
  const uint64_t share = stage_lease_->slices.size() / kPartsPerStage;
  return std::min(bytes, std::max<uint64_t>(share, 1) * slice);
}

void BounceJob::Fill() {
  if (std::exchange(is_filling_, true)) return;  // parts may end while they begin
  while (!copy_control_->stopped && !cutter_.at_end() && parts_.size() < kPartsMax) {
    const Id id = ++last_id_;
    BouncePart& part = parts_[id].part;
    part = cutter_.Cut(PartBytes());
    if (part.local_staged != 0 && setup_.half == nullptr) FailWith(*setup_.why_no_half);
    Go(id, &BounceJob::TakeRemote);
  }
  is_filling_ = false;
  CheckFinished();
}

void BounceJob::Go(Id id, const Status& so_far, Step next) {
  if (!so_far && !copy_control_->stopped) FailWith(so_far.error());
  Go(id, next);
}

void BounceJob::Go(Id id, Step next) {
  if (copy_control_->stopped) return End(id);
  (this->*next)(id);
}

void BounceJob::Take(Id id, SlicePool* pool, uint64_t bytes, uint64_t slice_bytes,
                     SliceLease Part::*lease, Step next) {
  Part& part = parts_.at(id);
  const size_t count = (bytes + slice_bytes - 1) / slice_bytes;
  if (count == 0) return Go(id, next);
  auto taken = pool->Take(
      count,
      [self = shared_from_this(), stage_lease = stage_lease_, id, lease, next](SliceLease granted) {
        auto kept = std::make_shared<Granted>(Granted{stage_lease, std::move(granted)});
        self->setup_.rdma.core().post([self, id, lease, next, kept] {
          const auto found = self->parts_.find(id);
          if (found == self->parts_.end()) return;  // it was stopped
          found->second.waits_for = nullptr;
          found->second.*lease = std::move(kept->lease);
          self->Go(id, next);
        });
      },
      &part.ticket);
  if (!taken) {
    part.waits_for = pool;
    return;
  }
  part.*lease = *std::move(taken);
  Go(id, next);
}

void BounceJob::TakeRemote(Id id) {
  const uint64_t bytes = parts_.at(id).part.remote_staged;
  if (bytes == 0) return TakeLocal(id);
  Take(id, &stage_lease_->slices, bytes, stage_lease_->slice_bytes, &Part::remote,
       &BounceJob::TakeLocal);
}

void BounceJob::TakeLocal(Id id) {
  const uint64_t bytes = parts_.at(id).part.local_staged;
  if (bytes == 0) return Route(id);
  Take(id, &setup_.half->slices, bytes, kStagingSliceBytes, &Part::local, &BounceJob::Route);
}

void BounceJob::Route(Id id) {
  Part& part = parts_.at(id);
  part.routes = RoutesOf(part.part, *setup_.plan, setup_.stage, part.local.slices(),
                         stage_lease_.get(), part.remote.slices());
  if (is_write()) {
    CopyHere(id, &BounceJob::Carry);
  } else {
    CopyThere(id, &BounceJob::Carry);
  }
}

// From the GPUs here to the slices of a write, to them from those of a read.
void BounceJob::CopyHere(Id id, Step next) {
  Part& part = parts_.at(id);
  if (part.routes.local.empty()) return Go(id, next);
  StagedCopy copy;
  copy.to_buffer = !is_write();
  copy.ranges = std::move(part.routes.local);
  copy.priority = setup_.priority;
  copy.owner = this;
  if (!progress_.first_posted) progress_.first_posted = Clock::now();
  copy.done = [self = shared_from_this(), id, next](Status copied) {
    if (!copied) {
      copied = Fail(std::move(copied).error().WithContext(self->is_write() ? "copying from the GPU"
                                                                           : "copying to the GPU"));
    }
    self->setup_.rdma.core().post(
        [self, id, next, copied = std::move(copied)] { self->Go(id, copied, next); });
  };
  setup_.half->copier.Start(std::move(copy));
}

// The other way round, at the peer.
void BounceJob::CopyThere(Id id, Step next) {
  Part& part = parts_.at(id);
  if (part.routes.remote.ranges.empty()) return Go(id, next);
  wire::StagedMove move = std::move(part.routes.remote);
  move.to_buffers = is_write();
  move.priority = setup_.priority;
  move.time_ms = static_cast<uint32_t>(wire::kStageCopyMax.count());
  setup_.remote->Copy(
      std::move(move), copy_control_, [self = shared_from_this(), id, next](const Status& copied) {
        if (!copied && copied.error().code == ErrorCode::kPeerLost && self->is_write()) {
          self->in_doubt_until_ = Clock::now() + self->setup_.remote->lease() + wire::kStageCopyEnd;
          self->setup_.rdma.core().post_at(self->in_doubt_until_,
                                           [self] { self->CheckFinished(); });
        }
        self->Go(id, copied, next);
      });
}

void BounceJob::Carry(Id id) {
  Part& part = parts_.at(id);
  part.carried = setup_.rdma.StartPart(std::move(part.routes.between_them), setup_.priority,
                                       [self = shared_from_this(), id] { self->Carried(id); });
}

void BounceJob::Carried(Id id) {
  Part& part = parts_.at(id);
  if (const auto& error = part.carried->error()) FailWith(*error);
  if (!part.carried->finished()) return;
  (void)progress();
  progress_.chunks_retried += part.carried->progress().chunks_retried;
  part.carried.reset();
  if (copy_control_->stopped) return End(id);
  if (is_write()) {
    part.local.Release();
    CopyThere(id, &BounceJob::Done);
  } else {
    part.remote.Release();
    CopyHere(id, &BounceJob::Done);
  }
}

const Progress& BounceJob::progress() {
  if (copy_control_->begun && !progress_.first_posted) progress_.first_posted = Clock::now();
  for (const auto& [id, part] : parts_) {
    if (progress_.first_posted) break;
    if (part.carried != nullptr) progress_.first_posted = part.carried->progress().first_posted;
  }
  return progress_;
}

void BounceJob::Done(Id id) {
  const BouncePart& part = parts_.at(id).part;
  progress_.bytes += part.bytes;
  progress_.staged_bytes += part.local_staged;
  for (const SegmentTally::Piece& piece : part.pieces) {
    if (tally_.Add(piece)) ++progress_.chunks;
  }
  End(id);
}

void BounceJob::End(Id id) {
  Part ended = std::move(parts_.extract(id).mapped());
  if (ended.waits_for != nullptr) ended.waits_for->Cancel(ended.ticket);
  if (!copy_control_->stopped) Fill();
  CheckFinished();
}

void BounceJob::Stop() {
  copy_control_->stopped = true;
  // Those that wait for slices have begun nothing.
  std::vector<Id> waiting;
  for (const auto& [id, part] : parts_) {
    if (part.waits_for != nullptr) waiting.push_back(id);
    if (part.carried != nullptr) part.carried->Stop();
  }
  setup_.rdma.core().post([] {});  // which sees that these are over
  for (const Id id : waiting) End(id);
  CheckFinished();
}

void BounceJob::Abort() {
  Stop();
  if (setup_.half != nullptr) setup_.half->copier.Abort(this);
  for (const auto& [id, part] : parts_) {
    if (part.carried != nullptr) part.carried->Abort();
  }
}

void BounceJob::FailWith(Error why) {
  if (error_) return;
  error_ = std::move(why);
  Stop();
  if (!finished_) setup_.notify_driver();
}

void BounceJob::CheckFinished() {
  if (finished_ || is_filling_ || !parts_.empty()) return;
  if (!copy_control_->stopped && (is_acquiring_ || !cutter_.at_end())) return;
  if (Clock::now() < in_doubt_until_) return;
  finished_ = true;
  if (std::exchange(is_acquiring_, false)) setup_.remote->Cancel(acquiring_);
  if (std::exchange(has_stage_lease_, false)) setup_.remote->Release();
  stage_lease_ = nullptr;
  setup_.notify_driver();
}

}  // namespace gantry::transport
