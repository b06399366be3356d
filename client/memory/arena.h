// Arenas: memory of this process that a memfd stands for. ArenaTable is the only place that turns
// a pointer of the host into (arena, offset). An Arena is immutable but for what is atomic and its
// pin; both are thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/gpu/shared/gpu_workload_device.h"

namespace gantry::client {

class Arena {
 public:
  // Takes the first `bytes` of a checked memfd. `address` is where the caller has mapped it; null:
  // it is mapped here and unmapped with this object.
  static Result<std::shared_ptr<Arena>> Map(UniqueFd fd, uint64_t bytes, void* address,
                                            bool writable);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

  // Makes all of it known to a GPU of this process, by ordinal; answers where that finds byte 0.
  // Again for the same GPU is no error. REQUIRES that it is unpinned before its memory goes.
  Result<gpu::DeviceAddress> Pin(int device) EXCLUDES(mutex_);
  // REQUIRES that no work of a GPU uses it any more. Twice is no error. After a failure it is still
  // pinned: whoever has mapped it keeps it mapped, and may try again.
  Status Unpin() EXCLUDES(mutex_);
  // The same, without the memory that words take.
  void UnpinQuietly() noexcept EXCLUDES(mutex_);

  // Names the descriptor in registrations; set once, before the arena is shared.
  std::string fd_token;
  std::atomic<bool> closed{false};
  // The sidecar keeps the descriptor for registrations.
  std::atomic<bool> handed_over{false};
  // Handles of adopted private memory, which share this object; 0 for other arenas.
  std::atomic<int> holders{0};

 private:
  Arena(UniqueFd fd, std::byte* data, uint64_t bytes, bool mapped_here, bool writable);

  const UniqueFd fd_;
  std::byte* const data_;
  const uint64_t bytes_;
  const bool mapped_here_;
  const bool writable_;
  Mutex mutex_;
  std::unique_ptr<gpu::GpuPinnedMemory> pin_ GUARDED_BY(mutex_);
  int pinned_for_ GUARDED_BY(mutex_) = -1;
};

// Bytes [offset, offset + bytes) of one arena.
struct Extent {
  std::shared_ptr<Arena> arena;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class ArenaTable {
 public:
  // kConflict when it shares addresses with another one.
  Status Add(std::shared_ptr<Arena> arena);
  void Remove(const Arena& arena);

  bool Holds(const void* address) const;
  // The extents of [address, address + bytes), in order: more than one where arenas are mapped side
  // by side. kNotExportable when a byte of it is in no arena.
  Result<std::vector<Extent>> Resolve(const void* address, uint64_t bytes) const;

 private:
  mutable Mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<Arena>> by_address_ GUARDED_BY(mutex_);
};

}  // namespace gantry::client
