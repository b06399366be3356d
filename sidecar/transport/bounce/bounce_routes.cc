#include "sidecar/transport/bounce/bounce_routes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "sidecar/copy/staging_half.h"
#include "sidecar/transport/bounce/bounce_remote_buffer.h"

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

// The place of a thing in a list that has each of them once, by what it is known by.
template <typename T, typename Key>
uint32_t IndexIn(std::vector<T>* list, std::unordered_map<Key, uint32_t>* places, const Key& key,
                 T thing) {
  const auto [place, added] = places->try_emplace(key, static_cast<uint32_t>(list->size()));
  if (added) list->push_back(std::move(thing));
  return place->second;
}

class Router {
 public:
  Router(const MovePlan& plan, const BounceStage& stage, Filling here,
         const RemoteStage::StageLease* stage_lease, Filling there)
      : plan_(plan), stage_(stage), here_(here), stage_lease_(stage_lease), there_(there) {
    between_->operation = plan.operation;
    if (stage_lease != nullptr) routes_.remote.stage = stage_lease->stage;
  }

  void Add(const BouncePart::Range& range) {
    if (range.remote_staged) AddRemote(range);
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
    if (!range.local_staged) {
      if (!has_direct_) {
        between_->local_nic_memory.insert(between_->local_nic_memory.end(),
                                          plan_.local_nic_memory.begin(),
                                          plan_.local_nic_memory.end());
      }
      has_direct_ = true;
      return {LocalIndex(memory), range.local_offset + done, false};
    }
    if (!has_staged_) between_->local_nic_memory.push_back(stage_.nic_memory);
    has_staged_ = true;
    *bytes = std::min(*bytes, here_.room());
    return {LocalIndex(stage_.memory), here_.at(), true};
  }

  uint32_t LocalIndex(const std::shared_ptr<const memory::MappedAllocation>& memory) {
    return IndexIn(&between_->local, &local_places_, static_cast<const void*>(memory.get()),
                   memory);
  }

  Place RemoteOf(const BouncePart::Range& range, uint64_t done, uint64_t* bytes) {
    const RemoteAllocation& remote = plan_.remote[range.remote_allocation];
    if (!range.remote_staged) {
      return {RemoteIndex(remote), range.remote_offset + done, false};
    }
    *bytes = std::min(*bytes, there_.room());
    RemoteAllocation slices;
    slices.target = stage_lease_->memory;
    return {RemoteIndex(slices), there_.at(), true};
  }

  uint32_t RemoteIndex(const RemoteAllocation& remote) {
    return IndexIn(&between_->remote, &remote_places_,
                   static_cast<const void*>(remote.target.get()), remote);
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
    const BounceRemoteBuffer* const buffer =
        BounceRemoteBuffer::Of(plan_.remote[range.remote_allocation]);
    const uint32_t index =
        IndexIn(&routes_.remote.buffers, &buffer_places_, static_cast<const void*>(buffer),
                wire::StagedMove::Buffer{buffer->id(), buffer->generation()});
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
  const BounceStage& stage_;
  Filling here_;
  const RemoteStage::StageLease* const stage_lease_;
  Filling there_;
  using Places = std::unordered_map<const void*, uint32_t>;
  Places local_places_;
  Places remote_places_;
  Places buffer_places_;
  bool has_direct_ = false;
  bool has_staged_ = false;
  BounceRoutes routes_;
  std::shared_ptr<MovePlan> between_ = std::make_shared<MovePlan>();
};

}  // namespace

BounceRoutes RoutesOf(const BouncePart& part, const MovePlan& plan, const BounceStage& stage,
                      std::span<const uint32_t> local_slices,
                      const RemoteStage::StageLease* stage_lease,
                      std::span<const uint32_t> remote_slices) {
  const uint64_t lent_bytes = stage_lease != nullptr ? stage_lease->slice_bytes : 1;
  Router router(plan, stage, Filling(local_slices, kStagingSliceBytes, stage.offset), stage_lease,
                Filling(remote_slices, lent_bytes, 0));
  for (const BouncePart::Range& range : part.ranges) router.Add(range);
  return router.Finish(remote_slices);
}

}  // namespace gantry::transport
