// Memory of a fixed size that two processes share: a sealed memfd and its mapping. The creator
// passes the descriptor to the other process, which attaches. Immutable; thread-safe.
#pragma once

#include <cstddef>

#include "lib/base/unique_fd.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::worker {

class SharedBlock {
 public:
  // Zeroed. `name` appears in /proc.
  static Result<SharedBlock> Create(const char* name, size_t bytes);
  // Fails unless the descriptor is a memfd of at least `bytes` that cannot shrink.
  static Result<SharedBlock> Attach(UniqueFd fd, size_t bytes);

  const UniqueFd& fd() const { return fd_; }
  void* data() const { return mapping_.data(); }

 private:
  SharedBlock(UniqueFd fd, memory::HostMapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  UniqueFd fd_;
  memory::HostMapping mapping_;
};

}  // namespace gantry::worker
