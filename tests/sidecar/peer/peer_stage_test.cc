// Staging memory and copies over the peer API: what a session has, what it is refused without an
// end of the session, and what ends it; and that its own end ends all of it.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "sidecar/peer/client/stage_exchanger.h"
#include "sidecar/transport/bounce/stage_target.h"
#include "sidecar/transport/rdma/rdma_target.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/fake_target_buffers.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/fakes/gpu_allocation_spec.h"
#include "tests/fakes/hand_copier.h"
#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

using transport::kStagingSliceBytes;

constexpr uint32_t kSlices = 32;
constexpr uint64_t kGpuBytes = 1 << 20;

class PeerStageTest : public ::testing::Test {
 protected:
  PeerStageTest() {
    owner_.UseTcp({});
    peer::PeerServerOptions& options = owner_.server_options();
    options.paths = [] {
      return std::vector<wire::PathReport>{{wire::Path::kRdma, true, ""},
                                           {wire::Path::kBounce, true, ""}};
    };
    options.rdma = &queue_pairs_;
    options.stage = &stages_;
  }
  ~PeerStageTest() override {
    client_.reset();
    owner_.StopServer();
    EXPECT_EQ(stages_.totals().stages, 0u);
    EXPECT_EQ(half_.slices.in_use(), 0u);
  }
  // With buffer "k" on a GPU, that no device reaches.
  void StartOwner(wire::Access access = {true, true}) {
    owner_.StartServer();
    wire::RegistrationRequest request;
    request.workload = "engine";
    request.allocations.push_back(GpuAllocationSpec(kGpuBytes));
    request.buffers.push_back({"k", {{0, 100, kGpuBytes - 200}}, access, {}});
    const auto buffers = owner_.registry().Register(request);
    ASSERT_TRUE(buffers) << buffers.error().message;
    buffer_ = buffers->front();
  }
  void Connect() {
    client_ = peer::PeerClient::Make(
        {{"decode", RandomGeneration(), *peer::ReadNodeId(), "test"}, {}},
        *peer::ParsePeerAddress(owner_.server().tcp_address()), [this](const auto& event) {
          if (std::holds_alternative<peer::PeerEnded>(event)) ended_ = true;
        });
    const Status opened = client_->Open(In(5'000));
    ASSERT_TRUE(opened) << opened.error().message;
    exchange_ = std::make_unique<peer::StageExchanger>(client_);
  }
  wire::PeerBuffer Describe() {
    auto told = client_->Describe({{"", "engine", "k", 0}}, In(5'000));
    EXPECT_TRUE(told && told->front());
    return *std::move(told->front());
  }
  wire::StagedMove Move(uint64_t stage, bool to_buffers, uint64_t offset, uint64_t length) const {
    wire::StagedMove move;
    move.stage = stage;
    move.to_buffers = to_buffers;
    move.buffers = {{buffer_->description().id, buffer_->description().generation}};
    move.ranges = {{0, offset, length}};
    move.slices = {0};
    move.time_ms = 4'000;
    return move;
  }
  std::future<Status> CopyLater(wire::StagedMove move, int time_ms = 10'000) {
    return std::async(std::launch::async, [this, move = std::move(move), time_ms] {
      return exchange_->Copy(move, In(time_ms));
    });
  }
  wire::StageGrant Open(uint32_t slices) {
    auto grant = exchange_->Open(slices, In(5'000));
    EXPECT_TRUE(grant) << grant.error().message;
    return grant ? *std::move(grant) : wire::StageGrant();
  }

  FakeFabric fabric_;
  FakeVerbs host_{fabric_, {{.name = "first"}}};
  const std::unique_ptr<transport::RdmaDevices> devices_ = *transport::RdmaDevices::Open({}, host_);
  transport::RdmaRegistrar registrar_{*devices_};
  transport::RdmaTarget queue_pairs_{*devices_, {}};
  CountingMapper mapper_;
  const TestArena staging_{kSlices * kStagingSliceBytes, 7};
  const std::shared_ptr<const memory::MappedAllocation> staged_ =
      transport::AllocationOf(mapper_, staging_);
  const std::span<std::byte> bytes_ = *staged_->in_process().Bytes();
  transport::HandCopier copier_{bytes_, kGpuBytes};
  transport::StagingHalf half_{transport::SlicePool(kSlices), bytes_, 0, copier_, staged_};
  transport::StageTarget stages_{registrar_, half_, {.copy_grace = milliseconds(50)}};
  TestSidecar owner_{"", "prefill", mapper_};
  std::shared_ptr<registry::Buffer> buffer_;
  std::shared_ptr<peer::PeerClient> client_;
  std::unique_ptr<peer::StageExchanger> exchange_;
  std::atomic<bool> ended_ = false;
};

TEST_F(PeerStageTest, ASessionIsLentSlicesAndHasThemCopied) {
  StartOwner();
  Connect();
  EXPECT_TRUE(Describe().paths[static_cast<size_t>(wire::Path::kBounce)].available);
  const wire::StageGrant grant = Open(3);
  ASSERT_EQ(grant.slices.size(), 3u);
  EXPECT_EQ(grant.slice_bytes, kStagingSliceBytes);
  EXPECT_EQ(host_.live().regions, 3);
  copier_.gpu().replace(105, 5, "hello");
  auto copied = CopyLater(Move(grant.stage, false, 5, 5));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy && !copy->to_buffer);
  copier_.Finish(*std::move(copy));
  EXPECT_TRUE(copied.get());
  EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(grant.slices[0].address), "hello", 5), 0);
  EXPECT_TRUE(exchange_->Close(grant.stage, In(5'000)));
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_TRUE(exchange_->Close(grant.stage, In(5'000))) << "it is closed";
  EXPECT_FALSE(ended_);
}

// None of it moved a byte, and the session goes on.
TEST_F(PeerStageTest, ARefusalIsAnAnswer) {
  StartOwner({.remote_read = true, .remote_write = false});
  Connect();
  const wire::StageGrant grant = Open(1);
  const auto expect = [&](const wire::StagedMove& move, ErrorCode code) {
    const Status refused = exchange_->Copy(move, In(5'000));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, code) << refused.error().message;
    EXPECT_FALSE(copier_.Next(milliseconds(0)));
    EXPECT_FALSE(ended_);
  };
  const wire::StagedMove good = Move(grant.stage, false, 0, 5);
  expect(good, ErrorCode::kStaleGeneration);  // it was not described
  (void)Describe();
  expect(Move(grant.stage, true, 0, 5), ErrorCode::kPermissionDenied);
  expect(Move(grant.stage + 1, false, 0, 5), ErrorCode::kNotFound);
  expect(Move(grant.stage, false, kGpuBytes, 5), ErrorCode::kOutOfRange);
  wire::StagedMove malformed = good;
  malformed.slices = {0, 0};
  expect(malformed, ErrorCode::kMalformedBody);
  copier_.SetUsable(false);
  expect(good, ErrorCode::kPathUnavailable);
  copier_.SetUsable(true);
  for (const ErrorCode code : {ErrorCode::kDeviceError, ErrorCode::kPeerLost}) {
    auto copied = CopyLater(good);
    copier_.Finish(*copier_.Next(), Fail(code, "a sick GPU"));
    const Status failed = copied.get();
    ASSERT_FALSE(failed);
    EXPECT_NE(failed.error().code, ErrorCode::kPeerLost) << "that would say: it may still move";
  }
  EXPECT_EQ(exchange_->Open(1, In(5'000)).error().code, ErrorCode::kConflict);
  EXPECT_FALSE(ended_);
  auto copied = CopyLater(good);
  copier_.Finish(*copier_.Next());
  EXPECT_TRUE(copied.get());
}

TEST_F(PeerStageTest, ACopyThatIsNotAnsweredEndsTheSessionAndAllItHas) {
  StartOwner();
  Connect();
  (void)Describe();
  const wire::StageGrant grant = Open(2);
  auto copied = CopyLater(Move(grant.stage, true, 0, 5), 200);
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  const Status lost = copied.get();
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kPeerLost);
  EXPECT_TRUE(Eventually(5'000, [&] { return ended_.load(); }));
  // The owner sees to it that nothing of it goes on.
  EXPECT_TRUE(Eventually(5'000, [&] { return copier_.aborts() > 0; }));
  EXPECT_EQ(host_.live().regions, 2);
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kWorkerLost, "by force"));
  EXPECT_TRUE(Eventually(5'000, [&] { return half_.slices.in_use() == 0; }));
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(exchange_->Copy(Move(grant.stage, true, 0, 5), In(5'000)).error().code,
            ErrorCode::kPeerLost);
}

TEST_F(PeerStageTest, ACopyThatWaitsEndsWithTheSession) {
  StartOwner();
  Connect();
  (void)Describe();
  auto copied = CopyLater(Move(Open(1).stage, true, 0, 5));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  client_->Break();
  EXPECT_EQ(copied.wait_for(milliseconds(2'000)), std::future_status::ready);
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kWorkerLost, "by force"));
  const Status lost = copied.get();
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kPeerLost);
}

// Nobody knows here what is lent still.
TEST_F(PeerStageTest, AnEndOfAStageThatIsNotAnsweredEndsTheSession) {
  StartOwner();
  Connect();
  (void)Describe();
  const wire::StageGrant grant = Open(1);
  auto copied = CopyLater(Move(grant.stage, true, 0, 5));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  const Status lost = exchange_->Close(grant.stage, In(200));  // the owner waits for the copy
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(Eventually(5'000, [&] { return ended_.load(); }));
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kWorkerLost, "by force"));
  EXPECT_FALSE(copied.get());
}

TEST_F(PeerStageTest, WithoutTheSessionNothingIsLent) {
  StartOwner();
  Connect();
  (void)Open(2);
  client_.reset();
  EXPECT_TRUE(Eventually(5'000, [&] { return stages_.totals().stages == 0; }));
  EXPECT_EQ(host_.live().regions, 0);
  EXPECT_EQ(exchange_->Open(1, In(1'000)).error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(exchange_->Close(1, In(1'000)).error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(exchange_->Copy({}, In(1'000)).error().code, ErrorCode::kPeerLost);
}

TEST_F(PeerStageTest, SessionsThatAreNotKnownAreNotAnswered) {
  StartOwner();
  RawInitiator raw(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(raw.Watch(owner_.generation()));
  const auto refusal = [&raw](auto method, const auto& request) {
    const auto reply = raw.Call(method, request);
    return reply ? ErrorCode::kInternal : reply.error().code;
  };
  v1::OpenStageRequest open;
  open.set_session(std::string(32, '0'));
  open.set_slices(1);
  EXPECT_EQ(refusal(&v1::Peer::Stub::OpenStage, open), ErrorCode::kStaleGeneration);
  open.set_session(raw.session());
  open.set_slices(0);
  EXPECT_EQ(refusal(&v1::Peer::Stub::OpenStage, open), ErrorCode::kMalformedBody);
  v1::CopyStagedRequest copy;
  copy.set_session(std::string(32, '0'));
  EXPECT_EQ(refusal(&v1::Peer::Stub::CopyStaged, copy), ErrorCode::kStaleGeneration);
  v1::CloseStageRequest close;
  close.set_session(std::string(32, '0'));
  EXPECT_EQ(refusal(&v1::Peer::Stub::CloseStage, close), ErrorCode::kStaleGeneration);
}

// Or a device would still write what is copied on.
TEST_F(PeerStageTest, QueuePairsEndBeforeTheStage) {
  StartOwner();
  RawInitiator raw(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(raw.Watch(owner_.generation()));
  ASSERT_TRUE(stages_.Open(raw.session(), 2));
  wire::QueuePairRequest request;
  request.from.number = 77;
  request.from.mtu = 4096;
  ASSERT_TRUE(queue_pairs_.Connect(raw.session(), {&request, 1}, false));
  const int with_stage = host_.live().regions;
  host_.Hold("first", FakeCall::kDestroyQueuePair, true);
  raw.EndWatch();
  ASSERT_TRUE(Eventually(5'000, [&] { return host_.waiting("first") == 1; }));
  EXPECT_FALSE(Eventually(100, [&] { return stages_.totals().stages == 0; }));
  EXPECT_EQ(host_.live().regions, with_stage);
  host_.Hold("first", FakeCall::kDestroyQueuePair, false);
  EXPECT_TRUE(Eventually(5'000, [&] { return stages_.totals().stages == 0; }));
  EXPECT_EQ(host_.live().regions, with_stage - 2);
}

TEST_F(PeerStageTest, AnOwnerWithoutStagingSaysWhy) {
  owner_.server_options().stage = nullptr;
  owner_.server_options().why_no_stage = "--staging-bytes is 0";
  StartOwner();
  Connect();
  const wire::PathReport told = Describe().paths[static_cast<size_t>(wire::Path::kBounce)];
  EXPECT_FALSE(told.available);
  EXPECT_EQ(told.reason, "the buffer is GPU memory: --staging-bytes is 0");
  const auto refused = exchange_->Open(1, In(5'000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  EXPECT_EQ(refused.error().message, "--staging-bytes is 0");
  EXPECT_EQ(exchange_->Copy(Move(1, true, 0, 5), In(5'000)).error().code,
            ErrorCode::kPathUnavailable);
  EXPECT_FALSE(ended_);
}

}  // namespace
}  // namespace gantry::testing
