#include "tests/fakes/cuda/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/fakes/cuda/fake_gpus.h"

namespace gantry::fake_cuda {
namespace {

constexpr cuda::Result kPeerAccessUnsupported = 217;
constexpr uint64_t kGranularity = 2 << 20;  // of virtual memory

// What the 64 bytes of a handle are here; nobody but the driver may know.
struct HandleBody {
  char magic[8];
  int32_t exporter;  // its PID in its own namespace
  int32_t gpu;
  uint64_t bytes;
  char file[40];
};
static_assert(sizeof(HandleBody) == sizeof(cuda::IpcMemHandle));
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'i', 'p', 'c', '1'};

void* MapFile(int fd, uint64_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

}  // namespace

FakeMemory& FakeMemory::Instance() {
  static FakeMemory* const memory = new FakeMemory;
  return *memory;
}

Block* FakeMemory::Find(cuda::DevicePtr address) {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address - block.base < block.size ? &block : nullptr;
}

std::optional<Block> FakeMemory::Around(cuda::DevicePtr address) {
  const std::lock_guard lock(mutex_);
  const Block* block = Find(address);
  return block == nullptr ? std::nullopt : std::optional(*block);
}

int FakeMemory::FileOf(const Block& block) {
  const std::lock_guard lock(mutex_);
  if (block.kind == BlockKind::kImported) return -1;
  return block.kind == BlockKind::kPiece ? pieces_[block.piece].fd.get() : block.fd;
}

cuda::Result FakeMemory::CheckCopy(cuda::DevicePtr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  // Pieces lie side by side; memory that the driver does not know is the host's, which it copies.
  for (uint64_t at = address, left = bytes; left != 0;) {
    const Block* block = Find(at);
    if (block == nullptr) return at == address ? cuda::kSuccess : cuda::kInvalidValue;
    // The host's address of memory that devices find elsewhere.
    if (block->kind == BlockKind::kRegistered && block->on_device != block->base) {
      return cuda::kInvalidValue;
    }
    const uint64_t here = block->base + block->size - at;
    if (here < left && block->kind != BlockKind::kPiece) return cuda::kInvalidValue;
    at += std::min(here, left);
    left -= std::min(here, left);
  }
  return cuda::kSuccess;
}

cuda::Result FakeMemory::Allocate(BlockKind kind, int gpu, uint64_t bytes,
                                  cuda::DevicePtr* address) {
  if (bytes == 0) return cuda::kInvalidValue;
  const std::lock_guard lock(mutex_);
  Block block;
  block.kind = kind;
  block.gpu = gpu;
  block.size = bytes;
  UniqueFd fd;
  void* mapped = MAP_FAILED;
  if (kind == BlockKind::kPinned || kind == BlockKind::kManaged) {
    mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  } else {
    fd = FakeGpus::Instance().Create(gpu, bytes, &block.file);
    if (!fd.valid()) return cuda::kOutOfMemory;
    mapped = MapFile(fd.get(), bytes);
  }
  if (mapped == MAP_FAILED) return cuda::kOutOfMemory;
  block.base = reinterpret_cast<uint64_t>(mapped);
  block.fd = fd.release();
  block.buffer_id = ++last_buffer_id_;
  *address = block.base;
  blocks_[block.base] = block;
  return cuda::kSuccess;
}

cuda::Result FakeMemory::Free(cuda::DevicePtr address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind > BlockKind::kPinned) return cuda::kInvalidValue;
  const Block block = found->second;
  blocks_.erase(found);
  ::munmap(reinterpret_cast<void*>(block.base), block.size);
  if (!block.file.empty()) FakeGpus::Instance().Remove(block.gpu, block.file);
  if (block.fd >= 0) ::close(block.fd);
  return cuda::kSuccess;
}

cuda::Result FakeMemory::ExportIpc(cuda::DevicePtr address, cuda::IpcMemHandle* handle) {
  const std::lock_guard lock(mutex_);
  const Block* block = Find(address);
  if (block == nullptr || block->kind != BlockKind::kDevice) return cuda::kInvalidValue;
  HandleBody body = {};
  std::memcpy(body.magic, kMagic, sizeof(kMagic));
  body.exporter = ::getpid();
  body.gpu = block->gpu;
  body.bytes = block->size;  // and nothing of where `address` is inside of it
  block->file.copy(body.file, sizeof(body.file) - 1);
  std::memcpy(handle, &body, sizeof(body));
  return cuda::kSuccess;
}

