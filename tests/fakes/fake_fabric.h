// What joins the fake RDMA devices of a test: their state, and the wires. Work requests copy plain
// memory when a queue is polled, or one at a time when the test steps. Thread-safe; outlives the
// FakeVerbs on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/unique_fd.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::testing {

// The figures are those of soft-RoCE.
struct FakeDeviceOptions {
  std::string name;
  transport::VerbsLimits limits = {UINT64_MAX, 524287, 1048560, 1048576, 32767, 128, 128};
  transport::VerbsPort port = {true, true, 4096, 8U << 20, 0};
  uint32_t inline_bytes_max = 512;
  bool dmabuf = false;  // any file that can be mapped stands for one; else EOPNOTSUPP
  // Empty: those of soft-RoCE. Between two whose prefixes are known are no routers.
  std::vector<transport::GidEntry> gids = {};
};

enum class FakeCall {
  kDevices,
  kOpen,
  kPort,
  kRegister,
  kRegisterDmabuf,
  kDeregister,
  kCreateCompletionQueue,
  kCreateQueuePair,
  kConnect,
  kPost,  // each work request is one
  kFail,
  kPoll,
  kArm,
  kDestroyQueuePair,  // which never fails, but may be held
  kEvents,            // the descriptor of a completion queue is none
};

// When a call fails: the n-th from the start, or all.
struct FakeFailures {
  int calls = 0;
  int always = 0;              // an errno, 0: none
  std::map<int, int> by_call;  // number of the call -> errno
};

// Objects that were made and not destroyed. A region whose deregistration failed stays.
struct FakeLive {
  int opens = 0;
  int regions = 0;
  int completion_queues = 0;
  int queue_pairs = 0;
  bool operator==(const FakeLive&) const = default;
};

struct FakeWork {
  uint64_t writes = 0;   // that succeeded, as initiator
  uint64_t inlined = 0;  // of these
  uint64_t reads = 0;
  uint64_t bytes = 0;
};

struct FakeDevice {
  FakeDeviceOptions options;
  std::vector<transport::GidEntry> gids;
  bool gone = false;
  uint32_t last_queue_pair = 0;
  std::map<FakeCall, FakeFailures> failures;
  std::set<FakeCall> held;                                 // calls that do not return
  int waiting = 0;                                         // in such calls
  std::map<uint64_t, transport::WorkStatus> failing_work;  // number of the work request
  uint64_t work_requests = 0;                              // carried out, or tried to
  FakeWork done;
};

struct FakeRegion {
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  std::byte* memory = nullptr;
  uint64_t address = 0;  // of its first byte, as work requests say it
  uint64_t length = 0;
  transport::RegionAccess access;
  bool is_dma_buf = false;
};

// One opening of a device, with a protection domain: regions of another one are not its own.
struct FakeOpen {
  FakeDevice* device = nullptr;
  bool has_port = true;
  std::vector<transport::GidEntry> gids;  // of that port
  UniqueFd event;
  std::deque<transport::PortChange> changes;
  FakeLive live = {1, 0, 0, 0};
  std::map<uint32_t, FakeRegion*> by_local_key;
  std::map<uint32_t, FakeRegion*> by_remote_key;
};

struct FakeQueuePair;

struct FakeQueue {
  struct Entry {
    transport::WorkCompletion completion;
    uint32_t slots = 0;  // that come free in the queue pair when it is polled
  };
  std::shared_ptr<FakeOpen> open;
  uint32_t number = 0;
  uint32_t depth = 0;
  UniqueFd event;
  std::deque<Entry> entries;
  bool armed = false;
  bool overrun = false;
  std::map<uint32_t, FakeQueuePair*> queue_pairs;  // by number
};

struct FakeQueuePair {
  enum class State { kInitial, kReady, kError };
  struct Posted {
    uint64_t sequence = 0;  // over all queue pairs
    transport::WorkItem item;
    std::vector<std::byte> inlined;  // its bytes
  };
  FakeOpen* open = nullptr;
  std::shared_ptr<FakeQueue> queue;
  uint32_t id = 0;      // in the fabric
  uint32_t number = 0;  // of its device: others have it, too
  uint32_t work_requests_max = 0;
  uint32_t inline_bytes = 0;
  bool remote_read = false;  // granted to the other end
  bool remote_write = false;
  State state = State::kInitial;
  transport::GidEntry gid;  // its own
  transport::QueuePairAddress from;
  transport::QueuePairAddress to;
  std::deque<Posted> pending;
  uint32_t taken_slots = 0;
  uint32_t silent = 0;  // carried out without a completion since the last one
};

