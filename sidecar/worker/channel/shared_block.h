// Memory that two processes share, of a fixed size: a sealed memfd and its mapping. Whoever
// creates it hands the descriptor to the other, who attaches. Immutable; thread-safe.
#pragma once

#include <cstddef>

#include "lib/base/unique_fd.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::worker {

class SharedBlock {
 public:
  // Zeroed. `name` is what /proc shows.
  static Result<SharedBlock> Create(const char* name, size_t bytes);
  // Fails when the descriptor is not a memfd of at least that size that cannot shrink.
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
