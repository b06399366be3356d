#include "tests/fakes/gpu/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/fakes/gpu/fake_gpus.h"

namespace gantry::fake_gpu {
namespace {

void* MapShared(int fd, uint64_t bytes, uint64_t lead) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(lead));
}

}  // namespace

FakeMemory& FakeMemory::Instance() {
  static FakeMemory* const memory = new FakeMemory;
  return *memory;
}

Block* FakeMemory::Find(uint64_t address) {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address - block.base < block.size ? &block : nullptr;
}

std::optional<Block> FakeMemory::Around(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const Block* block = Find(address);
  return block == nullptr ? std::nullopt : std::optional(*block);
}

int FakeMemory::FileOf(const Block& block) {
  const std::lock_guard lock(mutex_);
  if (block.kind == BlockKind::kImported) return -1;
  return block.kind == BlockKind::kPiece ? pieces_[block.piece].fd.get() : block.fd;
}

Result FakeMemory::CheckCopy(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  // Pieces lie side by side; memory that the driver does not know is the host's, which it copies.
  for (uint64_t at = address, left = bytes; left != 0;) {
    const Block* block = Find(at);
    if (block == nullptr) return at == address ? kSuccess : kInvalidValue;
    // The host's address of memory that devices find elsewhere.
    if (block->kind == BlockKind::kRegistered && block->on_device != block->base) {
      return kInvalidValue;
    }
    const uint64_t here = block->base + block->size - at;
    if (here < left && block->kind != BlockKind::kPiece) return kInvalidValue;
    at += std::min(here, left);
    left -= std::min(here, left);
  }
  return kSuccess;
}

Result FakeMemory::Allocate(BlockKind kind, int gpu, uint64_t bytes, Address* address,
                            uint64_t lead) {
  if (bytes == 0) return kInvalidValue;
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
    fd = FakeGpus::Instance().Create(gpu, lead + bytes, &block.file);
    if (!fd.valid()) return kOutOfMemory;
    block.lead = lead;
    mapped = MapShared(fd.get(), bytes, lead);
  }
  if (mapped == MAP_FAILED) return kOutOfMemory;
  block.base = reinterpret_cast<uint64_t>(mapped);
  block.fd = fd.release();
  block.buffer_id = ++last_buffer_id_;
  *address = block.base;
  blocks_[block.base] = block;
  return kSuccess;
}

Result FakeMemory::Free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind > BlockKind::kPinned) return kInvalidValue;
  const Block block = found->second;
  blocks_.erase(found);
  ::munmap(reinterpret_cast<void*>(block.base), block.size);
  if (!block.file.empty()) FakeGpus::Instance().Remove(block.gpu, block.file);
  if (block.fd >= 0) ::close(block.fd);
  return kSuccess;
}

Result FakeMemory::Register(void* host, uint64_t bytes) {
  if (host == nullptr || bytes == 0) return kInvalidValue;
  const std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<uint64_t>(host);
  if (Find(base) != nullptr || Find(base + bytes - 1) != nullptr) {
    return kHostMemoryAlreadyRegistered;
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
  // All of it or nothing, also out of memory: a driver has no other state.
  std::set<uint64_t> mapping;
  std::map<uint64_t, Block> both;
  if (second != MAP_FAILED) mapping.insert(block.on_device);
  both[base] = block;
  block.base = block.on_device;
  both[block.base] = block;
  mappings_.merge(mapping);
  blocks_.merge(both);
  return kSuccess;
}

Result FakeMemory::Unregister(void* host) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uint64_t>(host));
  const bool known = found != blocks_.end() && found->second.kind == BlockKind::kRegistered;
  // The host's address names it, and no other.
  const bool is_hosts = known && !mappings_.contains(found->first);
  if (!is_hosts) return kHostMemoryNotRegistered;
  // Whoever unmaps it first has it too late, also where the vendor's driver bears it.
  if (::msync(host, found->second.size, MS_ASYNC) != 0) return kInvalidValue;
  Forget(found->second);
  return kSuccess;
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

