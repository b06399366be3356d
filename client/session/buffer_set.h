// The buffers of this process that are registered, by arena, by name and by view. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "client/include/gantry.h"
#include "client/session/registered_buffer.h"
#include "client/session/view_record.h"
#include "lib/base/mutex.h"

namespace gantry::client {

class BufferSet {
 public:
  void Add(const std::vector<BufferPointer>& buffers) EXCLUDES(mutex_);
  void Forget(const BufferPointer& buffer) EXCLUDES(mutex_);
  void ForgetAll() EXCLUDES(mutex_);
  // The buffers have these pieces on GPUs from now on, each those of one request.
  void TakePieces(const std::vector<BufferPointer>& buffers,
                  const std::vector<BufferRequest>& requests) EXCLUDES(mutex_);

  std::vector<BufferPointer> In(const Arena& arena) const EXCLUDES(mutex_);
  // The buffers on GPUs with these names; null: all of them.
  std::vector<BufferPointer> OnGpu(const std::vector<std::string>* names) const EXCLUDES(mutex_);
  // Null: there is none on a GPU with this name.
  BufferPointer OnGpu(std::string_view name) const EXCLUDES(mutex_);
  // Buffers that have every allocation on GPUs which the transfer by a view touches here.
  std::vector<BufferPointer> OnGpuOf(ViewRecord& view, const gantry_transfer_spec& spec)
      EXCLUDES(mutex_);

 private:
  const ViewRecord::GpuBuffers& GpuBuffersOf(ViewRecord& view) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::set<BufferPointer> buffers_ GUARDED_BY(mutex_);
  std::map<std::string, BufferPointer, std::less<>> on_gpu_ GUARDED_BY(mutex_);  // by name
  uint64_t epoch_ GUARDED_BY(mutex_) = 1;  // another one after each change of on_gpu_
};

}  // namespace gantry::client
