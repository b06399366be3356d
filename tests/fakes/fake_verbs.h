// The RDMA devices of one host in a test, over plain memory: with limits, exact bounds, keys and
// access, failures on demand. Hosts on one FakeFabric reach each other. Objects that go in a wrong
// order, or not at all, fail the test. Thread-safe; outlives what it opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_fabric.h"

namespace gantry::testing {

// As soft-RoCE does: a work request with a wrong local key, range or right ends kLocalProtection (a
// write from a key of nothing: kLocalQueuePair) and its queue pair fails; one that the target
// refuses moves no byte, ends kRemoteAccess, or kRemoteInvalidRequest where its queue pair grants
// no such thing, and both fail; what follows in a queue pair that failed is taken, and flushed.
// Unlike it, and as other devices do, one longer than a port takes ends kLocalLength, of the
// target's kRemoteInvalidRequest. With no peer that listens (gone, failed, not connected to this
// one, either port down) it ends kRetryExceeded at once. An unsignalled one that succeeds says
// nothing, and its place comes free when a later completion of the queue pair is polled; all that
// fail say so. What is inlined is read when it is posted, with no look at its key, and refused for
// a read, for memory of a dma-buf and where it is too long. A queue that gets more completions than
// it is deep breaks, with its queue pairs.
class FakeVerbs final : public transport::Verbs {
 public:
  FakeVerbs(FakeFabric& fabric, std::vector<FakeDeviceOptions> devices);
  ~FakeVerbs() override;

  Result<std::vector<std::string>> Devices() override;
  Result<std::unique_ptr<transport::VerbsDevice>> Open(const std::string& name,
                                                       uint8_t port) override;

  // The n-th call from now on (1: the next) fails with this errno. Devices() is a call of "".
  void FailCall(const std::string& device, FakeCall call, int nth, int error_number);
  // Every call from now on; 0: none any more.
  void FailCalls(const std::string& device, FakeCall call, int error_number);
  int calls(const std::string& device, FakeCall call) const;
  // kFail, kDestroyQueuePair and kDeregister do nothing and do not return from now on; or do again,
  // and those that wait.
  void Hold(const std::string& device, FakeCall call, bool held);
  int waiting(const std::string& device) const;  // calls that are held
  // The n-th work request from now on that this device carries out.
  void FailWork(const std::string& device, uint64_t nth, transport::WorkStatus status);
  void SetPort(const std::string& device, bool up);
  // Addresses of its interface come and go.
  void SetGids(const std::string& device, std::vector<transport::GidEntry> gids);
  // Its queue pairs fail, and all calls. It is listed no more.
  void Unplug(const std::string& device);

  FakeLive live() const;  // of all devices
  FakeWork work(const std::string& device) const;

 private:
  FakeDevice& At(const std::string& device) const REQUIRES(fabric_.mutex);
  FakeLive LiveOn(const FakeDevice& device) const REQUIRES(fabric_.mutex);
  void SendPortEvent(const FakeDevice& device, transport::PortChange change)
      REQUIRES(fabric_.mutex);

  FakeFabric& fabric_;
  std::map<std::string, std::unique_ptr<FakeDevice>> devices_;  // what it holds: fabric_.mutex
  std::vector<FakeOpen*> opens_ GUARDED_BY(fabric_.mutex);
  friend class FakeVerbsDevice;
};

}  // namespace gantry::testing
