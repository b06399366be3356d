#include "connectors/nixl/transfer/descriptor_ranges.h"

#include <unordered_map>

#include "lib/base/byte_range.h"

namespace gantry::nixl {
namespace {

// Numbers objects in the order in which they come; most descriptors have that of the one before.
class Numbering {
 public:
  // `is_new`: it got its number now.
  uint32_t Of(const BackendMd* metadata, bool* is_new) {
    *is_new = false;
    if (metadata == last_) return last_number_;
    const auto [found, added] = numbers_.emplace(metadata, static_cast<uint32_t>(numbers_.size()));
    *is_new = added;
    last_ = metadata;
    last_number_ = found->second;
    return last_number_;
  }

 private:
  std::unordered_map<const BackendMd*, uint32_t> numbers_;
  const BackendMd* last_ = nullptr;
  uint32_t last_number_ = 0;
};

Result<uint64_t> OffsetIn(const MemoryCard& card, const BasicDesc& desc, size_t index) {
  if (desc.address >= card.base && Fits(desc.address - card.base, desc.bytes, card.bytes))
    return desc.address - card.base;
  return Fail(ErrorCode::kOutOfRange, "descriptor " + std::to_string(index) +
                                          " lies outside of its registration '" + card.buffer +
                                          "'");
}

bool Continues(const gantry_range& before, const gantry_range& next) {
  return before.local_index == next.local_index && before.remote_index == next.remote_index &&
         before.local_offset + before.bytes == next.local_offset &&
         before.remote_offset + before.bytes == next.remote_offset;
}

}  // namespace

Result<TransferRanges> RangesOf(const MetaList& local, const MetaList& remote,
                                const std::string& agent) {
  if (local.descs.size() != remote.descs.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                std::to_string(local.descs.size()) + " local descriptors, " +
                    std::to_string(remote.descs.size()) + " remote ones");
  }
  TransferRanges made;
  made.ranges.reserve(local.descs.size());
  Numbering locals, remotes;
  for (size_t i = 0; i < local.descs.size(); ++i) {
    const MetaDesc& here = local.descs[i];
    const MetaDesc& there = remote.descs[i];
    if (here.bytes != there.bytes || here.metadata == nullptr || there.metadata == nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  "descriptor " + std::to_string(i) + " has different lengths on both sides");
    }
    const auto& memory = static_cast<const LocalMd*>(here.metadata)->memory();
    const auto& target = *static_cast<const RemoteMd*>(there.metadata);
    bool is_new = false;
    gantry_range range = {};
    range.local_index = locals.Of(here.metadata, &is_new);
    if (is_new) made.local.push_back(memory);
    range.remote_index = remotes.Of(there.metadata, &is_new);
    if (is_new) {
      if (target.agent() != agent) {
        return Fail(ErrorCode::kInvalidArgument, "descriptor " + std::to_string(i) + " is agent '" +
                                                     target.agent() + "''s and not agent '" +
                                                     agent + "''s");
      }
      made.remote.push_back(target.card().buffer);
    }
    ASSIGN_OR_RETURN(range.local_offset, OffsetIn(memory->card(), here, i));
    ASSIGN_OR_RETURN(range.remote_offset, OffsetIn(target.card(), there, i));
    range.bytes = here.bytes;
    made.bytes += here.bytes;
    if (range.bytes > 0) made.ranges.push_back(range);
  }
  return made;
}

std::vector<gantry_range> Merged(const std::vector<gantry_range>& ranges) {
  std::vector<gantry_range> merged;
  for (const gantry_range& range : ranges) {
    if (!merged.empty() && Continues(merged.back(), range)) {
      merged.back().bytes += range.bytes;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

}  // namespace gantry::nixl
