#include "sidecar/transport/bounce/stage_target.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "lib/base/byte_range.h"
#include "lib/base/log.h"
#include "sidecar/transport/bounce/resolved_move.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"

namespace gantry::transport {
namespace {

constexpr size_t kLentShare = 2;     // one part in so many of the half, of all sessions
constexpr size_t kSessionShare = 4;  // likewise, of one
constexpr uint64_t kAny = 0;         // no stage has this number

size_t LentMax(const StagingHalf& half) {
  const size_t slices = half.slices.size();
  return std::min(slices / kLentShare, slices - std::min(slices, kStagingSlicesAtOnce));
}

}  // namespace

StageTarget::StageTarget(memory::NicRegistrar& nics, StagingHalf& half, const Limits& limits)
    : nics_(nics),
      half_(half),
      limits_(limits),
      lent_max_(LentMax(half)),
      session_max_(std::clamp<size_t>(half.slices.size() / kSessionShare, 1,
                                      static_cast<size_t>(wire::kStageSlicesMax))) {}

Status StageTarget::Usable() const {
  if (lent_max_ > 0) return half_.copier.Usable(wire::MemoryKind::kGpu);
  return Fail(ErrorCode::kPathUnavailable,
              "the staging memory is too small for some of it to be lent to peers",
              "make --staging-bytes larger");
}

Result<wire::StageGrant> StageTarget::Open(const std::string& session, uint32_t slices) {
  RETURN_IF_ERROR(Usable());
  ASSIGN_OR_RETURN(const std::shared_ptr<Stage> stage, Lend(session, slices));
  auto grant = Register(stage.get());
  {
    const MutexLock lock(mutex_);
    if (grant && !stage->ending) {
      stage->open = true;
      return grant;
    }
  }
  Dissolve(session, stage.get());
  if (!grant) return grant;
  return Fail(ErrorCode::kStaleGeneration, "the session ended while its stage was made");
}

Result<std::shared_ptr<StageTarget::Stage>> StageTarget::Lend(const std::string& session,
                                                              uint32_t slices) {
  const MutexLock lock(mutex_);
  if (stages_.contains(session)) {
    return Fail(ErrorCode::kConflict, "the session has a stage", "close it first");
  }
  const size_t most = std::min<size_t>({slices, session_max_, lent_max_ - lent_});
  auto stage = std::make_shared<Stage>();
  stage->lease = half_.slices.TakeAtOnce(most);
  const size_t taken = stage->lease.slices().size();
  if (taken == 0) {
    return Fail(ErrorCode::kResourceExhausted,
                "no slice of the staging memory is free: peers have " + std::to_string(lent_) +
                    " of " + std::to_string(lent_max_) + " that may be lent",
                "try again later, or make --staging-bytes of the buffers' owner larger");
  }
  lent_ += taken;
  stage->number = ++last_number_;
  stage->in_copy.resize(taken);
  stages_.emplace(session, stage);
  return stage;
}

Result<wire::StageGrant> StageTarget::Register(Stage* stage) {
  std::vector<memory::NicPiece> pieces;
  for (const uint64_t slice : stage->lease.slices()) {
    const uint64_t place = slice * kStagingSliceBytes;
    // Before anybody else can read it: whose bytes were there last is no matter of this session.
    const std::span<std::byte> bytes = half_.memory.subspan(place, kStagingSliceBytes);
    std::memset(bytes.data(), 0, bytes.size());
    pieces.push_back({half_.allocation, half_.stage_offset + place, kStagingSliceBytes});
  }
  auto registered = nics_.Register(pieces, {.remote_read = true, .remote_write = true});
  if (!registered) {
    return Fail(std::move(registered).error().WithContext("registering staging memory"));
  }
  stage->nic_memory = *std::move(registered);
  const auto* const set = dynamic_cast<const MemoryRegionSet*>(stage->nic_memory.get());
  if (set == nullptr || set->chunks() != pieces.size()) {
    return Fail(ErrorCode::kPathUnavailable,
                "the RDMA devices take no region of " + std::to_string(kStagingSliceBytes) +
                    " bytes, as long as a slice of the staging memory",
                "make --rdma-chunk-bytes larger");
  }
  return wire::StageGrant{stage->number, kStagingSliceBytes, set->ChunkDescriptors(),
                          set->devices().List()};
}

Status StageTarget::Copy(const std::string& session, const wire::StagedMove& move,
                         TargetBuffers& buffers) {
  const TimePoint end =
      Clock::now() + std::clamp<milliseconds>(milliseconds(move.time_ms), limits_.copy_time_min,
                                              limits_.copy_time_max);
  std::shared_ptr<Stage> stage;
  ASSIGN_OR_RETURN(const std::vector<uint64_t> places, BeginCopy(session, move, &stage));
  Status copied;
  if (auto resolved = ResolveMove(buffers, session, move, places)) {
    copied = RunCopy(move, *std::move(resolved), end, stage.get());
  } else {
    copied = Fail(std::move(resolved).error());
  }
  EndCopy(move, stage.get());
  return copied;
}

Status StageTarget::RunCopy(const wire::StagedMove& move, ResolvedMove resolved, TimePoint end,
                            const Stage* stage) {
  auto done = std::make_shared<std::promise<Status>>();
  StagedCopy copy;
  copy.to_buffer = move.to_buffers;
  copy.ranges = std::move(resolved.ranges);
  copy.priority = move.priority;
  copy.end = end;
  copy.owner = stage;
  copy.done = [done](Status status) { done->set_value(std::move(status)); };
  half_.copier.Start(std::move(copy));
  Status copied = done->get_future().get();
  if (copied) return copied;
  return Fail(std::move(copied).error().WithContext("copying memory of the buffer's GPU"));
}

Result<std::vector<uint64_t>> StageTarget::BeginCopy(const std::string& session,
                                                     const wire::StagedMove& move,
                                                     std::shared_ptr<Stage>* stage) {
  const MutexLock lock(mutex_);
  const auto found = stages_.find(session);
  if (found == stages_.end() || found->second->number != move.stage || !found->second->open ||
      found->second->ending) {
    return Fail(ErrorCode::kNotFound,
                "the session has no stage " + std::to_string(move.stage) + " here", "open one");
  }
  *stage = found->second;
  RETURN_IF_ERROR(CheckSlices(**stage, move));
  if (copies_ >= limits_.copies_max || (*stage)->copies >= limits_.session_copies_max) {
    return Fail(ErrorCode::kResourceExhausted,
                "peers have " + std::to_string(copies_) + " copies under way here", "try again");
  }
  std::vector<uint64_t> places;
  for (const uint32_t slice : move.slices) {
    (*stage)->in_copy[slice] = true;
    const uint64_t of_half = (*stage)->lease.slices()[slice];
    places.push_back(half_.stage_offset + of_half * kStagingSliceBytes);
  }
  ++(*stage)->copies;
  ++copies_;
  return places;
}

Status StageTarget::CheckSlices(const Stage& stage, const wire::StagedMove& move) const {
  std::vector<bool> named = stage.in_copy;
  for (const uint32_t slice : move.slices) {
    if (slice >= named.size()) {
      return Fail(ErrorCode::kOutOfRange, "the stage has " + std::to_string(named.size()) +
                                              " slices, and none with the number " +
                                              std::to_string(slice));
    }
    if (named[slice]) {
      return Fail(ErrorCode::kConflict,
                  "slice " + std::to_string(slice) + " is named twice, or another copy is at it");
    }
    named[slice] = true;
  }
  uint64_t bytes = 0;
  const uint64_t room = move.slices.size() * kStagingSliceBytes;
  for (const wire::StagedMove::Range& range : move.ranges) {
    if (!EndOf(bytes, range.length, &bytes) || bytes > room) bytes = room + 1;
  }
  if (bytes <= room && room - bytes < kStagingSliceBytes && !move.slices.empty()) return {};
  return Fail(ErrorCode::kOutOfRange, "the ranges of a copy do not fill its " +
                                          std::to_string(move.slices.size()) + " slices");
}

void StageTarget::EndCopy(const wire::StagedMove& move, Stage* stage) {
  const MutexLock lock(mutex_);
  for (const uint32_t slice : move.slices) stage->in_copy[slice] = false;
  --stage->copies;
  --copies_;
  changed_.NotifyAll();
}

void StageTarget::Close(const std::string& session, uint64_t stage) { EndStage(session, stage); }

void StageTarget::End(const std::string& session) { EndStage(session, kAny); }

void StageTarget::EndStage(const std::string& session, uint64_t number) {
  std::shared_ptr<Stage> stage;
  {
    MutexLock lock(mutex_);
    const auto found = stages_.find(session);
    if (found == stages_.end() || (number != kAny && found->second->number != number)) return;
    stage = found->second;
    const bool others = std::exchange(stage->ending, true) || !stage->open;
    // Whoever ends it already, or was about to open it, takes it down.
    if (others) return AwaitGone(lock, session, stage.get());
    AwaitCopies(lock, *stage);
  }
  Dissolve(session, stage.get());
}

void StageTarget::AwaitCopies(MutexLock& lock, const Stage& stage) {
  bool said = false;
  TimePoint by_force = Clock::now() + limits_.copy_grace;
  while (stage.copies > 0) {
    if (changed_.WaitUntil(lock, by_force) || stage.copies == 0) continue;
    // Again and again: one that began just now may have missed it.
    half_.copier.Abort(&stage);
    by_force = Clock::now() + limits_.copy_grace;
    if (!std::exchange(said, true)) {
      log::Warning("copies of a stage that was closed do not end, and are ended by force",
                   {{"stage", stage.number}, {"copies", stage.copies}});
    }
  }
}

void StageTarget::AwaitGone(MutexLock& lock, const std::string& session, const Stage* stage) {
  while (true) {
    const auto found = stages_.find(session);
    if (found == stages_.end() || found->second.get() != stage) return;
    changed_.Wait(lock);
  }
}

// The devices let go of the slices before anybody else may have them. Those that a device does not
// let go of nobody has any more: their keys are known.
void StageTarget::Dissolve(const std::string& session, Stage* stage) {
  const size_t slices = stage->lease.slices().size();
  const bool let_go = stage->nic_memory == nullptr || stage->nic_memory->Deregister();
  stage->nic_memory.reset();
  if (let_go) {
    stage->lease.Release();
  } else {
    log::Error("RDMA devices do not let go of staging memory, which is not used any more",
               {{"slices", slices}, {"hint", "restart the sidecar when its transfers are over"}});
  }
  const MutexLock lock(mutex_);
  stages_.erase(session);
  if (let_go) {
    lent_ -= slices;
  } else {
    lost_.push_back(std::move(stage->lease));
  }
  changed_.NotifyAll();
}

StageTarget::Totals StageTarget::totals() const {
  const MutexLock lock(mutex_);
  return {stages_.size(), lent_};
}

}  // namespace gantry::transport
