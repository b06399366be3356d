// The lock file by which one sidecar has a name in a node directory, in which others may put files,
// too. Used by one thread at a time.
#pragma once

#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::peer {

class NodeLock {
 public:
  // kConflict: another process holds it, or the file is another user's: whose, says the message.
  // Nothing that somebody put in its place is followed or taken over.
  static Result<NodeLock> Take(const std::string& path);

  NodeLock() = default;  // of nothing
  NodeLock(NodeLock&&) noexcept = default;
  NodeLock& operator=(NodeLock&&) = delete;
  // Removes the file. The kernel drops the lock when the process ends, however it ends.
  ~NodeLock();

 private:
  NodeLock(std::string path, UniqueFd fd);

  std::string path_;
  UniqueFd fd_;
};

}  // namespace gantry::peer
