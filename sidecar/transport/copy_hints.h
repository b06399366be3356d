// Admission's hints and question to the scheduler of the copy workers, before a transfer starts.
// Implemented by RecentCopies. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "sidecar/plan/move_plan.h"
#include "sidecar/plan/row_limits.h"

namespace gantry::transport {

class CopyHints {
 public:
  virtual ~CopyHints() = default;
  // A transfer request has arrived and is still unread. The workers of the last transfers may wake
  // up.
  virtual void Foresee() = 0;
  // A plan for the ipc path with `named` blocks or ranges is being made, so sleeping workers may
  // wake up.
  virtual void Expect(size_t named) = 0;
  // How the ipc path's blocks at the same offsets of many buffers are planned. REQUIRES that
  // Transport::CanReach accepts all pairs.
  virtual RowLimits RowsOf(
      const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
      const std::vector<RemoteAllocation>& remote) const = 0;
};

}  // namespace gantry::transport
