// The lock file by which a sidecar owns a name in a node directory that others may write to. Used
// by one thread at a time.
#pragma once

#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::peer {

class NodeLock {
 public:
  // kConflict: another process holds it, or another user owns the file; the message names the user.
  // Links or other files in its place are refused.
  static Result<NodeLock> Take(const std::string& path);

  NodeLock() = default;  // holds nothing
  NodeLock(NodeLock&&) noexcept = default;
  NodeLock& operator=(NodeLock&&) = delete;
  // Removes the file. The kernel drops the lock when the process ends in any way.
  ~NodeLock();

 private:
  NodeLock(std::string path, UniqueFd fd);

  std::string path_;
  UniqueFd fd_;
};

}  // namespace gantry::peer
