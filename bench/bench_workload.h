// A workload of the benchmark: one arena with buffers side by side that do not begin at its start,
// through the public client library. Transfers from any thread; the rest by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_gpu_memory.h"
#include "bench/bench_options.h"
#include "bench/bench_pattern.h"
#include "client/include/gantry.h"
#include "lib/base/result.h"

namespace gantry::bench {

// What one transfer took, in microseconds; `wall` as the caller saw it, the rest as the sidecar
// reports it.
struct TransferTimes {
  double wall_us = 0;
  double admit_us = 0;
  double queue_us = 0;
  double move_us = 0;
  double copy_us = 0;
  double total_us = 0;
};

struct TransferOutcome {
  TransferTimes times;
  uint64_t bytes = 0;
  uint64_t chunks = 0;
  uint64_t descriptors_in = 0;
  uint64_t descriptors_out = 0;
  uint32_t workers = 0;
  std::string path;
  bool by_peer = false;
};

// An error of the client library as ours; frees it.
Status StatusOf(gantry_error* error);

class BenchWorkload {
 public:
  template <auto Destroy>
  struct Destroyer {
    void operator()(auto* object) const { Destroy(object); }
  };
  // A transfer that was asked for.
  struct StartedTransfer {
    std::unique_ptr<gantry_transfer, Destroyer<gantry_transfer_destroy>> handle;
    std::string view;  // without a handle, of a JSON body: what the sidecar last said of it
  };

  enum class Memory { kHost, kFirstGpu, kLastGpu };
  // `piece_bytes`: of virtual memory on a GPU. `canary` lies around the buffers. REQUIRES another
  // one at the other side: a copy that goes too far on both would leave the same.
  static Result<std::unique_ptr<BenchWorkload>> Open(const std::string& api_socket,
                                                     const std::string& name, uint64_t bytes,
                                                     std::byte canary, Memory memory,
                                                     std::optional<uint64_t> piece_bytes);
  ~BenchWorkload();

  // Makes all bytes so many buffers of equal size, addressable in blocks of this size; ends an
  // earlier registration.
  Status Register(uint64_t block_bytes, uint64_t buffers = 1);
  // From here on transfers name blocks of a view of all buffers, each with the one of its name at
  // that workload. REQUIRES both registered and the peer up.
  Status PairWith(const std::string& peer, const std::string& remote_workload);
  // The bytes of all buffers through a mapping of our own, and whether the arena's before and after
  // them are as they were. Of memory on a GPU both are of an image: Upload brings what was written
  // there, Download what is.
  std::span<std::byte> buffer() const;
  bool IsIntactAround() const;

  Status Upload();
  Status Download();
  BenchGpuMemory* gpu() const { return gpu_.get(); }  // null: host memory
  // Where the first buffer begins in its allocation.
  static uint64_t offset();

  // Transfers between this workload's buffer and the one that `remote` names ("peer/workload/
  // buffer"), or by the view, and waits for its end.
  Result<TransferOutcome> Transfer(const std::string& remote, const BenchOptions& options,
                                   std::span<const uint64_t> local_blocks,
                                   std::span<const uint64_t> remote_blocks);
  // The same in two steps, for several at a time; the first one waits for up to `wait_ms`, and the
  // outcome has no time of the caller's.
  Result<StartedTransfer> Submit(const std::string& remote, const BenchOptions& options,
                                 std::span<const uint64_t> local_blocks,
                                 std::span<const uint64_t> remote_blocks, uint64_t wait_ms);
  Result<TransferOutcome> Await(StartedTransfer& transfer);
  // Of one that ended: what copied between GPUs, and why; empty: nothing did.
  static std::string GpuPlanOf(const StartedTransfer& transfer);
  // A request of the REST interface; fails unless it is answered with success.
  Result<std::string> Request(const std::string& method, const std::string& target,
                              const std::string& body, uint64_t wait_ms = 0);

  static constexpr const char* kBufferName = "blocks";

 private:
  using Client = std::unique_ptr<gantry_client, Destroyer<gantry_client_destroy>>;
  using Arena = std::unique_ptr<gantry_arena, Destroyer<gantry_arena_destroy>>;
  using Buffer = std::unique_ptr<gantry_buffer, Destroyer<gantry_buffer_destroy>>;
  using View = std::unique_ptr<gantry_view, Destroyer<gantry_view_destroy>>;

  BenchWorkload(Client client, Arena arena, uint64_t bytes, std::byte canary);
  std::span<std::byte> before() const;
  std::span<std::byte> after() const;
  Status Map();
  Status Unregister();
  Result<StartedTransfer> SubmitJson(const std::string& remote, const BenchOptions& options,
                                     std::span<const uint64_t> local_blocks,
                                     std::span<const uint64_t> remote_blocks, uint64_t wait_ms);

  const Client client_;
  const Arena arena_;
  const uint64_t bytes_;
  const std::byte canary_;
  std::byte* mapping_ = nullptr;         // of the arena's descriptor, every page present
  std::unique_ptr<BenchGpuMemory> gpu_;  // then the arena is its image
  std::vector<Buffer> buffers_;
  View view_;  // null: transfers name the one buffer
};

}  // namespace gantry::bench
