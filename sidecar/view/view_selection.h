// A transfer's selection from a view: some of its pairs, and the blocks to move between them. Plain
// values; thread-safe.
#pragma once

#include <vector>

#include "sidecar/plan/plan_builder.h"
#include "sidecar/view/view.h"

namespace gantry::engine {

class ViewSelection {
 public:
  // Errors name the field of the request. The request outlives the selection.
  static Result<ViewSelection> Of(ViewPointer view, const wire::TransferRequest& request);

  // The buffers of the selected pairs, and their blocks.
  const std::vector<wire::BufferReference>& local() const { return all_ ? view_->local : local_; }
  const std::vector<wire::BufferReference>& remote() const {
    return all_ ? view_->remote : remote_;
  }
  const std::vector<BlockGroup>& groups() const { return groups_; }
  const ViewPointer& view() const { return view_; }

 private:
  ViewPointer view_;
  bool all_ = true;
  size_t pairs_ = 0;
  std::vector<wire::BufferReference> local_;  // empty when all pairs are selected
  std::vector<wire::BufferReference> remote_;
  std::vector<BlockGroup> groups_;
};

}  // namespace gantry::engine