cuda::Result FakeMemory::OpenIpc(const cuda::IpcMemHandle& handle, int gpu, bool reaches_peers,
                                 cuda::DevicePtr* address) {
  HandleBody body = {};
  std::memcpy(&body, &handle, sizeof(body));
  if (std::memcmp(body.magic, kMagic, sizeof(kMagic)) != 0) return cuda::kInvalidValue;
  if (body.exporter == ::getpid()) return cuda::kInvalidContext;
  if (!FakeGpus::Instance().Reaches(gpu, body.gpu)) return kPeerAccessUnsupported;
  const std::lock_guard lock(mutex_);
  const bool follows = reaches_peers || body.gpu == gpu;
  for (auto& [base, block] : blocks_) {
    if (block.kind == BlockKind::kImported && block.gpu == body.gpu && block.file == body.file) {
      ++block.uses;
      if (follows) block.followers.insert(gpu);
      *address = base;
      return cuda::kSuccess;
    }
  }
  UniqueFd fd = FakeGpus::Instance().Open(body.gpu, body.file);
  if (!fd.valid()) return cuda::kInvalidValue;
  void* mapped = MapFile(fd.get(), body.bytes);
  if (mapped == MAP_FAILED) return cuda::kOutOfMemory;
  Block block;
  block.kind = BlockKind::kImported;
  block.base = reinterpret_cast<uint64_t>(mapped);
  block.size = body.bytes;
  block.gpu = body.gpu;
  block.file = body.file;
  block.fd = fd.release();
  block.buffer_id = ++last_buffer_id_;
  if (follows) block.followers.insert(gpu);
  blocks_[block.base] = block;
  *address = block.base;
  return cuda::kSuccess;
}

cuda::Result FakeMemory::CloseIpc(cuda::DevicePtr address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != BlockKind::kImported)
    return cuda::kInvalidValue;
  if (--found->second.uses == 0) {
    ::munmap(reinterpret_cast<void*>(address), found->second.size);
    ::close(found->second.fd);
    blocks_.erase(found);
  }
  return cuda::kSuccess;
}

cuda::Result FakeMemory::Register(void* host, uint64_t bytes) {
  if (host == nullptr || bytes == 0) return cuda::kInvalidValue;
  const std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<uint64_t>(host);
  if (Find(base) != nullptr || Find(base + bytes - 1) != nullptr) {
    return cuda::kHostMemoryAlreadyRegistered;
  }
  Block block;
  block.kind = BlockKind::kRegistered;
  block.base = base;
  block.size = bytes;
  block.gpu = FakeGpus::Instance().visible().front();
  block.buffer_id = ++last_buffer_id_;
  // A second mapping of the same pages, which memory that is not shared cannot have.
  void* const second = ::mremap(host, 0, bytes, MREMAP_MAYMOVE);
  block.on_device = second == MAP_FAILED ? base : reinterpret_cast<uint64_t>(second);
  if (second != MAP_FAILED) mappings_.insert(block.on_device);
  blocks_[base] = block;
  block.base = block.on_device;
  blocks_[block.base] = block;
  return cuda::kSuccess;
}

cuda::Result FakeMemory::Unregister(void* host) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uint64_t>(host));
  const bool known = found != blocks_.end() && found->second.kind == BlockKind::kRegistered;
  // The host's address names it, and no other.
  const bool is_hosts = known && !mappings_.contains(found->first);
  if (!is_hosts) return cuda::kHostMemoryNotRegistered;
  // Whoever unmaps it first has it too late, also where the vendor's driver bears it.
  if (::msync(host, found->second.size, MS_ASYNC) != 0) return cuda::kInvalidValue;
  Forget(found->second);
  return cuda::kSuccess;
}

void FakeMemory::Forget(const Block& registered) {
  const Block block = registered;
  blocks_.erase(block.base);
  if (mappings_.erase(block.on_device) == 0) return;
  blocks_.erase(block.on_device);
  ::munmap(reinterpret_cast<void*>(block.on_device), block.size);
}

void FakeMemory::UnregisterAll() {
  const std::lock_guard lock(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const Block block = it->second;
    const bool is_hosts = block.kind == BlockKind::kRegistered && !mappings_.contains(block.base);
    if (is_hosts) Forget(block);
    it = is_hosts ? blocks_.begin() : std::next(it);
  }
}

bool FakeMemory::IsReachedHere(cuda::DevicePtr address, uint64_t bytes) {
  const Block* block = Find(address);
  if (block == nullptr || block->size - (address - block->base) < bytes) return false;
  return block->kind == BlockKind::kPinned ||
         (block->kind == BlockKind::kRegistered && block->on_device == block->base);
}

bool FakeMemory::IsReached(cuda::DevicePtr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return IsReachedHere(address, bytes);
}

bool FakeMemory::WriteReached(cuda::DevicePtr address, uint64_t value) {
  const std::lock_guard lock(mutex_);
  if (!IsReachedHere(address, sizeof(value))) return false;
  __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
  return true;
}

// Virtual memory.

cuda::Result FakeMemory::CreatePiece(int gpu, uint64_t bytes, bool exportable,
                                     cuda::MemHandle* piece) {
  if (bytes == 0 || bytes % kGranularity != 0) return cuda::kInvalidValue;
  const std::lock_guard lock(mutex_);
  Piece made;
  made.gpu = gpu;
  made.bytes = bytes;
  made.exportable = exportable;
  made.fd = FakeGpus::Instance().Create(gpu, bytes, &made.file);
  if (!made.fd.valid()) return cuda::kOutOfMemory;
  *piece = ++last_piece_;
  pieces_[*piece] = std::move(made);
  return cuda::kSuccess;
}

