// Two hosts with fake RDMA devices, and queue pairs between any two of them, each end with memory
// of its own. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_verbs.h"

namespace gantry::testing {

inline constexpr transport::RegionAccess kFullAccess = {true, true, true, false};

// One end of a connection.
struct FakeEnd {
  static constexpr size_t kBytes = 16384;

  explicit FakeEnd(uint8_t fill) : memory(kBytes, std::byte{fill}) {}

  transport::QueuePairAddress Address() const {
    const transport::VerbsPort port = *device->Port();
    return {pair->number(), 1000 + pair->number(), 0, device->Gids()[1].gid, port.mtu, 16};
  }
  uint64_t at(size_t offset) const { return reinterpret_cast<uintptr_t>(&memory[0]) + offset; }
  bool Holds(size_t offset, size_t length, uint8_t value) const {
    for (size_t i = 0; i < length; ++i) {
      if (memory[offset + i] != std::byte{value}) return false;
    }
    return true;
  }
  // All completions that there are now.
  std::vector<transport::WorkCompletion> Poll() const {
    std::vector<transport::WorkCompletion> all;
    transport::WorkCompletion each;
    while (queue->Poll({&each, 1}) == 1) all.push_back(each);
    return all;
  }

  std::vector<std::byte> memory;
  std::unique_ptr<transport::VerbsDevice> device;
  std::unique_ptr<transport::VerbsRegion> region;  // of all the memory
  std::unique_ptr<transport::VerbsCompletionQueue> queue;
  std::unique_ptr<transport::VerbsQueuePair> pair;
};

class FakeVerbsFixture : public ::testing::Test {
 protected:
  static transport::QueuePairOptions Options() {
    transport::QueuePairOptions options;
    options.gid_index = 1;
    options.work_requests = 16;
    options.remote_read = options.remote_write = true;
    return options;
  }
  static std::unique_ptr<FakeEnd> MakeEnd(FakeVerbs& host, const std::string& device, uint8_t fill,
                                          const transport::RegionAccess& access = kFullAccess) {
    auto end = std::make_unique<FakeEnd>(fill);
    end->device = *host.Open(device, 1);
    end->region = *end->device->Register(end->memory, access);
    end->queue = *end->device->CreateCompletionQueue(64);
    end->pair = *end->device->CreateQueuePair(*end->queue, Options());
    return end;
  }
  static void Connect(const FakeEnd& a, const FakeEnd& b) {
    ASSERT_TRUE(a.pair->Connect(a.Address(), b.Address(), Options()));
    ASSERT_TRUE(b.pair->Connect(b.Address(), a.Address(), Options()));
  }
  // Between `length` bytes at `from` in one and at `to` in the other.
  static transport::WorkItem Item(uint64_t id, transport::WorkOperation operation,
                                  const FakeEnd& local, size_t from, uint32_t length,
                                  const FakeEnd& remote, size_t to) {
    return {id,
            operation,
            true,
            local.at(from),
            local.region->local_key(),
            length,
            remote.at(to),
            remote.region->remote_key()};
  }
  static transport::WorkItem Write(uint64_t id, const FakeEnd& local, size_t from, uint32_t length,
                                   const FakeEnd& remote, size_t to) {
    return Item(id, transport::WorkOperation::kWrite, local, from, length, remote, to);
  }
  static transport::WorkItem Read(uint64_t id, const FakeEnd& local, size_t from, uint32_t length,
                                  const FakeEnd& remote, size_t to) {
    return Item(id, transport::WorkOperation::kRead, local, from, length, remote, to);
  }
  static size_t Post(const FakeEnd& end, const std::vector<transport::WorkItem>& items,
                     int* error_number = nullptr) {
    int ignored = 0;
    return end.pair->Post(items, error_number == nullptr ? &ignored : error_number);
  }

  FakeFabric fabric_;
  FakeVerbs one_{fabric_, {{.name = "a0"}, {.name = "a1"}}};
  FakeVerbs two_{fabric_, {{.name = "b0"}}};
};

}  // namespace gantry::testing
