#include "lib/base/mailbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "lib/base/prefetch.h"

namespace gantry {
namespace {

// Of an answer to a small request.
constexpr size_t kReadyBytes = 1024;

}  // namespace

Result<UniqueFd> Mailbox::CreateMemory() {
  UniqueFd memory(::memfd_create("gantry-mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "memfd_create", errno));
  }
  if (::ftruncate(memory.get(), sizeof(Memory)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "memory of a mailbox", errno));
  }
  return memory;
}

Result<Mailbox> Mailbox::Map(int memory, End end) {
  struct stat info = {};
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(memory, &info) != 0 ||
      info.st_size != sizeof(Memory)) {
    return Fail(ErrorCode::kInvalidArgument, "the memory of a mailbox is a memfd of " +
                                                 std::to_string(sizeof(Memory)) +
                                                 " bytes that is sealed against shrinking");
  }
  void* at =
      ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
  if (at == MAP_FAILED) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "mmap of a mailbox", errno));
  }
  return Mailbox(static_cast<Memory*>(at), end);
}

Result<Mailbox::Pair> Mailbox::MakePair() {
  ASSIGN_OR_RETURN(const UniqueFd memory, CreateMemory());
  ASSIGN_OR_RETURN(Mailbox server, Map(memory.get(), End::kServer));
  ASSIGN_OR_RETURN(Mailbox client, Map(memory.get(), End::kClient));
  return Pair{std::move(server), std::move(client)};
}

Mailbox::Mailbox(Memory* memory, End end)
    : memory_(memory),
      in_(end == End::kServer ? &memory->to_server : &memory->to_client),
      out_(end == End::kServer ? &memory->to_client : &memory->to_server) {}

Mailbox& Mailbox::operator=(Mailbox&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  std::swap(offered_, other.offered_);
  return *this;
}

Mailbox::~Mailbox() {
  if (memory_ != nullptr) ::munmap(memory_, sizeof(Memory));
}

bool Mailbox::Offer(std::string_view first, std::string_view second) {
  const size_t bytes = first.size() + second.size();
  if (bytes == 0 || bytes > kMessageBytesMax || !IsLookedAt()) return false;
  if (out_->bytes.load(std::memory_order_acquire) != 0) return false;
  if (!first.empty()) std::memcpy(out_->text, first.data(), first.size());
  if (!second.empty()) std::memcpy(out_->text + first.size(), second.data(), second.size());
  offered_ = static_cast<uint32_t>(bytes);
  // The other end stops looking and then looks once more; here it is the other way around. So one
  // of the two sees what the other did, and where both do the claim decides.
  out_->bytes.store(offered_, std::memory_order_seq_cst);
  return out_->looked_at.load(std::memory_order_seq_cst) != 0 || !TakeBack();
}

bool Mailbox::TakeBack() {
  uint32_t expected = std::exchange(offered_, 0);
  return expected != 0 && out_->bytes.compare_exchange_strong(expected, 0);
}

bool Mailbox::IsLookedAt() const { return out_->looked_at.load(std::memory_order_acquire) != 0; }

void Mailbox::Look() { in_->looked_at.store(1, std::memory_order_seq_cst); }

bool Mailbox::StopLooking() {
  in_->looked_at.store(0, std::memory_order_seq_cst);
  return in_->bytes.load(std::memory_order_seq_cst) != 0;  // see Offer
}

Result<size_t> Mailbox::Take(std::span<char> to) {
  uint32_t bytes = in_->bytes.load(std::memory_order_seq_cst);
  if (bytes == 0) return size_t{0};
  if (bytes > std::min(kMessageBytesMax, to.size())) {
    return Fail(ErrorCode::kPeerLost, "a message in a mailbox has " + std::to_string(bytes) +
                                          " bytes, at most " + std::to_string(kMessageBytesMax) +
                                          " fit");
  }
  if (!in_->bytes.compare_exchange_strong(bytes, kClaimed)) return size_t{0};  // taken back
  std::memcpy(to.data(), in_->text, bytes);
  in_->bytes.store(0, std::memory_order_release);
  return size_t{bytes};
}

void Mailbox::FreeMemory() { ::madvise(memory_, sizeof(Memory), MADV_REMOVE); }

void Mailbox::KeepReady() { gantry::Prefetch(&out_->bytes, kReadyBytes); }

}  // namespace gantry
