// The virtual memory of fake_memory.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "tests/fakes/gpu/fake_gpus.h"
#include "tests/fakes/gpu/fake_memory.h"

namespace gantry::fake_gpu {
namespace {

constexpr uint64_t kGranularity = 2 << 20;

}  // namespace

Result FakeMemory::CreatePiece(int gpu, uint64_t bytes, bool exportable, PieceId* piece) {
  if (bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  const std::lock_guard lock(mutex_);
  Piece made;
  made.gpu = gpu;
  made.bytes = bytes;
  made.exportable = exportable;
  made.fd = FakeGpus::Instance().Create(gpu, bytes, &made.file);
  if (!made.fd.valid()) return kOutOfMemory;
  *piece = ++last_piece_;
  pieces_[*piece] = std::move(made);
  return kSuccess;
}

Result FakeMemory::ExportPiece(PieceId piece, int* fd) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(piece);
  if (found == pieces_.end() || !found->second.exportable) return kInvalidValue;
  *fd = Duplicate(found->second.fd.get());
  return *fd < 0 ? kOutOfMemory : kSuccess;
}

Result FakeMemory::ImportPiece(int fd, PieceId* piece) {
  struct stat status = {};
  const int gpu = FakeGpus::Instance().GpuOf(fd);
  if (gpu < 0 || ::fstat(fd, &status) != 0) return kInvalidValue;
  const std::lock_guard lock(mutex_);
  Piece made;
  made.gpu = gpu;
  made.bytes = static_cast<uint64_t>(status.st_size);
  made.exportable = true;
  made.fd = UniqueFd(Duplicate(fd));
  *piece = ++last_piece_;
  pieces_[*piece] = std::move(made);
  return kSuccess;
}

Result FakeMemory::RetainPiece(uint64_t address, PieceId* piece) {
  const std::lock_guard lock(mutex_);
  const Block* block = Find(address);
  if (block == nullptr || block->kind != BlockKind::kPiece) return kInvalidValue;
  ++pieces_[block->piece].uses;
  *piece = block->piece;
  return kSuccess;
}

Result FakeMemory::ReleasePiece(PieceId piece) {
  const std::lock_guard lock(mutex_);
  if (!pieces_.contains(piece)) return kInvalidValue;
  LetGo(piece);
  return kSuccess;
}

void FakeMemory::LetGo(PieceId piece) {
  const auto found = pieces_.find(piece);
  if (--found->second.uses > 0) return;
  // The memory lives on where another process has mapped it or holds a descriptor.
  if (!found->second.file.empty())
    FakeGpus::Instance().Remove(found->second.gpu, found->second.file);
  pieces_.erase(found);
}

Result FakeMemory::Reserve(uint64_t bytes, Address* address) {
  if (bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  void* reserved =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return kOutOfMemory;
  const std::lock_guard lock(mutex_);
  *address = reinterpret_cast<uint64_t>(reserved);
  reservations_[*address] = bytes;
  return kSuccess;
}

Result FakeMemory::FreeReservation(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return kInvalidValue;
  const auto mapped = blocks_.lower_bound(address);
  if (mapped != blocks_.end() && mapped->first < address + bytes) return kInvalidValue;
  ::munmap(reinterpret_cast<void*>(address), bytes);
  reservations_.erase(found);
  return kSuccess;
}

Result FakeMemory::Map(uint64_t address, uint64_t bytes, PieceId piece) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(piece);
  auto holder = reservations_.upper_bound(address);
  if (found == pieces_.end() || found->second.bytes != bytes || holder == reservations_.begin()) {
    return kInvalidValue;
  }
  --holder;
  const uint64_t offset = address - holder->first;
  if (offset > holder->second || bytes > holder->second - offset || Find(address) != nullptr) {
    return kInvalidValue;
  }
  // No access before it is set.
  void* mapped = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                        found->second.fd.get(), 0);
  if (mapped == MAP_FAILED) return kOutOfMemory;
  Block block;
  block.kind = BlockKind::kPiece;
  block.base = address;
  block.size = bytes;
  block.gpu = found->second.gpu;
  block.buffer_id = ++last_buffer_id_;
  block.piece = piece;
  blocks_[address] = block;
  ++found->second.uses;
  return kSuccess;
}

Result FakeMemory::Unmap(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (uint64_t at = address; at < address + bytes;) {
    const auto found = blocks_.find(at);
    if (found == blocks_.end() || found->second.kind != BlockKind::kPiece) return kInvalidValue;
    const Block block = found->second;
    if (::mmap(reinterpret_cast<void*>(at), block.size, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
      return kOutOfMemory;
    }
    blocks_.erase(found);
    LetGo(block.piece);
    at += block.size;
  }
  return kSuccess;
}

Result FakeMemory::SetAccess(uint64_t address, uint64_t bytes, const std::set<int>& gpus) {
  const std::lock_guard lock(mutex_);
  for (uint64_t at = address; at < address + bytes;) {
    const auto found = blocks_.find(at);
    if (found == blocks_.end() || found->second.kind != BlockKind::kPiece) return kInvalidValue;
    for (const int gpu : gpus) {
      if (!FakeGpus::Instance().Reaches(gpu, found->second.gpu)) return kPeerAccessUnsupported;
    }
    ::mprotect(reinterpret_cast<void*>(at), found->second.size, PROT_READ | PROT_WRITE);
    found->second.followers.insert(gpus.begin(), gpus.end());
    at += found->second.size;
  }
  return kSuccess;
}

}  // namespace gantry::fake_gpu
