#include "tests/fakes/fake_verbs.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

#include "lib/base/byte_range.h"
#include "tests/fakes/fake_verbs_objects.h"

namespace gantry::testing {

using transport::Gid;
using transport::GidEntry;
using transport::GidType;
using transport::PortChange;
using transport::QueuePairOptions;
using transport::RegionAccess;
using transport::VerbsCompletionQueue;
using transport::VerbsDevice;
using transport::VerbsLimits;
using transport::VerbsPort;
using transport::VerbsQueuePair;
using transport::VerbsRegion;
using transport::WorkStatus;

namespace {

constexpr uint64_t kPageBytes = 4096;

// Soft-RoCE has a link-local address and the one of its interface.
std::vector<GidEntry> GidsOf(const std::string& netdev, uint32_t number) {
  const auto high = static_cast<uint8_t>(number >> 8);
  const auto low = static_cast<uint8_t>(number);
  const Gid link_local = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, high, low};
  const Gid mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, high, low};
  return {{0, GidType::kRoceV2, link_local, netdev}, {1, GidType::kRoceV2, mapped, netdev}};
}

// Whether this process has all of it, and may write there: what a kernel finds out by pinning it.
bool IsThere(std::span<std::byte> memory, bool writable) {
  auto at = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t end = at + memory.size();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; at < end && std::getline(maps, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, rights) != 3 || to <= at) continue;
    if (from > at || rights[writable ? 1 : 0] == '-') return false;
    at = to;
  }
  return at >= end;
}

// The bytes of a file that stands for a dma-buf, mapped; null, with errno.
std::shared_ptr<std::byte> MapPages(int fd, uint64_t offset, uint64_t length, bool writable) {
  const uint64_t before = offset % kPageBytes;
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* const mapped = ::mmap(nullptr, before + length, protection, MAP_SHARED, fd,
                              static_cast<off_t>(offset - before));
  if (mapped == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(mapped) + before,
          [mapped, before, length](std::byte*) { ::munmap(mapped, before + length); }};
}

}  // namespace

class FakeVerbsDevice final : public VerbsDevice {
 public:
  FakeVerbsDevice(FakeVerbs& host, FakeDevice& device, uint8_t port)
      : host_(host), fabric_(host.fabric_) {
    const MutexLock lock(fabric_.mutex);
    open_->device = &device;
    open_->has_port = port == 1;
    if (open_->has_port) open_->gids = device.gids;
    open_->event = MakeFakeEvent();
    host_.opens_.push_back(open_.get());
  }
  ~FakeVerbsDevice() override {
    const MutexLock lock(fabric_.mutex);
    EXPECT_TRUE(open_->by_local_key.empty()) << "a device goes before its memory regions";
    EXPECT_TRUE(open_->live.completion_queues == 0 && open_->live.queue_pairs == 0)
        << "a device goes before its queues";
    std::erase(host_.opens_, open_.get());
  }

  const std::string& name() const override { return open_->device->options.name; }
  const VerbsLimits& limits() const override { return open_->device->options.limits; }
  Result<VerbsPort> Port() const override {
    const MutexLock lock(fabric_.mutex);
    int failure = FailureOf(*open_->device, FakeCall::kPort);
    if (failure == 0 && !open_->has_port) failure = EINVAL;
    if (failure != 0) return Refuse(*open_->device, "asking for the port", failure);
    return open_->device->options.port;
  }
  std::vector<GidEntry> Gids() const override {
    const MutexLock lock(fabric_.mutex);
    return open_->gids;
  }

  Result<std::unique_ptr<VerbsRegion>> Register(std::span<std::byte> memory,
                                                const RegionAccess& access) override {
    int failure = RefusalOf(FakeCall::kRegister, memory.size(), access);
    if (failure == 0 && !IsThere(memory, access.local_write)) failure = Abandon(EFAULT);
    if (failure != 0) return Refuse(*open_->device, "registering memory", failure);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    const FakeRegion state = {0, 0, memory.data(), address, memory.size(), access};
    return MakeFakeRegion(fabric_, open_, state, nullptr);
  }