class FakeFabric {
 public:
  enum class Progress {
    kOnPoll,  // Poll carries out what its queue pairs have; where its queue is armed, Post does
    kByStep,
  };

  FakeFabric() = default;
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;
  ~FakeFabric();

  void SetProgress(Progress progress);
  // From now on the queue pairs take turns at random, Poll carries out only a part, and what is
  // written to regions with relaxed ordering shows late and in any order: at a read from the same
  // device of the same kind of memory, as a read of the host's passes nothing on its way to a GPU,
  // when the region or the target's queue pair goes, at random and by ShowLateWrites.
  // (Completions of one queue pair stay in order, as of any reliable connection.)
  void Scramble(uint64_t seed);
  // Carries out one work request; false: there is none.
  bool Step();
  void StepAll();
  void ShowLateWrites();
  size_t late_writes() const;
  // Of all queue pairs, not carried out.
  size_t pending() const;

  // What follows is for the objects of FakeVerbs, under the lock.
  mutable Mutex mutex;
  Condition released;  // a call that was held
  uint32_t NextNumber() REQUIRES(mutex) { return ++last_number_; }
  uint32_t NextKey() REQUIRES(mutex);
  void Add(FakeQueue* queue) REQUIRES(mutex) { queues_[queue->number] = queue; }
  void Remove(FakeQueue* queue) REQUIRES(mutex) { queues_.erase(queue->number); }
  void Add(FakeQueuePair* pair) REQUIRES(mutex);
  void Remove(FakeQueuePair* pair) REQUIRES(mutex);
  void Post(FakeQueuePair& pair, const transport::WorkItem& item) REQUIRES(mutex);
  int Poll(FakeQueue& queue, std::span<transport::WorkCompletion> completions) REQUIRES(mutex);
  // Everything of it and all its queue pairs fail.
  void Break(const FakeDevice& device) REQUIRES(mutex);
  void Detach(const FakeRegion& region) REQUIRES(mutex);
  // After anything that gives armed queues something to do.
  void Kick() REQUIRES(mutex);

 private:
  struct LateWrite {
    const FakeOpen* open = nullptr;  // the target's
    const FakeRegion* region = nullptr;
    uint32_t queue_pair = 0;
    std::byte* to = nullptr;
    std::vector<std::byte> bytes;
  };

  FakeQueuePair* Next(const std::map<uint32_t, FakeQueuePair*>& pairs) REQUIRES(mutex);
  void Run(FakeQueuePair& pair) REQUIRES(mutex);
  transport::WorkStatus Carry(FakeQueuePair& pair, FakeQueuePair::Posted& posted) REQUIRES(mutex);
  FakeQueuePair* PeerOf(const FakeQueuePair& pair) REQUIRES(mutex);
  void Move(const transport::WorkItem& item, std::byte* local, FakeQueuePair& peer,
            const FakeRegion& region) REQUIRES(mutex);
  void Complete(FakeQueuePair& pair, const transport::WorkItem& item, transport::WorkStatus status)
      REQUIRES(mutex);
  void Advance(FakeQueue& queue) REQUIRES(mutex);
  template <typename Predicate>
  void Show(Predicate predicate) REQUIRES(mutex);
  uint64_t Random(uint64_t below) REQUIRES(mutex) { return (*random_)() % below; }

  Progress progress_ GUARDED_BY(mutex) = Progress::kOnPoll;
  std::optional<std::mt19937_64> random_ GUARDED_BY(mutex);
  uint32_t last_number_ GUARDED_BY(mutex) = 16;
  uint32_t last_key_ GUARDED_BY(mutex) = 0;
  uint64_t last_sequence_ GUARDED_BY(mutex) = 0;
  std::map<uint32_t, FakeQueue*> queues_ GUARDED_BY(mutex);           // by number
  std::map<uint32_t, FakeQueuePair*> queue_pairs_ GUARDED_BY(mutex);  // likewise
  std::vector<LateWrite> late_ GUARDED_BY(mutex);
};

}  // namespace gantry::testing
