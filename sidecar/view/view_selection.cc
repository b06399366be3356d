#include "sidecar/view/view_selection.h"

#include <algorithm>
#include <utility>

namespace gantry::engine {
namespace {

// Pairs of one group by their index in the view.
struct Picked {
  const ViewGroupInfo* group = nullptr;
  size_t first = 0;
  size_t count = 0;
};

Result<Picked> Pick(const View& view, uint32_t number, const std::vector<uint64_t>& layers,
                    const std::string& at) {
  const auto found =
      std::find_if(view.groups.begin(), view.groups.end(),
                   [&](const ViewGroupInfo& group) { return group.group == number; });
  if (found == view.groups.end()) {
    return Fail(ErrorCode::kNotFound,
                "view '" + view.id + "' has no group " + std::to_string(number), {},
                at.empty() ? "/view" : at + "/group");
  }
  if (layers.empty()) return Picked{&*found, found->first_pair, found->pairs};
  if (layers.back() >= found->pairs) {
    return Fail(ErrorCode::kOutOfRange,
                "the group has pairs 0 to " + std::to_string(found->pairs - 1) + ", and no " +
                    std::to_string(layers.back()),
                {}, at + "/layers");
  }
  return Picked{&*found, found->first_pair + layers.front(), layers.back() - layers.front() + 1};
}

}  // namespace

Result<ViewSelection> ViewSelection::Of(ViewPointer view, const wire::TransferRequest& request) {
  ViewSelection selection;
  selection.view_ = std::move(view);
  const View& from = *selection.view_;
  std::vector<Picked> picked;
  const bool plain = request.groups.empty();
  for (size_t i = 0; i < (plain ? 1 : request.groups.size()); ++i) {
    const std::string at = plain ? "" : "/groups/" + std::to_string(i);
    const auto& layers = plain ? request.layers : request.groups[i].layers;
    ASSIGN_OR_RETURN(Picked one, Pick(from, plain ? 0 : request.groups[i].group, layers, at));
    const auto& local = plain ? request.local_blocks : request.groups[i].local_blocks;
    const auto& remote = plain ? request.remote_blocks : request.groups[i].remote_blocks;
    selection.groups_.push_back(
        {selection.pairs_, one.count, local, remote, &one.group->shape, at});
    selection.all_ = selection.all_ && one.first == selection.pairs_;
    selection.pairs_ += one.count;
    picked.push_back(one);
  }
  selection.all_ = selection.all_ && selection.pairs_ == from.pairs.size();
  if (selection.all_) return selection;
  for (const Picked& one : picked) {
    const auto copy = [&](const auto& all, auto* some) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(one.first);
      some->insert(some->end(), begin, begin + static_cast<ptrdiff_t>(one.count));
    };
    copy(from.local, &selection.local_);
    copy(from.remote, &selection.remote_);
  }
  return selection;
}

}  // namespace gantry::engine
