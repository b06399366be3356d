#include "tests/fakes/fake_verbs_objects.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/rdma/verbs/verbs_error.h"

namespace gantry::testing {

using transport::QueuePairAddress;
using transport::QueuePairOptions;
using transport::ReadsSent;
using transport::VerbsCompletionQueue;
using transport::VerbsError;
using transport::VerbsQueuePair;
using transport::VerbsRegion;
using transport::WorkCompletion;
using transport::WorkItem;
using transport::WorkOperation;

namespace {

constexpr uint32_t kInlineBytesMin = 16;  // that soft-RoCE takes anyhow

// Until the test lets it go on. Under the fabric's lock, which others have meanwhile.
void AwaitRelease(FakeFabric& fabric, FakeDevice& device, FakeCall call, MutexLock& lock) {
  ++device.waiting;
  while (device.held.contains(call)) fabric.released.Wait(lock);
  --device.waiting;
}

class Region final : public VerbsRegion {
 public:
  Region(FakeFabric& fabric, std::shared_ptr<FakeOpen> open, const FakeRegion& state,
         std::shared_ptr<const void> memory)
      : fabric_(fabric), open_(std::move(open)), state_(state), memory_(std::move(memory)) {
    const MutexLock lock(fabric_.mutex);
    state_.local_key = fabric_.NextKey();
    state_.remote_key = fabric_.NextKey();
    open_->by_local_key[state_.local_key] = &state_;
    open_->by_remote_key[state_.remote_key] = &state_;
  }
  ~Region() override {
    if (registered_) {
      if (const Status done = Deregister(); !done) {
        log::Error("a memory region stays registered", {{"why", done.error()}});
      }
    }
  }
  uint32_t local_key() const override { return state_.local_key; }
  uint32_t remote_key() const override { return state_.remote_key; }
  // What a failure leaves behind is counted, but not reached: its memory may go.
  Status Deregister() override {
    MutexLock lock(fabric_.mutex);
    EXPECT_TRUE(std::exchange(registered_, false)) << "a region is deregistered twice";
    FakeDevice& device = *open_->device;
    AwaitRelease(fabric_, device, FakeCall::kDeregister, lock);
    fabric_.Detach(state_);
    open_->by_local_key.erase(state_.local_key);
    open_->by_remote_key.erase(state_.remote_key);
    const int failure = FailureOf(device, FakeCall::kDeregister);
    if (failure != 0 && !device.gone) return Refuse(device, "deregistering", failure);
    --open_->live.regions;
    return {};
  }

 private:
  FakeFabric& fabric_;
  const std::shared_ptr<FakeOpen> open_;
  FakeRegion state_;
  const std::shared_ptr<const void> memory_;
  bool registered_ = true;
};

class CompletionQueue final : public VerbsCompletionQueue {
 public:
  CompletionQueue(FakeFabric& fabric, std::shared_ptr<FakeOpen> open, uint32_t depth)
      : fabric_(fabric) {
    const MutexLock lock(fabric_.mutex);
    state_->open = std::move(open);
    state_->number = fabric_.NextNumber();
    state_->depth = depth;
    state_->event = MakeFakeEvent();
    fabric_.Add(state_.get());
  }
  ~CompletionQueue() override {
    const MutexLock lock(fabric_.mutex);
    EXPECT_TRUE(state_->queue_pairs.empty()) << "a completion queue goes before its queue pairs";
    fabric_.Remove(state_.get());
    --state_->open->live.completion_queues;
  }
  int Poll(std::span<WorkCompletion> completions) override {
    const MutexLock lock(fabric_.mutex);
    const int failure = FailureOf(*state_->open->device, FakeCall::kPoll);
    if (failure != 0 && failure != ENODEV) return -failure;
    return fabric_.Poll(*state_, completions);
  }
  Status Arm() override {
    const MutexLock lock(fabric_.mutex);
    FakeDevice& device = *state_->open->device;
    const int failure = FailureOf(device, FakeCall::kArm);
    if (failure != 0) return Refuse(device, "arming a completion queue", failure);
    state_->armed = true;
    fabric_.Kick();
    return {};
  }
  int fd() const override {
    const MutexLock lock(fabric_.mutex);
    const int failure = FailureOf(*state_->open->device, FakeCall::kEvents);
    return failure != 0 && failure != ENODEV ? -1 : state_->event.get();
  }
  void TakeEvents() override { DrainFakeEvent(state_->event); }

  const std::shared_ptr<FakeQueue>& state() { return state_; }

 private:
  FakeFabric& fabric_;
  const std::shared_ptr<FakeQueue> state_ = std::make_shared<FakeQueue>();
};

class QueuePair final : public VerbsQueuePair {
 public:
  QueuePair(FakeFabric& fabric, std::shared_ptr<FakeQueue> queue, const QueuePairOptions& options)
      : fabric_(fabric) {
    const MutexLock lock(fabric_.mutex);
    state_.open = queue->open.get();
    state_.queue = std::move(queue);
    state_.id = fabric_.NextNumber();
    state_.number = ++state_.open->device->last_queue_pair;
    state_.work_requests_max = options.work_requests;
    const uint32_t most = state_.open->device->options.inline_bytes_max;
    const uint32_t least = std::min(most, kInlineBytesMin);
    state_.inline_bytes =
        options.inline_bytes > most ? least : std::max(options.inline_bytes, least);
    fabric_.Add(&state_);
  }
  ~QueuePair() override {
    MutexLock lock(fabric_.mutex);
    AwaitRelease(fabric_, *state_.open->device, FakeCall::kDestroyQueuePair, lock);
    fabric_.Remove(&state_);
    --state_.open->live.queue_pairs;
  }
  uint32_t number() const override { return state_.number; }
  uint32_t inline_bytes() const override { return state_.inline_bytes; }

