// Says which path the transfers with an agent take, and why no faster one, whenever that changes.
// Thread-safe.
#pragma once

#include <map>
#include <string>

#include "connectors/nixl/transfer/nixl_transfer.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class PathLog {
 public:
  void Note(const NixlTransfer& transfer, const std::string& path);

 private:
  static constexpr size_t kAgentsMax = 1024;

  Mutex mutex_;
  std::map<std::string, std::string> last_ GUARDED_BY(mutex_);  // by agent
};

}  // namespace gantry::nixl
