// Suspends buffers and resumes them, on a GPU with other memory at the same addresses. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/gantry_messages.h"
#include "client/session/buffer_set.h"
#include "client/session/memory_locator.h"
#include "client/session/sidecar_link.h"
#include "lib/base/result.h"

namespace gantry::client {

class BufferSleep {
 public:
  // All three outlive it.
  BufferSleep(SidecarLink& link, MemoryLocator& locator, BufferSet& buffers)
      : link_(link), locator_(locator), buffers_(buffers) {}

  // Null: all buffers of the workload.
  Status Suspend(const std::vector<std::string>* names, uint64_t drain_ms);
  Status Resume(const std::vector<std::string>* names);
  // Before blocks are promised to peers: whether the memory of the buffers is what was registered.
  // A buffer whose memory is not is suspended: peers read memory there that nobody writes to.
  Status CheckHeld(const gantry_hold_spec& spec);
  // Takes the descriptors back that no registered buffer needs any more.
  void ReleaseUnusedGpuMemory();

 private:
  Status Suspension(std::string_view verb, const std::vector<std::string>* names,
                    std::optional<uint64_t> drain_ms, std::string_view memory = {});
  // The sidecar gets what is at the addresses of these now, and they are active. All or nothing.
  Status WakeUp(const std::vector<BufferPointer>& buffers);

  SidecarLink& link_;
  MemoryLocator& locator_;
  BufferSet& buffers_;
};

}  // namespace gantry::client
