#include "sidecar/transport/bounce/bounce_routes.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sidecar/transport/bounce/bounce_remote_buffer.h"
#include "sidecar/transport/staging_half.h"

namespace gantry::transport {
namespace {

// Slices that are filled one after another, as bytes of one range of memory.
class Filling {
 public:
  Filling(std::span<const uint32_t> slices, uint64_t slice_bytes, uint64_t first)
      : slices_(slices), slice_bytes_(slice_bytes), first_(first) {}

  uint64_t room() const { return slice_bytes_ - filled_ % slice_bytes_; }  // in this slice
  uint64_t at() const {
    return first_ + slices_[filled_ / slice_bytes_] * slice_bytes_ + filled_ % slice_bytes_;
  }
  void Pass(uint64_t bytes) { filled_ += bytes; }

 private:
  const std::span<const uint32_t> slices_;
  const uint64_t slice_bytes_;
  const uint64_t first_;
  uint64_t filled_ = 0;
};

// The place of a thing in a list that has each of them once. A part has few.
template <typename T, typename Same>
uint32_t IndexIn(std::vector<T>* list, T thing, const Same& same) {
  const auto found = std::find_if(list->begin(), list->end(), same);
  const auto index = static_cast<uint32_t>(found - list->begin());
  if (found == list->end()) list->push_back(std::move(thing));
  return index;
}

class Router {
 public:
  Router(const MovePlan& plan, const BounceCutter& cutter, const BounceStage& stage, Filling here,
         const RemoteStage::Lent* lent, Filling there)
      : plan_(plan), cutter_(cutter), stage_(stage), here_(here), lent_(lent), there_(there) {
    between_->operation = plan.operation;
    if (lent != nullptr) routes_.remote.stage = lent->stage;
  }

  void Add(const BouncePart::Range& range) {
    if (cutter_.remote_is_staged(range.remote_allocation)) AddRemote(range);
    for (uint64_t done = 0; done < range.length;) {
      uint64_t bytes = range.length - done;
      const Place local = LocalOf(range, done, &bytes);
      const Place remote = RemoteOf(range, done, &bytes);
      if (local.staged) {
        AddLocal(
            {plan_.local[range.local_allocation], range.local_offset + done, local.offset, bytes});
        here_.Pass(bytes);
      }
      if (remote.staged) there_.Pass(bytes);
      AddBetween(local, remote, bytes);
      done += bytes;
    }
  }

  BounceRoutes Finish(std::span<const uint32_t> remote_slices) {
    routes_.remote.slices.assign(remote_slices.begin(), remote_slices.end());
    routes_.between_them = std::move(between_);
    return std::move(routes_);
  }

 private:
  struct Place {
    uint32_t allocation = 0;  // of between_
    uint64_t offset = 0;
    bool staged = false;
  };

  Place LocalOf(const BouncePart::Range& range, uint64_t done, uint64_t* bytes) {
    const auto& memory = plan_.local[range.local_allocation];
    if (!cutter_.local_is_staged(range.local_allocation)) {
      if (!has_direct_) {
        between_->local_on_nics.insert(between_->local_on_nics.end(), plan_.local_on_nics.begin(),
                                       plan_.local_on_nics.end());
      }
      has_direct_ = true;
      return {LocalIndex(memory), range.local_offset + done, false};
    }
    if (!has_staged_) between_->local_on_nics.push_back(stage_.on_nics);
    has_staged_ = true;
    *bytes = std::min(*bytes, here_.room());
    return {LocalIndex(stage_.memory), here_.at(), true};
  }

  uint32_t LocalIndex(const std::shared_ptr<const memory::MappedAllocation>& memory) {
    return IndexIn(&between_->local, memory, [&](const auto& other) { return other == memory; });
  }

  Place RemoteOf(const BouncePart::Range& range, uint64_t done, uint64_t* bytes) {
    const RemoteAllocation& remote = plan_.remote[range.remote_allocation];
    if (!cutter_.remote_is_staged(range.remote_allocation)) {
      return {RemoteIndex(remote), range.remote_offset + done, false};
    }
    *bytes = std::min(*bytes, there_.room());
    RemoteAllocation lent;
    lent.target = lent_->memory;
    return {RemoteIndex(lent), there_.at(), true};
  }

  uint32_t RemoteIndex(const RemoteAllocation& remote) {
    return IndexIn(&between_->remote, remote,
                   [&](const auto& other) { return other.target == remote.target; });
  }

  void AddLocal(StagedRange range) {
    if (!routes_.local.empty()) {
      StagedRange& last = routes_.local.back();
      if (last.memory == range.memory && last.offset + last.bytes == range.offset &&
          last.stage_offset + last.bytes == range.stage_offset) {
        last.bytes += range.bytes;
        return;
      }
    }
    routes_.local.push_back(std::move(range));
  }

  void AddRemote(const BouncePart::Range& range) {
    const auto& buffer = *BounceRemoteBuffer::Of(plan_.remote[range.remote_allocation]);
    auto& buffers = routes_.remote.buffers;
    const uint32_t index =
        IndexIn(&buffers, wire::StagedMove::Buffer{buffer.id(), buffer.generation()},
                [&](const wire::StagedMove::Buffer& other) {
                  return other.generation == buffer.generation() && other.id == buffer.id();
                });
    routes_.remote.ranges.push_back({index, range.remote_offset, range.length});
  }

  void AddBetween(const Place& local, const Place& remote, uint64_t bytes) {
    between_->bytes += bytes;
    MoveSegment segment;
    segment.local_allocation = local.allocation;
    segment.remote_allocation = remote.allocation;
    segment.local_offset = local.offset;
    segment.remote_offset = remote.offset;
    segment.length = bytes;
    between_->segments.push_back(segment);
  }

  const MovePlan& plan_;
  const BounceCutter& cutter_;
  const BounceStage& stage_;
  Filling here_;
  const RemoteStage::Lent* const lent_;
  Filling there_;
  bool has_direct_ = false;
  bool has_staged_ = false;
  BounceRoutes routes_;
  std::shared_ptr<MovePlan> between_ = std::make_shared<MovePlan>();
};

}  // namespace

BounceRoutes RoutesOf(const BouncePart& part, const MovePlan& plan, const BounceCutter& cutter,
                      const BounceStage& stage, std::span<const uint32_t> local_slices,
                      const RemoteStage::Lent* lent, std::span<const uint32_t> remote_slices) {
  const uint64_t lent_bytes = lent != nullptr ? lent->slice_bytes : 1;
  Router router(plan, cutter, stage, Filling(local_slices, kStagingSliceBytes, stage.offset), lent,
                Filling(remote_slices, lent_bytes, 0));
  for (const BouncePart::Range& range : part.ranges) router.Add(range);
  return router.Finish(remote_slices);
}

}  // namespace gantry::transport
