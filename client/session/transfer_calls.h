// Views and transfers of this workload. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/include/gantry.h"
#include "client/session/buffer_set.h"
#include "client/session/sidecar_link.h"
#include "client/session/transfer_record.h"
#include "client/session/view_record.h"
#include "lib/base/result.h"

namespace gantry::client {

// The objects that the handles of a gantry_transfer_spec stand for.
struct SubmitHandles {
  std::vector<BufferPointer> local;  // of spec.local
  std::shared_ptr<ViewRecord> view;  // null: none
  BufferPointer fence;               // null: none
};

class TransferCalls {
 public:
  // Both outlive it.
  TransferCalls(SidecarLink& link, BufferSet& buffers) : link_(link), buffers_(buffers) {}

  Result<std::shared_ptr<ViewRecord>> MakeView(const gantry_view_spec& spec);
  Status DeleteView(ViewRecord& view);
  // For the last time: a sidecar that stands still is told when it answers again.
  Status Drop(ViewRecord& view);

  Result<std::shared_ptr<TransferRecord>> Submit(const gantry_transfer_spec& spec,
                                                 const SubmitHandles& handles, uint64_t wait_ms);
  // Returns when the transfer is over or the time is.
  Status Await(TransferRecord& transfer, uint64_t timeout_ms);
  Status Cancel(TransferRecord& transfer, uint64_t timeout_ms);

 private:
  std::string ViewTarget(const ViewRecord& view) const;
  std::string TransferTarget(const TransferRecord& transfer, uint64_t wait_ms) const;
  // Whether the memory on GPUs that a transfer by a view moves is what was registered.
  Status CheckGpuMemoryOf(ViewRecord& view, const gantry_transfer_spec& spec);

  SidecarLink& link_;
  BufferSet& buffers_;
  std::atomic<uint64_t> transfers_made_{0};
  std::atomic<uint64_t> views_made_{0};
};

}  // namespace gantry::client