  Result<std::unique_ptr<VerbsRegion>> RegisterDmabuf(int fd, uint64_t offset, uint64_t length,
                                                      uint64_t iova,
                                                      const RegionAccess& access) override {
    int failure = RefusalOf(FakeCall::kRegisterDmabuf, length, access);
    struct stat info = {};
    if (failure == 0 && !open_->device->options.dmabuf) failure = Abandon(EOPNOTSUPP);
    if (failure == 0 && ::fstat(fd, &info) != 0) failure = Abandon(errno);
    if (failure == 0 && (offset % kPageBytes != iova % kPageBytes ||
                         !Fits(offset, length, static_cast<uint64_t>(info.st_size)))) {
      failure = Abandon(EINVAL);
    }
    if (failure != 0) return Refuse(*open_->device, "registering a dma-buf", failure);
    auto pages = MapPages(fd, offset, length, access.local_write);
    if (pages == nullptr) return Refuse(*open_->device, "mapping a dma-buf", Abandon(errno));
    const FakeRegion state = {0, 0, pages.get(), iova, length, access, /*is_dma_buf=*/true};
    return MakeFakeRegion(fabric_, open_, state, std::move(pages));
  }

  Result<std::unique_ptr<VerbsCompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    {
      const MutexLock lock(fabric_.mutex);
      int failure = FailureOf(*open_->device, FakeCall::kCreateCompletionQueue);
      if (failure == 0 && (depth == 0 || depth > limits().completions_max)) failure = EINVAL;
      if (failure != 0) return Refuse(*open_->device, "creating a completion queue", failure);
      ++open_->live.completion_queues;
    }
    return MakeFakeCompletionQueue(fabric_, open_, depth);
  }

  Result<std::unique_ptr<VerbsQueuePair>> CreateQueuePair(
      VerbsCompletionQueue& queue, const QueuePairOptions& options) override {
    const std::shared_ptr<FakeQueue> completions = StateOf(queue);
    {
      const MutexLock lock(host_.fabric_.mutex);
      FakeDevice& device = *open_->device;
      int failure = FailureOf(device, FakeCall::kCreateQueuePair);
      if (failure == 0 && (completions->open != open_ || options.work_requests == 0 ||
                           options.work_requests > limits().work_requests_max)) {
        failure = EINVAL;
      }
      if (failure == 0 && host_.LiveOn(device).queue_pairs >= int64_t{limits().queue_pairs_max}) {
        failure = ENOMEM;
      }
      if (failure != 0) return Refuse(device, "creating a queue pair", failure);
      ++open_->live.queue_pairs;
    }
    return MakeFakeQueuePair(fabric_, completions, options);
  }

  int event_fd() const override { return open_->event.get(); }
  PortChange NextEvent() override {
    const MutexLock lock(fabric_.mutex);
    if (open_->changes.empty()) return PortChange::kNone;
    const PortChange change = open_->changes.front();
    open_->changes.pop_front();
    if (open_->changes.empty()) DrainFakeEvent(open_->event);
    return change;
  }

 private:
  // The errno of a registration, or 0: then it is counted.
  int RefusalOf(FakeCall call, uint64_t length, const RegionAccess& access) {
    const MutexLock lock(host_.fabric_.mutex);
    FakeDevice& device = *open_->device;
    if (const int failure = FailureOf(device, call); failure != 0) return failure;
    if (length == 0 || length > limits().region_bytes_max) return EINVAL;
    if (access.remote_write && !access.local_write) return EINVAL;
    if (host_.LiveOn(device).regions >= int64_t{limits().regions_max}) return ENOMEM;
    ++open_->live.regions;
    return 0;
  }
  // Of a registration that was counted.
  int Abandon(int error_number) {
    const MutexLock lock(fabric_.mutex);
    --open_->live.regions;
    return error_number;
  }

  FakeVerbs& host_;
  FakeFabric& fabric_;
  const std::shared_ptr<FakeOpen> open_ = std::make_shared<FakeOpen>();
};

FakeVerbs::FakeVerbs(FakeFabric& fabric, std::vector<FakeDeviceOptions> devices) : fabric_(fabric) {
  const MutexLock lock(fabric_.mutex);
  for (FakeDeviceOptions& options : devices) {
    const uint32_t number = fabric_.NextNumber();
    auto device = std::make_unique<FakeDevice>();
    device->gids = options.gids.empty() ? GidsOf("net-" + options.name, number) : options.gids;
    device->options = std::move(options);
    devices_.emplace(device->options.name, std::move(device));
  }
  devices_.emplace("", std::make_unique<FakeDevice>());
}

FakeVerbs::~FakeVerbs() {
  const MutexLock lock(fabric_.mutex);
  EXPECT_TRUE(opens_.empty()) << "RDMA devices are open when their host goes";
}

Result<std::vector<std::string>> FakeVerbs::Devices() {
  const MutexLock lock(fabric_.mutex);
  FakeDevice& host = At("");
  const int failure = FailureOf(host, FakeCall::kDevices);
  if (failure != 0) return Refuse(host, "listing the RDMA devices", failure);
  std::vector<std::string> names;
  for (const auto& [name, device] : devices_) {
    if (!name.empty() && !device->gone) names.push_back(name);
  }
  return names;
}

