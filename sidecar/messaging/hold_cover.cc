#include "sidecar/messaging/hold_cover.h"

#include <algorithm>
#include <set>

namespace gantry::engine {
namespace {

std::string GroupField(size_t group, std::string_view list, size_t index) {
  return "/groups/" + std::to_string(group) + "/" + std::string(list) + "/" + std::to_string(index);
}

tl::unexpected<Error> Outside(std::string what, std::string hint = {}) {
  return Fail(ErrorCode::kOutOfRange, std::move(what), std::move(hint));
}

}  // namespace

Result<HoldCover> HoldCover::Of(const registry::BufferRegistry& registry,
                                const wire::HoldRequest& request) {
  HoldCover cover;
  for (size_t i = 0; i < request.groups.size(); ++i) {
    const wire::HoldGroup& group = request.groups[i];
    std::vector<uint64_t>::const_iterator last;
    if (group.blocks) last = std::max_element(group.blocks->begin(), group.blocks->end());
    for (size_t j = 0; j < group.buffers.size(); ++j) {
      auto buffer = registry.ByName(request.workload, group.buffers[j]);
      if (!buffer) return Fail(std::move(buffer).error().WithField(GroupField(i, "buffers", j)));
      const registry::Buffer::Description& description = (*buffer)->description();
      const uint64_t count = description.layout ? description.layout->blocks : 0;
      if (group.blocks && *last >= count) {
        return Fail(ErrorCode::kOutOfRange,
                    "buffer '" + description.name + "' has " + std::to_string(count) +
                        " blocks, and none with the id " + std::to_string(*last),
                    {}, GroupField(i, "blocks", static_cast<size_t>(last - group.blocks->begin())));
      }
      const HeldBuffer held{description.generation, i};
      if (!cover.buffers_.emplace(description.name, held).second) {
        return Fail(ErrorCode::kInvalidArgument, "buffer '" + description.name + "' is named twice",
                    "put all of its blocks into one group", GroupField(i, "buffers", j));
      }
    }
    cover.size_ += group.buffers.size();
    cover.groups_.emplace_back();
    if (!group.blocks) continue;
    cover.groups_.back().emplace(*group.blocks);
    cover.size_ += cover.groups_.back()->size();
  }
  return cover;
}

Status HoldCover::Check(const std::vector<wire::HoldUsePart>& parts) const {
  for (const wire::HoldUsePart& part : parts) RETURN_IF_ERROR(CheckPart(part));
  return {};
}

Status HoldCover::CheckPart(const wire::HoldUsePart& part) const {
  std::set<size_t> looked_up;  // the layers of a group have the same blocks
  for (const wire::HeldBuffer& buffer : part.buffers) {
    const auto held = buffers_.find(buffer.name);
    if (held == buffers_.end()) return Outside("it is not about buffer '" + buffer.name + "'");
    if (held->second.generation != buffer.generation) {
      return Fail(ErrorCode::kStaleGeneration,
                  "buffer '" + buffer.name + "' was registered anew since it was held");
    }
    const std::optional<BlockRuns>& blocks = groups_[held->second.group];
    if (!blocks) continue;
    if (!part.blocks) {
      return Outside(
          "it is about some blocks of buffer '" + buffer.name + "', and the transfer names ranges",
          "name blocks, or hold the whole buffer");
    }
    if (!looked_up.insert(held->second.group).second) continue;
    for (const uint64_t block : *part.blocks) {
      if (blocks->Has(block)) continue;
      return Outside("block " + std::to_string(block) + " of buffer '" + buffer.name +
                     "' is not in it");
    }
  }
  return {};
}

}  // namespace gantry::engine
