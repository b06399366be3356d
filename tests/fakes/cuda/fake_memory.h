// What is mapped in this process, by its address: the fake's device addresses are addresses of the
// process, so that a "copy on the device" is a memcpy. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "lib/base/unique_fd.h"
#include "lib/gpu/cuda_abi.h"

namespace gantry::fake_cuda {

namespace cuda = gpu::cuda;

enum class BlockKind { kDevice, kPool, kManaged, kPinned, kRegistered, kImported, kPiece };

struct Block {
  BlockKind kind = BlockKind::kDevice;
  uint64_t base = 0;
  uint64_t size = 0;
  int gpu = -1;            // the machine's number
  uint64_t buffer_id = 0;  // also of a piece: one for each mapping
  std::string file;        // of GPU memory that this process owns, or opened by a handle
  int fd = -1;             // closed by whoever removes the block
  int uses = 1;            // of one that is opened several times
  uint64_t on_device = 0;  // of registered memory: where devices find it
  cuda::MemHandle piece = 0;
  std::set<int> followers;  // of one that came from elsewhere or of a piece: GPUs that may touch it
};

class FakeMemory {
 public:
  static FakeMemory& Instance();

  cuda::Result Allocate(BlockKind kind, int gpu, uint64_t bytes, cuda::DevicePtr* address);
  cuda::Result Free(cuda::DevicePtr address);
  std::optional<Block> Around(cuda::DevicePtr address);
  // The descriptor of its memory, which stays the block's; -1 when it has none.
  int FileOf(const Block& block);
  // Nothing, or the error of a copy that touches [address, address + bytes).
  cuda::Result CheckCopy(cuda::DevicePtr address, uint64_t bytes);

  cuda::Result ExportIpc(cuda::DevicePtr address, cuda::IpcMemHandle* handle);
  // For a GPU, which can touch memory of another one when `reaches_peers`.
  cuda::Result OpenIpc(const cuda::IpcMemHandle& handle, int gpu, bool reaches_peers,
                       cuda::DevicePtr* address);
  cuda::Result CloseIpc(cuda::DevicePtr address);

  // Devices find it at another address than the host, where that can be: where it is shared.
  cuda::Result Register(void* host, uint64_t bytes);
  cuda::Result Unregister(void* host);
  void UnregisterAll();
  // Whether devices find registered or pinned memory there; writes to it, while it stays so.
  bool IsReached(cuda::DevicePtr address, uint64_t bytes);
  bool WriteReached(cuda::DevicePtr address, uint64_t value);

  // Virtual memory: pieces, reservations, and the mappings of one in the other.
  cuda::Result CreatePiece(int gpu, uint64_t bytes, bool exportable, cuda::MemHandle* piece);
  cuda::Result ExportPiece(cuda::MemHandle piece, int* fd);
  cuda::Result ImportPiece(int fd, cuda::MemHandle* piece);
  cuda::Result RetainPiece(cuda::DevicePtr address, cuda::MemHandle* piece);
  cuda::Result ReleasePiece(cuda::MemHandle piece);
  cuda::Result Reserve(uint64_t bytes, cuda::DevicePtr* address);
  cuda::Result FreeReservation(cuda::DevicePtr address, uint64_t bytes);
  cuda::Result Map(cuda::DevicePtr address, uint64_t bytes, cuda::MemHandle piece);
  cuda::Result Unmap(cuda::DevicePtr address, uint64_t bytes);
  cuda::Result SetAccess(cuda::DevicePtr address, uint64_t bytes, const std::set<int>& gpus);

 private:
  struct Piece {
    int gpu = -1;
    uint64_t bytes = 0;
    UniqueFd fd;
    std::string file;  // empty when it came from elsewhere
    bool exportable = false;
    int uses = 1;  // handles and mappings
  };

  Block* Find(cuda::DevicePtr address);
  bool IsReachedHere(cuda::DevicePtr address, uint64_t bytes);
  void Forget(const Block& registered);
  void LetGo(cuda::MemHandle piece);

  std::mutex mutex_;
  std::map<uint64_t, Block> blocks_;  // by base
  std::set<uint64_t> mappings_;       // second ones, of registered memory, for devices
  std::map<cuda::MemHandle, Piece> pieces_;
  std::map<uint64_t, uint64_t> reservations_;  // bytes by address
  uint64_t last_buffer_id_ = 0;
  cuda::MemHandle last_piece_ = 0;
};

}  // namespace gantry::fake_cuda