  Status Connect(const QueuePairAddress& from, const QueuePairAddress& to,
                 const QueuePairOptions& options) override {
    const MutexLock lock(fabric_.mutex);
    FakeDevice& device = *state_.open->device;
    int failure = FailureOf(device, FakeCall::kConnect);
    const auto& gids = state_.open->gids;
    const auto gid = std::find_if(gids.begin(), gids.end(), [&](const auto& entry) {
      return entry.index == options.gid_index;
    });
    if (state_.state != FakeQueuePair::State::kInitial || gid == gids.end() ||
        from.packet_sequence >> 24 != 0 || to.packet_sequence >> 24 != 0 ||
        from.reads_max > device.options.limits.reads_max ||
        ReadsSent(options, to) > device.options.limits.reads_sent_max) {
      failure = failure == 0 ? EINVAL : failure;
    }
    if (failure != 0) return Refuse(device, "connecting a queue pair", failure);
    state_.gid = *gid;
    state_.from = from;
    state_.to = to;
    state_.remote_read = options.remote_read;
    state_.remote_write = options.remote_write;
    state_.state = FakeQueuePair::State::kReady;
    return {};
  }

  size_t Post(std::span<const WorkItem> items, int* error_number) override {
    const MutexLock lock(fabric_.mutex);
    *error_number = 0;
    size_t taken = 0;
    for (const WorkItem& item : items) {
      *error_number = FailureOf(*state_.open->device, FakeCall::kPost);
      if (state_.state == FakeQueuePair::State::kInitial) *error_number = EINVAL;
      if (item.inlined && !TakesInline(item)) *error_number = EINVAL;
      if (*error_number == 0 && state_.taken_slots == state_.work_requests_max) {
        *error_number = ENOMEM;
      }
      if (*error_number != 0) break;
      fabric_.Post(state_, item);
      ++taken;
    }
    fabric_.Kick();
    return taken;
  }

  Status Fail() override {
    MutexLock lock(fabric_.mutex);
    FakeDevice& device = *state_.open->device;
    AwaitRelease(fabric_, device, FakeCall::kFail, lock);
    int failure = FailureOf(device, FakeCall::kFail);
    if (failure == 0 && state_.state == FakeQueuePair::State::kInitial) failure = EINVAL;
    if (failure != 0) return Refuse(device, "failing a queue pair", failure);
    state_.state = FakeQueuePair::State::kError;
    fabric_.Kick();
    return {};
  }

 private:
  // A processor finds a region's bytes where they are mapped, which those of a dma-buf are not.
  bool TakesInline(const WorkItem& item) const {
    if (item.operation != WorkOperation::kWrite || item.length > state_.inline_bytes) return false;
    const auto region = state_.open->by_local_key.find(item.local_key);
    return region == state_.open->by_local_key.end() ||
           region->second->address == reinterpret_cast<uintptr_t>(region->second->memory);
  }

  FakeFabric& fabric_;
  FakeQueuePair state_;
};

}  // namespace

int FailureOf(FakeDevice& device, FakeCall call) {
  FakeFailures& failures = device.failures[call];
  ++failures.calls;
  if (device.gone) return ENODEV;
  if (failures.always != 0) return failures.always;
  const auto planned = failures.by_call.find(failures.calls);
  return planned == failures.by_call.end() ? 0 : planned->second;
}

tl::unexpected<Error> Refuse(const FakeDevice& device, std::string_view what, int error_number) {
  return Fail(VerbsError(device.options.name, what, error_number));
}

UniqueFd MakeFakeEvent() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void MakeReadable(const UniqueFd& event) {
  const uint64_t one = 1;
  EXPECT_EQ(::write(event.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

void DrainFakeEvent(const UniqueFd& event) {
  uint64_t count = 0;
  while (::read(event.get(), &count, sizeof(count)) > 0) {
  }
}

std::unique_ptr<VerbsRegion> MakeFakeRegion(FakeFabric& fabric, std::shared_ptr<FakeOpen> open,
                                            const FakeRegion& state,
                                            std::shared_ptr<const void> memory) {
  return std::make_unique<Region>(fabric, std::move(open), state, std::move(memory));
}

std::unique_ptr<VerbsCompletionQueue> MakeFakeCompletionQueue(FakeFabric& fabric,
                                                              std::shared_ptr<FakeOpen> open,
                                                              uint32_t depth) {
  return std::make_unique<CompletionQueue>(fabric, std::move(open), depth);
}

std::shared_ptr<FakeQueue> StateOf(VerbsCompletionQueue& queue) {
  return dynamic_cast<CompletionQueue&>(queue).state();
}

std::unique_ptr<VerbsQueuePair> MakeFakeQueuePair(FakeFabric& fabric,
                                                  std::shared_ptr<FakeQueue> queue,
                                                  const QueuePairOptions& options) {
  return std::make_unique<QueuePair>(fabric, std::move(queue), options);
}

}  // namespace gantry::testing
