#include "tests/fakes/fake_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/base/byte_range.h"
#include "tests/fakes/fake_verbs_objects.h"

namespace gantry::testing {
namespace {

using transport::QueuePairAddress;
using transport::RegionAccess;
using transport::WorkCompletion;
using transport::WorkItem;
using transport::WorkOperation;
using transport::WorkStatus;

// The bytes, or nothing where the key names no region that has all of them.
std::byte* Find(const std::map<uint32_t, FakeRegion*>& regions, uint32_t key, uint64_t address,
                uint64_t length, const FakeRegion** region) {
  const auto found = regions.find(key);
  if (found == regions.end()) return nullptr;
  *region = found->second;
  const FakeRegion& candidate = *found->second;
  if (address < candidate.address || !Fits(address - candidate.address, length, candidate.length)) {
    return nullptr;
  }
  return candidate.memory + (address - candidate.address);
}

bool IsUp(const FakeDevice& device) { return !device.gone && device.options.port.active; }

bool IsTooLong(const WorkItem& item, const FakeDevice& device) {
  const uint32_t most = device.options.port.message_bytes_max;
  return most != 0 && item.length > most;
}

// Either end was told what the other one said of itself.
bool Matches(const FakeQueuePair& a, const FakeQueuePair& b) {
  return a.to.number == b.number && a.to.gid == b.gid.gid &&
         a.to.packet_sequence == b.from.packet_sequence;
}

bool Reaches(const FakeQueuePair& a, const FakeQueuePair& b) {
  return a.gid.prefix_length < 0 || b.gid.prefix_length < 0 || InSubnetOf(a.gid, b.gid.gid);
}

}  // namespace

FakeFabric::~FakeFabric() {
  EXPECT_TRUE(queues_.empty() && queue_pairs_.empty()) << "the fabric goes before its devices";
}

void FakeFabric::SetProgress(Progress progress) {
  const MutexLock lock(mutex);
  progress_ = progress;
  Kick();
}

void FakeFabric::Scramble(uint64_t seed) {
  const MutexLock lock(mutex);
  random_.emplace(seed);
}

bool FakeFabric::Step() {
  const MutexLock lock(mutex);
  FakeQueuePair* const pair = Next(queue_pairs_);
  if (pair != nullptr) Run(*pair);
  return pair != nullptr;
}

void FakeFabric::StepAll() {
  while (Step()) {
  }
}

void FakeFabric::ShowLateWrites() {
  const MutexLock lock(mutex);
  Show([](const LateWrite&) { return true; });
}

size_t FakeFabric::late_writes() const {
  const MutexLock lock(mutex);
  return late_.size();
}

size_t FakeFabric::pending() const {
  const MutexLock lock(mutex);
  size_t count = 0;
  for (const auto& [number, pair] : queue_pairs_) count += pair->pending.size();
  return count;
}

// No two of all devices are equal, and none follows from another one.
uint32_t FakeFabric::NextKey() { return ++last_key_ * 0x9e3779b1U; }

void FakeFabric::Add(FakeQueuePair* pair) {
  queue_pairs_[pair->id] = pair;
  pair->queue->queue_pairs[pair->number] = pair;
}

// Its completions stay in the queue, as soft-RoCE leaves them there.
void FakeFabric::Remove(FakeQueuePair* pair) {
  const uint32_t id = pair->id;
  queue_pairs_.erase(id);
  pair->queue->queue_pairs.erase(pair->number);
  Show([id](const LateWrite& write) { return write.queue_pair == id; });
}

void FakeFabric::Post(FakeQueuePair& pair, const WorkItem& item) {
  FakeQueuePair::Posted posted{++last_sequence_, item, {}};
  if (item.inlined) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(item.local_address);
    posted.inlined.assign(bytes, bytes + item.length);
  }
  pair.pending.push_back(std::move(posted));
  ++pair.taken_slots;
}

int FakeFabric::Poll(FakeQueue& queue, std::span<WorkCompletion> completions) {
  if (progress_ == Progress::kOnPoll) Advance(queue);
  if (queue.overrun) return -EIO;
  const size_t count = std::min(completions.size(), queue.entries.size());
  for (size_t i = 0; i < count; ++i) {
    const FakeQueue::Entry entry = queue.entries.front();
    queue.entries.pop_front();
    completions[i] = entry.completion;
    const auto pair = queue.queue_pairs.find(entry.completion.queue_pair);
    if (pair != queue.queue_pairs.end()) pair->second->taken_slots -= entry.slots;
  }
  return static_cast<int>(count);
}

void FakeFabric::Break(const FakeDevice& device) {
  for (const auto& [number, pair] : queue_pairs_) {
    if (pair->open->device == &device) pair->state = FakeQueuePair::State::kError;
  }
  Kick();
}

// Deregistering waits for what the device still has of it.
void FakeFabric::Detach(const FakeRegion& region) {
  Show([&region](const LateWrite& write) { return write.region == &region; });
}

void FakeFabric::Kick() {
  if (progress_ != Progress::kOnPoll) return;
  for (const auto& [number, queue] : queues_) {
    while (queue->armed) {
      FakeQueuePair* const pair = Next(queue->queue_pairs);
      if (pair == nullptr) break;
      Run(*pair);
    }
  }
}

FakeQueuePair* FakeFabric::Next(const std::map<uint32_t, FakeQueuePair*>& pairs) {
  std::vector<FakeQueuePair*> waiting;
  for (const auto& [number, pair] : pairs) {
    if (!pair->pending.empty()) waiting.push_back(pair);
  }
  if (waiting.empty()) return nullptr;
  if (random_) return waiting[Random(waiting.size())];
  return *std::min_element(waiting.begin(), waiting.end(), [](const auto* a, const auto* b) {
    return a->pending.front().sequence < b->pending.front().sequence;
  });
}

