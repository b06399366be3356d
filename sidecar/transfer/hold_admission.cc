// The part of TransferAdmission that asks the owner of the hold which a request names.
#include <utility>
#include <vector>

#include "sidecar/transfer/transfer_admission.h"

namespace gantry::engine {

Status TransferAdmission::ReadHold(const wire::TransferRequest& request, const BufferLists& lists,
                                   Admitted* admitted) const {
  const auto refuse = [](ErrorCode code, std::string why) {
    return Fail(code, std::move(why), {}, "/hold");
  };
  if (holds_ == nullptr) return refuse(ErrorCode::kNotFound, "this sidecar knows no holds");
  const auto workload_of = [&request](const wire::BufferReference& reference) {
    return reference.workload.empty() ? request.workload : reference.workload;
  };
  wire::HoldUse use{workload_of(lists.remote.front()), request.hold, {}, 0, request.hold_consumers};
  std::vector<wire::HeldBuffer> buffers;
  for (size_t i = 0; i < lists.remote.size(); ++i) {
    const wire::BufferReference& reference = lists.remote[i];
    if (workload_of(reference) != use.workload) {
      return refuse(ErrorCode::kInvalidArgument, "a hold is of one workload, the buffers of two");
    }
    const uint64_t generation =
        admitted->remotes.empty()
            ? admitted->uses[lists.local.size() + i].buffer().description().generation
            : admitted->remotes[i]->reference.generation;
    buffers.push_back({reference.buffer, generation});
  }
  for (const BlockGroup& group : lists.groups) {
    const auto begin = buffers.begin() + static_cast<ptrdiff_t>(group.first_pair);
    use.parts.push_back({{begin, begin + static_cast<ptrdiff_t>(group.pairs)},
                         {{group.remote_blocks.begin(), group.remote_blocks.end()}}});
  }
  if (lists.groups.empty()) {
    use.parts.push_back({std::move(buffers), {}});
    if (request.by_blocks) use.parts.front().blocks = request.remote_blocks;
  }
  auto reading = holds_->Read(lists.remote.front().peer, std::move(use), admitted->deadline,
                              options_.quiesce_max);
  if (!reading) return Fail(std::move(reading).error().WithField("/hold"));
  admitted->reading = *std::move(reading);
  return {};
}

}  // namespace gantry::engine
