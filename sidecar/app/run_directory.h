// The directory of a sidecar's sockets: created when missing, and used by one sidecar at a time.
// Used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry {

class RunDirectory {
 public:
  // kConflict when a living sidecar uses it. `mode` applies if the directory is created here.
  static Result<RunDirectory> Take(const std::string& path, mode_t mode);

  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  RunDirectory(std::string path, UniqueFd lock);

  std::string path_;
  UniqueFd lock_;  // flock; the kernel releases it when the process ends in any way
};

// Creates the directory in which sidecars of a node meet, with its parents. `shared`: sidecars of
// other users use it too, and none may remove another's sockets.
Status PrepareNodeDirectory(const std::string& path, bool shared);

}  // namespace gantry
