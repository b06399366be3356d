// A view that was made, and which buffers on GPUs its transfers touch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/session/client_json.h"
#include "client/session/registered_buffer.h"

namespace gantry::client {

class ViewRecord {
 public:
  explicit ViewRecord(ViewAnswer answer) : answer_(std::move(answer)) {}
  const std::string& id() const { return answer_.id; }
  const ViewAnswer& answer() const { return answer_; }
  std::atomic<bool>& deleted() { return deleted_; }

  // The buffers of the pairs' local sides that are on a GPU, nothing for others: by name they would
  // be looked up for each transfer. The session's, under its lock.
  struct GpuBuffers {
    uint64_t epoch = 0;  // of the set's buffers on GPUs, from which these are
    std::vector<std::weak_ptr<RegisteredBuffer>> of_pairs;
    // Enough buffers of group 0 to have every allocation of that group: layers share allocations.
    std::vector<std::weak_ptr<RegisteredBuffer>> for_group_0;
  };
  GpuBuffers& gpu_buffers() { return gpu_buffers_; }

 private:
  const ViewAnswer answer_;
  std::atomic<bool> deleted_{false};
  GpuBuffers gpu_buffers_;
};

}  // namespace gantry::client