// Until nothing waits, or, at random, until there is at least one completion: who polls nothing may
// sleep.
void FakeFabric::Advance(FakeQueue& queue) {
  uint64_t enough = random_ ? Random(4) : UINT64_MAX;
  while (enough != 0 || queue.entries.empty()) {
    FakeQueuePair* const pair = Next(queue.queue_pairs);
    if (pair == nullptr) return;
    Run(*pair);
    if (enough != 0) --enough;
  }
}

void FakeFabric::Run(FakeQueuePair& pair) {
  FakeQueuePair::Posted posted = std::move(pair.pending.front());
  const WorkItem& item = posted.item;
  pair.pending.pop_front();
  WorkStatus status = WorkStatus::kFlushed;
  if (pair.state == FakeQueuePair::State::kReady) {
    status = Carry(pair, posted);
    if (status != WorkStatus::kSuccess) pair.state = FakeQueuePair::State::kError;
  }
  Complete(pair, item, status);
  if (random_ && !late_.empty() && Random(4) == 0) {
    const std::byte* const to = late_[Random(late_.size())].to;
    Show([to](const LateWrite& write) { return write.to == to; });
  }
}

WorkStatus FakeFabric::Carry(FakeQueuePair& pair, FakeQueuePair::Posted& posted) {
  const WorkItem& item = posted.item;
  FakeDevice& device = *pair.open->device;
  const auto failing = device.failing_work.find(++device.work_requests);
  if (failing != device.failing_work.end()) return failing->second;
  if (IsTooLong(item, device)) return WorkStatus::kLocalLength;

  const bool reads = item.operation == WorkOperation::kRead;
  const FakeRegion* region = nullptr;
  std::byte* local = posted.inlined.data();
  if (!item.inlined) {
    local = Find(pair.open->by_local_key, item.local_key, item.local_address, item.length, &region);
    if (region == nullptr && !reads) return WorkStatus::kLocalQueuePair;
    if (local == nullptr || (reads && !region->access.local_write)) {
      return WorkStatus::kLocalProtection;
    }
  }
  FakeQueuePair* const peer = PeerOf(pair);
  if (peer == nullptr || !IsUp(device) || !IsUp(*peer->open->device)) {
    return WorkStatus::kRetryExceeded;
  }
  if (IsTooLong(item, *peer->open->device) || !(reads ? peer->remote_read : peer->remote_write)) {
    peer->state = FakeQueuePair::State::kError;
    return WorkStatus::kRemoteInvalidRequest;
  }
  const std::byte* const remote =
      Find(peer->open->by_remote_key, item.remote_key, item.remote_address, item.length, &region);
  if (remote == nullptr || !(reads ? region->access.remote_read : region->access.remote_write)) {
    peer->state = FakeQueuePair::State::kError;
    return WorkStatus::kRemoteAccess;
  }
  Move(item, local, *peer, *region);
  ++(reads ? device.done.reads : device.done.writes);
  if (item.inlined) ++device.done.inlined;
  device.done.bytes += item.length;
  return WorkStatus::kSuccess;
}

FakeQueuePair* FakeFabric::PeerOf(const FakeQueuePair& pair) {
  for (const auto& [number, peer] : queue_pairs_) {
    if (Matches(pair, *peer) && Matches(*peer, pair) && Reaches(pair, *peer)) {
      return peer->state == FakeQueuePair::State::kReady ? peer : nullptr;
    }
  }
  return nullptr;
}

void FakeFabric::Move(const WorkItem& item, std::byte* local, FakeQueuePair& peer,
                      const FakeRegion& region) {
  std::byte* const remote = region.memory + (item.remote_address - region.address);
  if (item.operation == WorkOperation::kRead) {
    // A device's reads of memory do not pass its writes to it.
    const FakeDevice* const device = peer.open->device;
    Show([device, &region](const LateWrite& write) {
      return write.open->device == device && write.region->is_dma_buf == region.is_dma_buf;
    });
    std::memmove(local, remote, item.length);
  } else if (random_ && region.access.relaxed_ordering) {
    late_.push_back({peer.open, &region, peer.id, remote, {local, local + item.length}});
  } else {
    std::memmove(remote, local, item.length);
  }
}

void FakeFabric::Complete(FakeQueuePair& pair, const WorkItem& item, WorkStatus status) {
  if (status == WorkStatus::kSuccess && !item.signalled) {
    ++pair.silent;
    return;
  }
  FakeQueue& queue = *pair.queue;
  if (queue.entries.size() == queue.depth) {
    queue.overrun = true;
    for (auto& [number, each] : queue.queue_pairs) each->state = FakeQueuePair::State::kError;
  } else {
    const uint32_t slots = 1 + std::exchange(pair.silent, 0);
    queue.entries.push_back({{item.id, status, pair.number, 0}, slots});
  }
  if (std::exchange(queue.armed, false)) MakeReadable(queue.event);
}

template <typename Predicate>
void FakeFabric::Show(Predicate predicate) {
  std::vector<LateWrite> shown;
  std::vector<LateWrite> kept;
  for (LateWrite& write : late_) (predicate(write) ? shown : kept).push_back(std::move(write));
  if (random_) std::shuffle(shown.begin(), shown.end(), *random_);
  for (const LateWrite& write : shown) {
    std::memcpy(write.to, write.bytes.data(), write.bytes.size());
  }
  late_ = std::move(kept);
}

}  // namespace gantry::testing
