// The directory of a sidecar's sockets: made when missing, and taken by one sidecar at a time.
// Used by one thread at a time.
#pragma once

#include <sys/types.h>

#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry {

class RunDirectory {
 public:
  // kConflict when a living sidecar has it. `mode` is for a directory that is made here.
  static Result<RunDirectory> Take(const std::string& path, mode_t mode);

  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  RunDirectory(std::string path, UniqueFd lock);

  std::string path_;
  UniqueFd lock_;  // flock; the kernel drops it when the process ends, however it ends
};

// The directory in which sidecars of a node meet; made with what is missing above it. `shared`:
// also by sidecars of other users, none of whom may take away the sockets of another.
Status PrepareNodeDirectory(const std::string& path, bool shared);

}  // namespace gantry
