// Which path is chosen, and what is said to have kept a transfer off the fastest one.
#include "sidecar/transfer/path_selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::engine {
namespace {

using metrics::PathObstacle;
using ::testing::HasSubstr;

// One whose answers a test gives.
class AnsweringTransport final : public transport::Transport {
 public:
  struct Answers {
    Status probe = {};
    Status carry = {};
    Status reach = {};
  };
  AnsweringTransport(const transport::TransportTraits& traits, Answers answers)
      : traits_(traits), answers_(std::move(answers)) {}

  transport::TransportTraits traits() const override { return traits_; }
  Status Probe() override { return answers_.probe; }
  Status CanCarry(const transport::LocalSide&,
                  const std::vector<transport::RemoteAllocation>&) const override {
    return answers_.carry;
  }
  Status CanReach(const memory::MappedAllocation&,
                  const transport::RemoteAllocation&) const override {
    return answers_.reach;
  }
  std::unique_ptr<transport::Operation> Start(std::shared_ptr<const transport::MovePlan>, int,
                                              uint64_t) override {
    return nullptr;
  }
  transport::PollOutcome Poll(std::vector<uint64_t>*) override { return {}; }

 private:
  const transport::TransportTraits traits_;
  const Answers answers_;
};

Status No(const std::string& why) { return Fail(ErrorCode::kPathUnavailable, why); }

// Between one buffer here and one of a peer, where tcp can always be taken.
class PathSelectorTest : public ::testing::Test {
 protected:
  PathSelectorTest() {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena_.Fd());
    source.size = arena_.size();
    local_ = {*memory::MappedAllocation::Create(pool_, source)};
    source.kind = wire::MemoryKind::kGpu;
    source.gpu.form = wire::GpuExport::kPiece;
    source.gpu.device_uuid = "0";
    source.exporter = "a workload";
    on_gpu_ = *memory::MappedAllocation::Create(pool_, source);
    question_.local = &local_;
    question_.local_nic_memory = &nic_memory_;
    question_.remote = &remote_;
    question_.remote_buffers = &remote_;
    question_.peer_reports = &reports_;
    question_.require = &require_;
    question_.lost = nullptr;
  }

  Result<PathChoice> Select(AnsweringTransport::Answers of_rdma) {
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<AnsweringTransport>(
        transport::TransportTraits{.path = wire::Path::kRdma, .addresses_buffers = true},
        std::move(of_rdma)));
    transports.push_back(std::make_unique<AnsweringTransport>(
        transport::TransportTraits{.path = wire::Path::kTcp, .addresses_buffers = true},
        AnsweringTransport::Answers{}));
    auto choice = SelectPath(transports, question_);
    // The transports end here: what was chosen is kept by its path.
    if (choice) chosen_ = choice->transport->path();
    return choice;
  }
  void ExpectTcp(AnsweringTransport::Answers of_rdma, PathObstacle why, const std::string& text) {
    const auto choice = Select(std::move(of_rdma));
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_EQ(chosen_, wire::Path::kTcp);
    ASSERT_TRUE(choice->rdma_obstacle);
    EXPECT_EQ(*choice->rdma_obstacle, why);
    for (const wire::PathReport& report : choice->reports) {
      if (report.path != wire::Path::kRdma) continue;
      EXPECT_THAT(report.reason, HasSubstr(text));
    }
  }

  testing::TestArena arena_{4096, 1};
  worker::FakeCopyPool pool_;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local_;
  std::shared_ptr<const memory::MappedAllocation> on_gpu_;
  std::vector<std::shared_ptr<const memory::NicMemory>> nic_memory_;
  std::vector<transport::RemoteAllocation> remote_{1};
  std::vector<wire::PathReport> reports_ = {{wire::Path::kRdma, true, ""},
                                            {wire::Path::kTcp, true, ""}};
  std::vector<wire::Path> require_;
  PathQuestion question_;
  wire::Path chosen_ = wire::Path::kShm;
};

TEST_F(PathSelectorTest, WhatNothingIsAgainstIsTaken) {
  const auto choice = Select({});
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(chosen_, wire::Path::kRdma);
  EXPECT_FALSE(choice->rdma_obstacle);
}

TEST_F(PathSelectorTest, ALocalBufferThatIsOnNoDevice) {
  question_.why_not_on_nics = Error(ErrorCode::kNotExportable, "no room for its pages");
  ExpectTcp({.carry = No("no room for its pages")}, PathObstacle::kNotRegistered, "no room");
}

TEST_F(PathSelectorTest, DevicesWithoutAnActivePort) {
  ExpectTcp({.carry = No("mlx5_0 is down")}, PathObstacle::kNoPort, "mlx5_0 is down");
}

TEST_F(PathSelectorTest, ARemoteBufferThatNoDeviceLeadsTo) {
  ExpectTcp({.reach = No("nothing leads here")}, PathObstacle::kUnreachable, "leads here");
}

TEST_F(PathSelectorTest, APeerThatSaysNo) {
  reports_[0] = {wire::Path::kRdma, false, "no device"};
  ExpectTcp({}, PathObstacle::kPeer, "the peer says: no device");
  // Its word is the first: what is missing here follows from it.
  ExpectTcp({.reach = No("nothing leads here")}, PathObstacle::kPeer, "the peer says: no device");
  reports_.erase(reports_.begin());
  ExpectTcp({}, PathObstacle::kPeer, "did not report");
}

TEST_F(PathSelectorTest, APeerMayLackThePathForItsHostMemoryAlone) {
  reports_ = {{wire::Path::kIpc, false, "no GPU"}};
  const auto is_taken = [&](bool host_memory_needs_no_peer) {
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<AnsweringTransport>(
        transport::TransportTraits{.path = wire::Path::kIpc,
                                   .host_memory_needs_no_peer = host_memory_needs_no_peer},
        AnsweringTransport::Answers{}));
    const auto choice = SelectPath(transports, question_);
    if (choice) return true;
    EXPECT_THAT(choice.error().message, HasSubstr("the peer says: no GPU"));
    return false;
  };
  remote_ = {{local_.front()}};
  EXPECT_TRUE(is_taken(true));
  EXPECT_FALSE(is_taken(false));
  remote_ = {{on_gpu_}};
  EXPECT_FALSE(is_taken(true));
  remote_ = {{local_.front()}, {on_gpu_}};
  EXPECT_FALSE(is_taken(true)) << "one buffer needs the peer";
  remote_ = {{}};
  EXPECT_FALSE(is_taken(true)) << "it is not mapped here";
}

TEST_F(PathSelectorTest, APathThatFailedIsNotTakenAgain) {
  const LostPath lost = {wire::Path::kRdma, "the first attempt failed on it"};
  question_.lost = &lost;
  ExpectTcp({}, PathObstacle::kFailed, "the first attempt failed on it");
}

TEST_F(PathSelectorTest, WhatTheCallerExcludedIsNoObstacle) {
  require_ = {wire::Path::kTcp};
  const auto choice = Select({});
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(chosen_, wire::Path::kTcp);
  EXPECT_FALSE(choice->rdma_obstacle);
}

}  // namespace
}  // namespace gantry::engine