cuda::Result FakeMemory::ExportPiece(cuda::MemHandle piece, int* fd) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(piece);
  if (found == pieces_.end() || !found->second.exportable) return cuda::kInvalidValue;
  *fd = ::fcntl(found->second.fd.get(), F_DUPFD_CLOEXEC, 0);
  return *fd < 0 ? cuda::kOutOfMemory : cuda::kSuccess;
}

cuda::Result FakeMemory::ImportPiece(int fd, cuda::MemHandle* piece) {
  struct stat status = {};
  const int gpu = FakeGpus::Instance().GpuOf(fd);
  if (gpu < 0 || ::fstat(fd, &status) != 0) return cuda::kInvalidValue;
  const std::lock_guard lock(mutex_);
  Piece made;
  made.gpu = gpu;
  made.bytes = static_cast<uint64_t>(status.st_size);
  made.exportable = true;
  made.fd = UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  *piece = ++last_piece_;
  pieces_[*piece] = std::move(made);
  return cuda::kSuccess;
}

cuda::Result FakeMemory::RetainPiece(cuda::DevicePtr address, cuda::MemHandle* piece) {
  const std::lock_guard lock(mutex_);
  const Block* block = Find(address);
  if (block == nullptr || block->kind != BlockKind::kPiece) return cuda::kInvalidValue;
  ++pieces_[block->piece].uses;
  *piece = block->piece;
  return cuda::kSuccess;
}

cuda::Result FakeMemory::ReleasePiece(cuda::MemHandle piece) {
  const std::lock_guard lock(mutex_);
  if (!pieces_.contains(piece)) return cuda::kInvalidValue;
  LetGo(piece);
  return cuda::kSuccess;
}

void FakeMemory::LetGo(cuda::MemHandle piece) {
  const auto found = pieces_.find(piece);
  if (--found->second.uses > 0) return;
  // The memory lives on where another process has mapped it or holds a descriptor.
  if (!found->second.file.empty())
    FakeGpus::Instance().Remove(found->second.gpu, found->second.file);
  pieces_.erase(found);
}

cuda::Result FakeMemory::Reserve(uint64_t bytes, cuda::DevicePtr* address) {
  if (bytes == 0 || bytes % kGranularity != 0) return cuda::kInvalidValue;
  void* reserved =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return cuda::kOutOfMemory;
  const std::lock_guard lock(mutex_);
  *address = reinterpret_cast<uint64_t>(reserved);
  reservations_[*address] = bytes;
  return cuda::kSuccess;
}

cuda::Result FakeMemory::FreeReservation(cuda::DevicePtr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return cuda::kInvalidValue;
  const auto mapped = blocks_.lower_bound(address);
  if (mapped != blocks_.end() && mapped->first < address + bytes) return cuda::kInvalidValue;
  ::munmap(reinterpret_cast<void*>(address), bytes);
  reservations_.erase(found);
  return cuda::kSuccess;
}

cuda::Result FakeMemory::Map(cuda::DevicePtr address, uint64_t bytes, cuda::MemHandle piece) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(piece);
  auto holder = reservations_.upper_bound(address);
  if (found == pieces_.end() || found->second.bytes != bytes || holder == reservations_.begin()) {
    return cuda::kInvalidValue;
  }
  --holder;
  const uint64_t offset = address - holder->first;
  if (offset > holder->second || bytes > holder->second - offset || Find(address) != nullptr) {
    return cuda::kInvalidValue;
  }
  // No access before it is set.
  void* mapped = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                        found->second.fd.get(), 0);
  if (mapped == MAP_FAILED) return cuda::kOutOfMemory;
  Block block;
  block.kind = BlockKind::kPiece;
  block.base = address;
  block.size = bytes;
  block.gpu = found->second.gpu;
  block.buffer_id = ++last_buffer_id_;
  block.piece = piece;
  blocks_[address] = block;
  ++found->second.uses;
  return cuda::kSuccess;
}

cuda::Result FakeMemory::Unmap(cuda::DevicePtr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (uint64_t at = address; at < address + bytes;) {
    const auto found = blocks_.find(at);
    if (found == blocks_.end() || found->second.kind != BlockKind::kPiece)
      return cuda::kInvalidValue;
    const Block block = found->second;
    ::mmap(reinterpret_cast<void*>(at), block.size, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    blocks_.erase(found);
    LetGo(block.piece);
    at += block.size;
  }
  return cuda::kSuccess;
}

cuda::Result FakeMemory::SetAccess(cuda::DevicePtr address, uint64_t bytes,
                                   const std::set<int>& gpus) {
  const std::lock_guard lock(mutex_);
  for (uint64_t at = address; at < address + bytes;) {
    const auto found = blocks_.find(at);
    if (found == blocks_.end() || found->second.kind != BlockKind::kPiece)
      return cuda::kInvalidValue;
    for (const int gpu : gpus) {
      if (!FakeGpus::Instance().Reaches(gpu, found->second.gpu)) return kPeerAccessUnsupported;
    }
    ::mprotect(reinterpret_cast<void*>(at), found->second.size, PROT_READ | PROT_WRITE);
    found->second.followers.insert(gpus.begin(), gpus.end());
    at += found->second.size;
  }
  return cuda::kSuccess;
}

}  // namespace gantry::fake_cuda
