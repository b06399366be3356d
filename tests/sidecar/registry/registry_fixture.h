// A registry over a mapper that counts, with one workload, and short ways to hand memory over and
// to write registrations. Used by one thread at a time.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/registry/buffer_registry.h"
#include "tests/fakes/counting_mapper.h"

namespace gantry::registry {

constexpr uint64_t kMiB = 1 << 20;

inline TimePoint Soon() { return Clock::now() + milliseconds(20); }
inline TimePoint Later() { return Clock::now() + milliseconds(20'000); }

inline UniqueFd MakeMemfd(uint64_t bytes, int seals = F_SEAL_SHRINK) {
  UniqueFd fd(::memfd_create("gantry-registry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// Another description of the same file, open for reading only.
inline UniqueFd ReopenReadOnly(const UniqueFd& fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

inline int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// Records what it was told, and answers with the peers it was given: those of all buffers, or of
// one.
class FakePeers final : public RevocationSink {
 public:
  std::vector<std::vector<PeerRelease>> Revoke(
      const std::vector<std::shared_ptr<const Buffer>>& buffers, TimePoint) override {
    {
      const MutexLock lock(mutex);
      calls.push_back(buffers.size());
      for (const auto& buffer : buffers) told.push_back(buffer->description().name);
    }
    if (on_revoke) on_revoke(*buffers.front());
    std::vector<std::vector<PeerRelease>> answer;
    for (const auto& buffer : buffers) {
      const auto own = unconfirmed_of.find(buffer->description().name);
      answer.push_back(settled);
      for (const std::string& name : own == unconfirmed_of.end() ? unconfirmed : own->second) {
        answer.back().push_back({name, 7, wire::Path::kShm, PeerOutcome::kHolding});
      }
    }
    return answer;
  }

  Mutex mutex;  // of what Revoke writes
  std::vector<size_t> calls;
  std::vector<std::string> told;
  std::vector<PeerRelease> settled;
  std::vector<std::string> unconfirmed;
  std::map<std::string, std::vector<std::string>> unconfirmed_of;  // name of a buffer -> peers
  std::function<void(const Buffer&)> on_revoke;
};

class RegistryFixture : public ::testing::Test {
 protected:
  RegistryFixture() : RegistryFixture(RegistryLimits{}) {}
  explicit RegistryFixture(RegistryLimits limits)
      : workloads_(WorkloadLimits{},
                   [this](const WorkloadInfo& workload, std::string_view) {
                     end_status_ =
                         registry_.RemoveAll(workload.name, workload.generation, end_deadline_);
                   }),
        registry_(limits, mapper_, workloads_) {
    owner_ = Enlist("engine-0");
  }

  WorkloadInfo Enlist(const std::string& name) {
    auto info = workloads_.Put(name, "engine", ::getuid(), std::nullopt);
    EXPECT_TRUE(info) << info.error().message;
    return *info;
  }

  std::string HandOver(const WorkloadInfo& workload, UniqueFd fd) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    auto tokens = workloads_.KeepFds(workload.name, workload.generation, std::move(fds));
    EXPECT_TRUE(tokens) << tokens.error().message;
    return tokens->front();
  }
  // The token of a new sealed memfd of the fixture's workload.
  std::string Memory(uint64_t bytes) { return HandOver(owner_, MakeMemfd(bytes)); }

  wire::RegistrationRequest RequestOver(std::vector<std::pair<std::string, uint64_t>> memory) {
    wire::RegistrationRequest request;
    request.workload = owner_.name;
    for (auto& [token, size] : memory) {
      request.allocations.push_back({wire::MemoryKind::kHost, std::move(token), size});
    }
    return request;
  }
  static wire::BufferSpec View(std::string name, std::vector<wire::Piece> pieces) {
    wire::BufferSpec spec;
    spec.name = std::move(name);
    spec.pieces = std::move(pieces);
    return spec;
  }
  // One buffer over the whole of a new memfd.
  std::shared_ptr<Buffer> RegisterWhole(const std::string& name, uint64_t bytes = kMiB) {
    wire::RegistrationRequest request = RequestOver({{Memory(bytes), bytes}});
    request.buffers = {View(name, {{0, 0, bytes}})};
    auto buffers = registry_.Register(request);
    EXPECT_TRUE(buffers) << buffers.error().message << " at " << buffers.error().field;
    return buffers ? buffers->front() : nullptr;
  }

  CountingMapper mapper_;
  WorkloadTable workloads_;
  BufferRegistry registry_;
  WorkloadInfo owner_;
  TimePoint end_deadline_ = TimePoint::max();
  Status end_status_;
};

// A status or result that failed with this code.
template <typename Outcome>
::testing::AssertionResult FailsWith(const Outcome& outcome, ErrorCode code) {
  if (outcome) return ::testing::AssertionFailure() << "it succeeded";
  if (outcome.error().code == code) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << InfoOf(outcome.error().code).name << ": " << outcome.error().message;
}

// A request over two allocations of a MiB each, without buffers yet.
class TwoArenasTest : public RegistryFixture {
 protected:
  TwoArenasTest() { request_ = RequestOver({{Memory(kMiB), kMiB}, {Memory(kMiB), kMiB}}); }

  // With nothing left behind.
  void ExpectRefused(ErrorCode code, const std::string& field) {
    const auto outcome = registry_.Register(request_);
    ASSERT_TRUE(FailsWith(outcome, code)) << field;
    EXPECT_EQ(outcome.error().field, field) << outcome.error().message;
    EXPECT_EQ(mapper_.live(), 0u);
    EXPECT_EQ(registry_.Totals().buffers, 0u);
  }

  wire::RegistrationRequest request_;
};

}  // namespace gantry::registry