Result<std::unique_ptr<VerbsDevice>> FakeVerbs::Open(const std::string& name, uint8_t port) {
  FakeDevice* found = nullptr;
  {
    const MutexLock lock(fabric_.mutex);
    if (name.empty() || !devices_.contains(name) || At(name).gone) {
      return Fail(ErrorCode::kNotFound, "there is no RDMA device '" + name + "'");
    }
    found = &At(name);
    const int failure = FailureOf(*found, FakeCall::kOpen);
    if (failure != 0) return Refuse(*found, "opening it", failure);
  }
  return std::make_unique<FakeVerbsDevice>(*this, *found, port);
}

void FakeVerbs::FailCall(const std::string& device, FakeCall call, int nth, int error_number) {
  const MutexLock lock(fabric_.mutex);
  FakeFailures& failures = At(device).failures[call];
  failures.by_call[failures.calls + nth] = error_number;
}

void FakeVerbs::FailCalls(const std::string& device, FakeCall call, int error_number) {
  const MutexLock lock(fabric_.mutex);
  At(device).failures[call].always = error_number;
}

int FakeVerbs::calls(const std::string& device, FakeCall call) const {
  const MutexLock lock(fabric_.mutex);
  return At(device).failures[call].calls;
}

void FakeVerbs::Hold(const std::string& device, FakeCall call, bool held) {
  const MutexLock lock(fabric_.mutex);
  FakeDevice& found = At(device);
  if (held) {
    found.held.insert(call);
  } else {
    found.held.erase(call);
    fabric_.released.NotifyAll();
  }
}

int FakeVerbs::waiting(const std::string& device) const {
  const MutexLock lock(fabric_.mutex);
  return At(device).waiting;
}

void FakeVerbs::FailWork(const std::string& device, uint64_t nth, WorkStatus status) {
  const MutexLock lock(fabric_.mutex);
  FakeDevice& found = At(device);
  found.failing_work[found.work_requests + nth] = status;
}

void FakeVerbs::SetPort(const std::string& device, bool up) {
  const MutexLock lock(fabric_.mutex);
  FakeDevice& found = At(device);
  found.options.port.active = up;
  SendPortEvent(found, up ? PortChange::kUp : PortChange::kDown);
}

void FakeVerbs::SetGids(const std::string& device, std::vector<GidEntry> gids) {
  const MutexLock lock(fabric_.mutex);
  FakeDevice& found = At(device);
  found.gids = std::move(gids);
  for (FakeOpen* open : opens_) {
    if (open->device == &found && open->has_port) open->gids = found.gids;
  }
}

void FakeVerbs::Unplug(const std::string& device) {
  const MutexLock lock(fabric_.mutex);
  FakeDevice& found = At(device);
  found.gone = true;
  SendPortEvent(found, PortChange::kDeviceGone);
  fabric_.Break(found);
}

FakeLive FakeVerbs::live() const {
  const MutexLock lock(fabric_.mutex);
  FakeLive sum;
  for (const auto& [name, device] : devices_) {
    const FakeLive live = LiveOn(*device);
    sum.opens += live.opens;
    sum.regions += live.regions;
    sum.completion_queues += live.completion_queues;
    sum.queue_pairs += live.queue_pairs;
  }
  return sum;
}

FakeWork FakeVerbs::work(const std::string& device) const {
  const MutexLock lock(fabric_.mutex);
  return At(device).done;
}

FakeDevice& FakeVerbs::At(const std::string& device) const {
  const auto found = devices_.find(device);
  if (found == devices_.end()) {
    ADD_FAILURE() << "the test has no device '" << device << "'";
    return *devices_.at("");
  }
  return *found->second;
}

FakeLive FakeVerbs::LiveOn(const FakeDevice& device) const {
  FakeLive sum;
  for (const FakeOpen* open : opens_) {
    if (open->device != &device) continue;
    sum.opens += open->live.opens;
    sum.regions += open->live.regions;
    sum.completion_queues += open->live.completion_queues;
    sum.queue_pairs += open->live.queue_pairs;
  }
  return sum;
}

void FakeVerbs::SendPortEvent(const FakeDevice& device, PortChange change) {
  for (FakeOpen* open : opens_) {
    if (open->device != &device) continue;
    open->changes.push_back(change);
    MakeReadable(open->event);
  }
}

}  // namespace gantry::testing
