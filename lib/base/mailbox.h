// Small messages between two processes through memory that both map, beside the socket that
// connects them: what another processor wrote is there after a microsecond, where a message over a
// socket takes five, and twenty once both kernels' ways have left the caches. One message each way
// at a time, and only to who looks: everybody else gets it over the socket, as does one that is too
// long. Nothing that stands in the memory is trusted. Each end is used by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry {

class Mailbox {
 public:
  static constexpr size_t kMessageBytesMax = 8'000;
  enum class End { kServer, kClient };

  // A memfd for one pair of ends, which nobody can make shorter.
  static Result<UniqueFd> CreateMemory();
  // kInvalidArgument for memory of another size, or that could be made shorter; kResourceExhausted.
  static Result<Mailbox> Map(int memory, End end);
  // Both ends in this process, for what is rehearsed.
  struct Pair;
  static Result<Pair> MakePair();

  Mailbox(Mailbox&& other) noexcept { *this = std::move(other); }
  Mailbox& operator=(Mailbox&& other) noexcept;
  ~Mailbox();

  // Gives the other end a message of one or two parts, which is true: it looks, and will find it.
  // False, and nothing was given, where it does not look, has not read the last one, or a message
  // has no byte or more than kMessageBytesMax.
  bool Offer(std::string_view first, std::string_view second = {});
  // Of what was offered last: true where the other end had not begun to read it, and never will.
  bool TakeBack();
  // Whether the other end looks.
  bool IsLookedAt() const;

  // Asks for messages from here on, and does no more: true where one came until then.
  void Look();
  bool StopLooking();
  bool HasMessage() const { return in_->bytes.load(std::memory_order_acquire) != 0; }
  // The length of the message that was copied to `to`, of at least kMessageBytesMax; 0: there is
  // none. kPeerLost where what the other end wrote makes no sense.
  Result<size_t> Take(std::span<char> to);

  // The processor will write the next message without waiting for its memory.
  void KeepReady();
  // Gives the memory back to the system, also what the other end has mapped: it reads zeros then.
  void FreeMemory();

 private:
  static constexpr size_t kLineBytes = 64;
  // One way. Each of the two ends has a line of it that only that one writes, but for the claim.
  struct Slot {
    alignas(kLineBytes) std::atomic<uint32_t> looked_at;  // by the reader
    alignas(kLineBytes) std::atomic<uint32_t> bytes;      // 0: empty; kClaimed: being read
    char text[kMessageBytesMax];
  };
  struct Memory {
    Slot to_server;
    Slot to_client;
  };
  static constexpr uint32_t kClaimed = UINT32_MAX;
  static_assert(std::atomic<uint32_t>::is_always_lock_free);

  Mailbox(Memory* memory, End end);

  Memory* memory_ = nullptr;
  Slot* in_ = nullptr;
  Slot* out_ = nullptr;
  uint32_t offered_ = 0;  // bytes of the last message
};

struct Mailbox::Pair {
  Mailbox server;
  Mailbox client;
};

}  // namespace gantry
