// Ends of connections over any Verbs, each with a device, a region and queues of its own, for tests
// to post work by hand. Used by one thread at a time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/poll_fd.h"
#include "sidecar/transport/rdma/verbs/verbs.h"

namespace gantry::testing {

inline constexpr transport::RegionAccess kFullAccess = {true, true, true, false};

struct VerbsEnd {
  static constexpr size_t kBytes = 16384;

  explicit VerbsEnd(uint8_t fill) : memory(kBytes, std::byte{fill}) {}

  transport::QueuePairAddress Address() const { return AddressOf(*pair); }
  // Of another queue pair of this end.
  transport::QueuePairAddress AddressOf(const transport::VerbsQueuePair& one) const {
    const transport::VerbsPort port = *device->Port();
    transport::QueuePairAddress address;
    address.number = one.number();
    address.packet_sequence = 1000 + one.number() % 1000;
    address.lid = port.lid;
    address.mtu = port.mtu;
    address.reads_max = std::min(device->limits().reads_max, 16U);
    for (const transport::GidEntry& entry : device->Gids()) {
      if (entry.index == options.gid_index) address.gid = entry.gid;
    }
    return address;
  }
  uint64_t at(size_t offset) const { return reinterpret_cast<uintptr_t>(&memory[0]) + offset; }
  bool Holds(size_t offset, size_t length, uint8_t value) const {
    const auto begin = memory.begin() + static_cast<ptrdiff_t>(offset);
    return std::all_of(begin, begin + static_cast<ptrdiff_t>(length),
                       [value](std::byte each) { return each == std::byte{value}; });
  }
  bool HoldsOnly(uint8_t value) const { return Holds(0, kBytes, value); }
  // All completions that there are now.
  std::vector<transport::WorkCompletion> Poll() const {
    std::vector<transport::WorkCompletion> all;
    transport::WorkCompletion each;
    while (queue->Poll({&each, 1}) == 1) all.push_back(each);
    return all;
  }
  // So many, or more that came with them; fewer when they do not come within five seconds.
  std::vector<transport::WorkCompletion> Await(size_t count) const {
    const TimePoint limit = Clock::now() + milliseconds(5'000);
    std::vector<transport::WorkCompletion> all = Poll();
    while (all.size() < count && Clock::now() < limit) {
      ::usleep(100);
      for (const transport::WorkCompletion& each : Poll()) all.push_back(each);
    }
    return all;
  }

  std::vector<std::byte> memory;
  std::unique_ptr<transport::VerbsDevice> device;
  transport::QueuePairOptions options;
  std::unique_ptr<transport::VerbsRegion> region;  // of all the memory
  std::unique_ptr<transport::VerbsCompletionQueue> queue;
  std::unique_ptr<transport::VerbsQueuePair> pair;
};

inline bool IsReadable(int fd) { return AwaitInput(fd, Clock::now()); }

inline auto Completed(uint64_t id, transport::WorkStatus status) {
  return ::testing::AllOf(::testing::Field(&transport::WorkCompletion::id, id),
                          ::testing::Field(&transport::WorkCompletion::status, status));
}

class VerbsEnds : public ::testing::Test {
 protected:
  static constexpr uint32_t kRoom = 16;  // for work requests, of each end's queue pair

  static transport::QueuePairOptions OptionsOf(const transport::VerbsDevice& device) {
    transport::QueuePairOptions options;
    options.remote_read = options.remote_write = true;
    options.work_requests = kRoom;
    options.retries = 6;  // to some devices 7 is for ever
    const auto gid = transport::ChooseGid(device.Gids(), {});
    EXPECT_TRUE(gid) << gid.error().message;
    if (gid) options.gid_index = gid->index;
    return options;
  }
  static std::unique_ptr<VerbsEnd> MakeEnd(transport::Verbs& host, const std::string& device,
                                           uint8_t fill,
                                           const transport::RegionAccess& access = kFullAccess) {
    auto end = std::make_unique<VerbsEnd>(fill);
    end->device = *host.Open(device, 1);
    end->options = OptionsOf(*end->device);
    end->region = *end->device->Register(end->memory, access);
    end->queue = *end->device->CreateCompletionQueue(64);
    end->pair = *end->device->CreateQueuePair(*end->queue, end->options);
    return end;
  }
  static void Connect(const VerbsEnd& a, const VerbsEnd& b) {
    const Status one = a.pair->Connect(a.Address(), b.Address(), a.options);
    ASSERT_TRUE(one) << one.error().message;
    const Status other = b.pair->Connect(b.Address(), a.Address(), b.options);
    ASSERT_TRUE(other) << other.error().message;
  }
  // Between `length` bytes at `from` in one and at `to` in the other.
  static transport::WorkItem Item(uint64_t id, transport::WorkOperation operation,
                                  const VerbsEnd& local, size_t from, uint32_t length,
                                  const VerbsEnd& remote, size_t to) {
    return {id,
            operation,
            true,
            local.at(from),
            local.region->local_key(),
            length,
            remote.at(to),
            remote.region->remote_key()};
  }
  static transport::WorkItem Write(uint64_t id, const VerbsEnd& local, size_t from, uint32_t length,
                                   const VerbsEnd& remote, size_t to) {
    return Item(id, transport::WorkOperation::kWrite, local, from, length, remote, to);
  }
  static transport::WorkItem Read(uint64_t id, const VerbsEnd& local, size_t from, uint32_t length,
                                  const VerbsEnd& remote, size_t to) {
    return Item(id, transport::WorkOperation::kRead, local, from, length, remote, to);
  }
  static transport::WorkItem Silent(transport::WorkItem item) {
    item.signalled = false;
    return item;
  }
  static size_t Post(const VerbsEnd& end, const std::vector<transport::WorkItem>& items,
                     int* error_number = nullptr) {
    int ignored = 0;
    return end.pair->Post(items, error_number == nullptr ? &ignored : error_number);
  }
};

}  // namespace gantry::testing
