// The operation of a transfer that waits for its fence. Nothing was issued, so it is quiet once it
// is stopped. Used by the driver.
#pragma once

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "sidecar/transport/transport.h"

namespace gantry::engine {

class UnstartedOperation final : public transport::Operation {
 public:
  explicit UnstartedOperation(std::shared_ptr<const transport::MovePlan> plan)
      : plan_(std::move(plan)) {
    progress_.chunks_total = plan_->segments.size();
  }

  void Stop() override { stopped_ = true; }
  void Abort() override { stopped_ = true; }
  bool finished() const override { return stopped_; }
  const std::optional<Error>& error() const override { return error_; }
  const transport::Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override {
    const bool in_order = plan_->item_order.empty();  // only some plans of ranges are
    std::vector<uint32_t> items(in_order ? plan_->descriptors_in : plan_->item_order.size());
    std::iota(items.begin(), items.end(), 0u);
    return items;
  }

 private:
  const std::shared_ptr<const transport::MovePlan> plan_;
  const std::optional<Error> error_;
  transport::Progress progress_;
  bool stopped_ = false;
};

}  // namespace gantry::engine
