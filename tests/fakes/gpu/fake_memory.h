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
#include "tests/fakes/gpu/fake_results.h"

namespace gantry::fake_gpu {

using Address = unsigned long long;  // as the vendors' calls have it
using PieceId = unsigned long long;

enum class BlockKind { kDevice, kPool, kManaged, kPinned, kRegistered, kImported, kPiece };

struct Block {
  BlockKind kind = BlockKind::kDevice;
  uint64_t base = 0;
  uint64_t size = 0;
  uint64_t lead = 0;       // bytes before it in its file
  int gpu = -1;            // the machine's number
  uint64_t buffer_id = 0;  // also of a piece: one for each mapping
  std::string file;        // of GPU memory that this process owns, or opened by a handle
  int fd = -1;             // closed by whoever removes the block
  int uses = 1;            // of one that is opened several times
  uint64_t on_device = 0;  // of registered memory: where devices find it
  PieceId piece = 0;
  std::set<int> followers;  // of one that came from elsewhere or of a piece: GPUs that may touch it
  bool is_reached_as_own =
      false;  // of one that came from elsewhere: by the GPUs that reach its GPU
};

// What other processes are told of memory that this process owns.
struct MemoryName {
  int32_t exporter = 0;  // the PID in its own namespace
  int32_t gpu = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of the address that was named
  uint64_t lead = 0;
  std::string file;
};
// The 64 bytes of a handle; nobody but a driver may know what they are.
inline constexpr size_t kHandleBytes = 64;
void Encode(const MemoryName& name, char* handle);
bool Decode(const char* handle, MemoryName* name);

// How memory of another process becomes this one's.
struct Attachment {
  int gpu = -1;  // that may touch it; none when it is reached as the owner's GPU's own
  // Memory that is there already is used once more, at the same address.
  bool is_shared = false;
};

class FakeMemory {
 public:
  static FakeMemory& Instance();

  // `lead`: of a file that has other memory before it, in whole pages.
  Result Allocate(BlockKind kind, int gpu, uint64_t bytes, Address* address, uint64_t lead = 0);
  Result Free(uint64_t address);
  std::optional<Block> Around(uint64_t address);
  // The descriptor of its memory, which stays the block's; -1 when it has none.
  int FileOf(const Block& block);
  // Nothing, or the error of a copy that touches [address, address + bytes).
  Result CheckCopy(uint64_t address, uint64_t bytes);

  // Of an address in GPU memory that this process allocated.
  Result NameOf(uint64_t address, MemoryName* name);
  // What a name stands for, by the descriptor of its file.
  Result Attach(const MemoryName& name, UniqueFd file, const Attachment& how, Address* address);
  // The base of what was attached: once more, so that it takes one more Detach.
  Result UseAgain(uint64_t address);
  // A descriptor of memory that this process allocated, by its file; none when it was freed.
  UniqueFd Lend(const std::string& file);
  // The base of what was attached; once for each time.
  Result Detach(uint64_t address);

  // Devices find it at another address than the host, where that can be: where it is shared.
  Result Register(void* host, uint64_t bytes);
  Result Unregister(void* host);
  void UnregisterAll();
  // Whether devices find registered or pinned memory there; writes to it, while it stays so.
  bool IsReached(uint64_t address, uint64_t bytes);
  bool WriteReached(uint64_t address, uint64_t value);

  // Virtual memory: pieces, reservations, and the mappings of one in the other.
  Result CreatePiece(int gpu, uint64_t bytes, bool exportable, PieceId* piece);
  Result ExportPiece(PieceId piece, int* fd);
  Result ImportPiece(int fd, PieceId* piece);
  Result RetainPiece(uint64_t address, PieceId* piece);
  Result ReleasePiece(PieceId piece);
  Result Reserve(uint64_t bytes, Address* address);
  Result FreeReservation(uint64_t address, uint64_t bytes);
  Result Map(uint64_t address, uint64_t bytes, PieceId piece);
  Result Unmap(uint64_t address, uint64_t bytes);
  Result SetAccess(uint64_t address, uint64_t bytes, const std::set<int>& gpus);

 private:
  struct Piece {
    int gpu = -1;
    uint64_t bytes = 0;
    UniqueFd fd;
    std::string file;  // empty when it came from elsewhere
    bool exportable = false;
    int uses = 1;  // handles and mappings
  };

  Block* Find(uint64_t address);
  bool IsReachedHere(uint64_t address, uint64_t bytes);
  void Forget(const Block& registered);
  void LetGo(PieceId piece);

  std::mutex mutex_;
  std::map<uint64_t, Block> blocks_;  // by base
  std::set<uint64_t> mappings_;       // second ones, of registered memory, for devices
  std::map<PieceId, Piece> pieces_;
  std::map<uint64_t, uint64_t> reservations_;  // bytes by address
  uint64_t last_buffer_id_ = 0;
  PieceId last_piece_ = 0;
};

}  // namespace gantry::fake_gpu
