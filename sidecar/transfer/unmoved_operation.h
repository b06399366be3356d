// The operation of a transfer without blocks: finished from the start, with no bytes moved. Used by
// the driver.
#pragma once

#include <optional>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/transport/transport.h"

namespace gantry::engine {

class UnmovedOperation final : public transport::Operation {
 public:
  UnmovedOperation(const transport::MovePlan& plan, TimePoint now) {
    progress_.bytes = plan.bytes;
    progress_.chunks = progress_.chunks_total = plan.segments.size();
    progress_.first_posted = now;
  }

  void Stop() override {}
  void Abort() override {}
  bool finished() const override { return true; }
  const std::optional<Error>& error() const override { return error_; }
  const transport::Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override { return {}; }

 private:
  const std::optional<Error> error_;
  transport::Progress progress_;
};

}  // namespace gantry::engine