bool FakeMemory::IsReachedHere(uint64_t address, uint64_t bytes) {
  const Block* block = Find(address);
  if (block == nullptr || block->size - (address - block->base) < bytes) return false;
  return block->kind == BlockKind::kPinned ||
         (block->kind == BlockKind::kRegistered && block->on_device == block->base);
}

bool FakeMemory::IsReached(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return IsReachedHere(address, bytes);
}

bool FakeMemory::WriteReached(uint64_t address, uint64_t value) {
  const std::lock_guard lock(mutex_);
  if (!IsReachedHere(address, sizeof(value))) return false;
  __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
  return true;
}

// Memory of other processes.

namespace {

struct HandleBody {
  char magic[8];
  int32_t exporter;
  int32_t gpu;
  uint64_t bytes;
  uint64_t offset;
  uint32_t lead;
  char file[28];
};
static_assert(sizeof(HandleBody) == kHandleBytes);
constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'i', 'p', 'c', '1'};

}  // namespace

void Encode(const MemoryName& name, char* handle) {
  HandleBody body = {};
  std::memcpy(body.magic, kMagic, sizeof(kMagic));
  body.exporter = name.exporter;
  body.gpu = name.gpu;
  body.bytes = name.bytes;
  body.offset = name.offset;
  body.lead = static_cast<uint32_t>(name.lead);
  name.file.copy(body.file, sizeof(body.file) - 1);
  std::memcpy(handle, &body, sizeof(body));
}

bool Decode(const char* handle, MemoryName* name) {
  HandleBody body = {};
  std::memcpy(&body, handle, sizeof(body));
  if (std::memcmp(body.magic, kMagic, sizeof(kMagic)) != 0) return false;
  *name = {body.exporter, body.gpu, body.bytes, body.offset, body.lead, body.file};
  return true;
}

Result FakeMemory::NameOf(uint64_t address, MemoryName* name) {
  const std::lock_guard lock(mutex_);
  const Block* block = Find(address);
  if (block == nullptr || block->kind != BlockKind::kDevice) return kInvalidValue;
  *name = {::getpid(), block->gpu, block->size, address - block->base, block->lead, block->file};
  return kSuccess;
}

Result FakeMemory::Attach(const MemoryName& name, UniqueFd file, const Attachment& how,
                          Address* address) {
  const std::lock_guard lock(mutex_);
  for (auto& [base, block] : blocks_) {
    if (how.is_shared && block.kind == BlockKind::kImported && block.gpu == name.gpu &&
        block.file == name.file) {
      ++block.uses;
      if (how.gpu >= 0) block.followers.insert(how.gpu);
      *address = base;
      return kSuccess;
    }
  }
  if (!file.valid()) return kInvalidValue;
  void* mapped = MapShared(file.get(), name.bytes, name.lead);
  if (mapped == MAP_FAILED) return kOutOfMemory;
  Block block;
  block.kind = BlockKind::kImported;
  block.base = reinterpret_cast<uint64_t>(mapped);
  block.size = name.bytes;
  block.lead = name.lead;
  block.gpu = name.gpu;
  block.file = name.file;
  block.fd = file.release();
  block.buffer_id = ++last_buffer_id_;
  block.is_reached_as_own = how.gpu < 0;
  if (how.gpu >= 0) block.followers.insert(how.gpu);
  blocks_[block.base] = block;
  *address = block.base;
  return kSuccess;
}

Result FakeMemory::UseAgain(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != BlockKind::kImported) return kInvalidValue;
  ++found->second.uses;
  return kSuccess;
}

UniqueFd FakeMemory::Lend(const std::string& file) {
  const std::lock_guard lock(mutex_);
  for (const auto& [base, block] : blocks_) {
    if (block.kind == BlockKind::kDevice && block.file == file)
      return UniqueFd(Duplicate(block.fd));
  }
  return {};
}

Result FakeMemory::Detach(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != BlockKind::kImported) return kInvalidValue;
  if (--found->second.uses == 0) {
    ::munmap(reinterpret_cast<void*>(address), found->second.size);
    ::close(found->second.fd);
    blocks_.erase(found);
  }
  return kSuccess;
}

}  // namespace gantry::fake_gpu
