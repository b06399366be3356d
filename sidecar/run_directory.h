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

// Makes `path` and what is missing above it.
Status MakeDirectory(const std::string& path, mode_t mode);

}  // namespace gantry
