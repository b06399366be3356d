// Stops transfers whose release was refused until they are over, also when their sidecar could not
// be asked at that time. Thread-safe.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "connectors/nixl/transfer/nixl_transfer.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class TransferReaper {
 public:
  TransferReaper() = default;
  ~TransferReaper();
  TransferReaper(const TransferReaper&) = delete;
  TransferReaper& operator=(const TransferReaper&) = delete;

  void Take(std::shared_ptr<NixlTransfer> transfer);

 private:
  void Run(const std::stop_token& stop);
  // Returns whether any goes on.
  bool StopAll();

  Mutex mutex_;
  Condition changed_;  // NOLINT: a condition guards nothing
  std::vector<std::shared_ptr<NixlTransfer>> all_ GUARDED_BY(mutex_);
  std::jthread thread_ GUARDED_BY(mutex_);  // begins with the first transfer
};

}  // namespace gantry::nixl
