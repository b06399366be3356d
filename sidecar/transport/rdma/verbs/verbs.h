// The RDMA interface of the rdma transport, in types of its own. SystemVerbs implements it over
// libibverbs; the tests' fake fails and reorders on demand. Destructors release; destroy an object
// before its creator. One thread at a time per object; devices and regions are thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/rdma_types.h"
#include "sidecar/transport/rdma/verbs/gid_choice.h"

namespace gantry::transport {

using wire::QueuePairAddress;

struct VerbsLimits {
  uint64_t region_bytes_max = 0;  // max_mr_size
  uint32_t regions_max = 0;
  uint32_t queue_pairs_max = 0;
  uint32_t work_requests_max = 0;  // per queue pair
  uint32_t completions_max = 0;    // per queue
  uint32_t reads_max = 0;          // answered at a time per queue pair (max_qp_rd_atom)
  uint32_t reads_sent_max = 0;     // outstanding at a time (max_qp_init_rd_atom)
};

struct VerbsPort {
  bool active = false;
  bool ethernet = false;  // RoCE: addressed by GID only
  uint32_t mtu = 0;       // active MTU, in bytes
  uint32_t message_bytes_max = 0;
  uint16_t lid = 0;
};

// Access of the owner and of peers to a region.
struct RegionAccess {
  bool local_write = false;
  bool remote_read = false;
  bool remote_write = false;  // needs local_write
  bool relaxed_ordering = false;
};

class VerbsRegion {
 public:
  virtual ~VerbsRegion() = default;  // deregisters if Deregister was not called; logs a failure
  virtual uint32_t local_key() const = 0;
  virtual uint32_t remote_key() const = 0;
  // Call at most once. After a failure the region is leaked: nothing else can be done with it.
  virtual Status Deregister() = 0;
};

struct QueuePairOptions {
  uint32_t work_requests = 128;  // at most in flight
  uint8_t timeout = 14;          // local ACK timeout: 4.096 us * 2^timeout
  uint8_t retries = 7;           // retry_cnt
  uint8_t rnr_retries = 7;       // 7: without limit
  uint8_t min_rnr_timer = 12;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  int gid_index = 0;
  // Outstanding reads (max_rd_atomic), as far as the other end supports them.
  uint32_t reads_sent = 16;
  uint32_t inline_bytes = 0;  // longest inlined write
  // Access of the other end through this queue pair; the region must grant it, too.
  bool remote_read = false;
  bool remote_write = false;
};

// Returns the reads in flight that a connected queue pair with these options may have.
inline uint32_t ReadsSent(const QueuePairOptions& options, const QueuePairAddress& to) {
  return std::min(options.reads_sent, to.reads_max);
}

enum class WorkOperation : uint8_t { kWrite, kRead };

struct WorkItem {
  uint64_t id = 0;
  WorkOperation operation = WorkOperation::kWrite;
  bool signalled = true;
  uint64_t local_address = 0;
  uint32_t local_key = 0;
  uint32_t length = 0;
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  // The device copies the bytes while the write is posted. local_address is in this process; no
  // key.
  bool inlined = false;
};

class VerbsQueuePair {
 public:
  virtual ~VerbsQueuePair() = default;  // no byte moves through it any more at this end
  virtual uint32_t number() const = 0;
  // The longest write that may be inlined, in bytes. It may be more than requested, or less where
  // the device supports less.
  virtual uint32_t inline_bytes() const = 0;
  // Makes it ready to receive and to send. `from` is the address that the other end was given.
  virtual Status Connect(const QueuePairAddress& from, const QueuePairAddress& to,
                         const QueuePairOptions& options) = 0;
  // Posts in order and returns how many were accepted. Fewer than all: *error_number says why.
  virtual size_t Post(std::span<const WorkItem> items, int* error_number) = 0;
  // REQUIRES a connected queue pair. Everything in flight completes as flushed.
  virtual Status Fail() = 0;
};

// Numbers and names of libibverbs (ibv_wc_status); unknown values are kept.
enum class WorkStatus : int {
  kSuccess = 0,
  kLocalLength = 1,
  kLocalQueuePair = 2,
  kLocalProtection = 4,
  kFlushed = 5,
  kBindMemoryWindow = 6,
  kBadResponse = 7,
  kLocalAccess = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccess = 10,
  kRemoteOperation = 11,
  kRetryExceeded = 12,
  kReceiverNotReady = 13,
  kRemoteAborted = 16,
  kFatal = 19,
  kResponseTimeout = 20,
  kGeneral = 21,
};

struct WorkCompletion {
  uint64_t id = 0;
  WorkStatus status = WorkStatus::kSuccess;
  uint32_t queue_pair = 0;
  uint32_t vendor_error = 0;
};

class VerbsCompletionQueue {
 public:
  virtual ~VerbsCompletionQueue() = default;
  // Returns the number of completions taken; negative: the queue is broken.
  virtual int Poll(std::span<WorkCompletion> completions) = 0;
  // The next completion makes `fd` readable. Poll once afterwards: a completion may have come
  // before.
  virtual Status Arm() = 0;
  virtual int fd() const = 0;
  // Consumes the events that made `fd` readable. Any thread.
  virtual void TakeEvents() = 0;
};

// kNone: no further event now.
enum class PortChange { kNone, kUp, kDown, kDeviceGone, kOther };

class VerbsDevice {
 public:
  virtual ~VerbsDevice() = default;
  virtual const std::string& name() const = 0;
  virtual const VerbsLimits& limits() const = 0;
  virtual Result<VerbsPort> Port() const = 0;  // fails when the port does not exist
  virtual std::vector<GidEntry> Gids() const = 0;

  virtual Result<std::unique_ptr<VerbsRegion>> Register(std::span<std::byte> memory,
                                                        const RegionAccess& access) = 0;
  // Registers `length` bytes at `offset` of a dma-buf; peers address them from `iova` on.
  virtual Result<std::unique_ptr<VerbsRegion>> RegisterDmabuf(int fd, uint64_t offset,
                                                              uint64_t length, uint64_t iova,
                                                              const RegionAccess& access) = 0;
  virtual Result<std::unique_ptr<VerbsCompletionQueue>> CreateCompletionQueue(uint32_t depth) = 0;
  virtual Result<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      VerbsCompletionQueue& queue, const QueuePairOptions& options) = 0;
  // Readable when the port or the device reports an event.
  virtual int event_fd() const = 0;
  virtual PortChange NextEvent() = 0;
};

class Verbs {
 public:
  virtual ~Verbs() = default;
  // Empty: there are no devices. An error: they cannot be listed, and why.
  virtual Result<std::vector<std::string>> Devices() = 0;
  virtual Result<std::unique_ptr<VerbsDevice>> Open(const std::string& name, uint8_t port) = 0;
};

}  // namespace gantry::transport
