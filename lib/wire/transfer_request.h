// One transfer as a caller states it: what to move between which buffers. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/codec/buffer_types.h"
#include "lib/wire/notification.h"

namespace gantry::wire {

inline constexpr int kPriorityMax = 10;  // and -10 is the least

enum class Operation : uint8_t { kRead, kWrite };  // read: remote to local; write: local to remote
std::string_view NameOf(Operation operation);      // "read", "write"
std::optional<Operation> OperationByName(std::string_view name);

// Who moves the bytes. kAny: this sidecar, or the peer when no path leads there from here and one
// leads here from the peer. kPeer needs a peer that is connected in both directions, and local
// buffers that grant it remote access: to write for a read, to read for a write.
enum class Executor : uint8_t { kAny, kSelf, kPeer };
std::string_view NameOf(Executor executor);  // "any", "self", "peer"
std::optional<Executor> ExecutorByName(std::string_view name);

// `[peer/]workload/buffer[@generation]`, or just `buffer[@generation]` for the caller's own. An
// empty peer means this sidecar. The generation (16 hex digits) fences: another one is refused.
struct BufferReference {
  std::string peer;
  std::string workload;
  std::string buffer;       // its name
  uint64_t generation = 0;  // 0: whichever is current
  // The generation of its workload; 0: whichever is current. Only the pairs of views say it.
  uint64_t workload_generation = 0;

  bool operator==(const BufferReference&) const = default;
};
// `parts_max` 1 for local references, 3 for remote ones; field is named by errors.
Result<BufferReference> ParseReference(std::string_view text, std::string_view field,
                                       int parts_max);
std::string FormatReference(const BufferReference& reference);

// `workload[@generation]`; the generation stays 0 without one.
Status TakeFencedWorkload(std::string&& text, std::string* workload, uint64_t* generation);

// `length` bytes between local[local_index] at local_offset and remote[remote_index] at
// remote_offset.
struct TransferRange {
  uint32_t local_index = 0;
  uint64_t local_offset = 0;
  uint32_t remote_index = 0;
  uint64_t remote_offset = 0;
  uint64_t length = 0;

  bool operator==(const TransferRange&) const = default;
};

// The pairs of one group of a view, and the blocks that move between them.
struct TransferGroup {
  uint32_t group = 0;
  std::vector<uint64_t> local_blocks;
  std::vector<uint64_t> remote_blocks;
  std::vector<uint64_t> layers;  // the first and the last of the group's pairs; empty: all

  bool operator==(const TransferGroup&) const = default;
};

// What the transfer waits for before it moves its first byte: the unsigned 64-bit counter (lowest
// byte first) at this offset of one of the caller's own buffers has reached `value`.
struct TimelineFence {
  bool waits = false;  // false: {"type": "none"}, which a request does not keep
  BufferReference buffer;
  uint64_t offset = 0;
  uint64_t value = 0;

  bool operator==(const TimelineFence&) const = default;
};

struct TransferRequest {
  std::string id;  // the caller's; unique within the workload; empty: one is made up
  std::string workload;
  Operation operation = Operation::kRead;
  // The id of a view stands for the buffers. Blocks are then named for each group of its pairs, or,
  // with no groups here, for group 0 by the two lists and by the layers below.
  std::string view;
  std::vector<TransferGroup> groups;
  std::vector<uint64_t> layers;
  std::vector<BufferReference> local;
  std::vector<BufferReference> remote;  // one peer for the whole transfer
  // Either ranges, or two lists of block ids of equal length: block local_blocks[i] of local[k]
  // pairs with block remote_blocks[i] of remote[k], for every k.
  std::vector<TransferRange> ranges;
  std::vector<uint64_t> local_blocks;
  std::vector<uint64_t> remote_blocks;
  // Whether a body names the lists, which may be empty: then nothing moves.
  bool has_local_blocks = false;
  bool has_remote_blocks = false;
  bool by_blocks = false;  // always with a view
  std::optional<TimelineFence> fence;
  std::optional<uint64_t> deadline_ms;
  int priority = 0;                    // up to kPriorityMax; higher goes first
  std::vector<Path> require_path;      // empty: any
  Executor executor = Executor::kAny;  // who moves the bytes
  std::string user_data;               // given back in events; at most 1 KiB

  std::string hold;  // of the remote workload: the blocks are still what it promised; empty: none
  uint64_t hold_consumers = 1;                // as how many it counts there when it has succeeded
  std::optional<NotificationContent> notify;  // to a workload at the peer, once the bytes are there

  std::string requested_by;  // a peer, which this sidecar serves; no body names it

  bool operator==(const TransferRequest&) const = default;
};

}  // namespace gantry::wire
