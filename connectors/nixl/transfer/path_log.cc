#include "connectors/nixl/transfer/path_log.h"

#include "connectors/nixl/agent/plugin_log.h"

namespace gantry::nixl {

void PathLog::Note(const NixlTransfer& transfer, const std::string& path) {
  if (path.empty()) return;
  {
    const MutexLock lock(mutex_);
    if (last_.size() >= kAgentsMax && !last_.contains(transfer.agent())) last_.clear();
    std::string& last = last_[transfer.agent()];
    if (last == path) return;
    last = path;
  }
  const std::string reasons = transfer.SlowPathReasons();
  plugin_log::Info("transfers with agent '" + transfer.agent() + "' take the path " + path +
                   (reasons.empty() ? "" : ", as faster ones are not to be had: " + reasons));
}

}  // namespace gantry::nixl
