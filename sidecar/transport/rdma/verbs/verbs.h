// What the rdma transport asks of RDMA devices, in types of its own: SystemVerbs is libibverbs, the
// tests' fake fails and reorders on demand. Every object destroys itself and must go before what
// made it. One thread at a time for each object; devices and regions are thread-safe.
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
  uint32_t work_requests_max = 0;  // of one queue pair
  uint32_t completions_max = 0;    // of one queue
  uint32_t reads_max = 0;          // of one queue pair, answered at a time (max_qp_rd_atom)
  uint32_t reads_sent_max = 0;     // asked at a time (max_qp_init_rd_atom)
};

struct VerbsPort {
  bool active = false;
  bool ethernet = false;  // RoCE: addressed by GID alone
  uint32_t mtu = 0;       // bytes, active
  uint32_t message_bytes_max = 0;
  uint16_t lid = 0;
};

// What a peer, or the owner itself, may do with a region.
struct RegionAccess {
  bool local_write = false;
  bool remote_read = false;
  bool remote_write = false;  // needs local_write
  bool relaxed_ordering = false;
};

class VerbsRegion {
 public:
  virtual ~VerbsRegion() = default;  // deregisters, if nobody did; a failure is logged
  virtual uint32_t local_key() const = 0;
  virtual uint32_t remote_key() const = 0;
  // Once. After a failure the region is lost to this process: nothing can be done with it.
  virtual Status Deregister() = 0;
};

struct QueuePairOptions {
  uint32_t work_requests = 128;  // in flight
  uint8_t timeout = 14;          // local ACK timeout: 4.096 us * 2^timeout
  uint8_t retries = 7;           // retry_cnt
  uint8_t rnr_retries = 7;       // 7: for ever
  uint8_t min_rnr_timer = 12;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  int gid_index = 0;
  uint32_t reads_sent = 16;  // asked at a time: max_rd_atomic, as far as the other end answers them
  uint32_t inline_bytes = 0;  // of inlined writes
  // What the other end may do through this one, with regions that grant it as well.
  bool remote_read = false;
  bool remote_write = false;
};

// Of a queue pair with these options, once it is connected.
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
  // A write whose bytes this process reads while it is posted, at their address in it and with no
  // key.
  bool inlined = false;
};

class VerbsQueuePair {
 public:
  virtual ~VerbsQueuePair() = default;  // no byte of it moves any more at this end
  virtual uint32_t number() const = 0;
  // The longest write that may be inlined: what was asked for, or more; less where the device takes
  // none as long as that.
  virtual uint32_t inline_bytes() const = 0;
  // Ready to receive and to send. `from` is what was told to the other end.
  virtual Status Connect(const QueuePairAddress& from, const QueuePairAddress& to,
                         const QueuePairOptions& options) = 0;
  // In their order. How many were taken: fewer after an error, which is kept for the caller.
  virtual size_t Post(std::span<const WorkItem> items, int* error_number) = 0;
  // Of one that was connected. Everything in flight completes as flushed.
  virtual Status Fail() = 0;
};

// As libibverbs numbers and names them (ibv_wc_status); a value that it does not know is kept.
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
  // How many it took out; negative: the queue is broken.
  virtual int Poll(std::span<WorkCompletion> completions) = 0;
  // The next completion makes `fd` readable. Poll once more afterwards: one may have come before.
  virtual Status Arm() = 0;
  virtual int fd() const = 0;
  // Takes the events that made it readable. Any thread.
  virtual void TakeEvents() = 0;
};

// kNone: there is no further event now.
enum class PortChange { kNone, kUp, kDown, kDeviceGone, kOther };

class VerbsDevice {
 public:
  virtual ~VerbsDevice() = default;
  virtual const std::string& name() const = 0;
  virtual const VerbsLimits& limits() const = 0;
  virtual Result<VerbsPort> Port() const = 0;  // of one that is not there: an error
  virtual std::vector<GidEntry> Gids() const = 0;

  virtual Result<std::unique_ptr<VerbsRegion>> Register(std::span<std::byte> memory,
                                                        const RegionAccess& access) = 0;
  // Of the memory behind a dma-buf: `length` bytes at `offset`, which peers address from `iova` on.
  virtual Result<std::unique_ptr<VerbsRegion>> RegisterDmabuf(int fd, uint64_t offset,
                                                              uint64_t length, uint64_t iova,
                                                              const RegionAccess& access) = 0;
  virtual Result<std::unique_ptr<VerbsCompletionQueue>> CreateCompletionQueue(uint32_t depth) = 0;
  virtual Result<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      VerbsCompletionQueue& queue, const QueuePairOptions& options) = 0;
  // Readable when something happened to the port or the device.
  virtual int event_fd() const = 0;
  virtual PortChange NextEvent() = 0;
};

class Verbs {
 public:
  virtual ~Verbs() = default;
  // Empty: there are none. An error: they cannot be asked, and why.
  virtual Result<std::vector<std::string>> Devices() = 0;
  virtual Result<std::unique_ptr<VerbsDevice>> Open(const std::string& name, uint8_t port) = 0;
};

}  // namespace gantry::transport
