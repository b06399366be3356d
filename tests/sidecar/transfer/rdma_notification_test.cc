// The notification of a write over rdma, from the devices up: when it is given to be delivered, all
// bytes are in the peer's memory, though its devices write in any order and acknowledge before.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/messaging/hold_client.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/transport/rdma/verbs/rdma_registrar.h"
#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/fake_rdma_place.h"

namespace gantry::engine {
namespace {

using gantry::testing::EngineFixture;
using gantry::testing::In;
using gantry::testing::TestArena;

constexpr uint64_t kSentBytes = 256 * 1024;

transport::RdmaOptions Options() {
  transport::RdmaOptions options;
  options.relaxed_ordering = true;
  options.slice_bytes = 4096;
  return options;
}

// Delivers at once, and looks at the memory in that moment.
class LookingMessenger final : public PeerMessenger {
 public:
  LookingMessenger(const TestArena& sent, const TestArena& arrived)
      : sent_(sent), arrived_(arrived) {}
  void Notify(const std::string&, wire::Notification, TimePoint, DeliveryDone done) override {
    complete_ += std::memcmp(sent_.data(), arrived_.data(), kSentBytes) == 0 ? 1 : 0;
    ++told_;
    done({}, std::nullopt);
  }
  void NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, DeliveryDone done) override {
    Notify(peer, std::move(notification), deadline, std::move(done));
  }
  Result<uint64_t> UseHold(const std::string&, const wire::HoldUse&, TimePoint) override {
    return Fail(ErrorCode::kNotFound, "no holds here");
  }
  void EndHoldUse(const std::string&, uint64_t, bool) override {}

  int told() const { return told_; }
  int complete() const { return complete_; }

 private:
  const TestArena& sent_;
  const TestArena& arrived_;
  std::atomic<int> told_ = 0;
  std::atomic<int> complete_ = 0;
};

// The owner's buffer, which rdma alone leads to.
class OneBuffer final : public PeerGateway {
 public:
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references, RemoteUse,
      TimePoint) override {
    auto buffer = std::make_shared<RemoteBuffer>();
    buffer->reference = {peer, "owner", references.front().buffer, 7};
    buffer->length = kSentBytes;
    buffer->access = {true, true};
    buffer->pieces = *memory::PieceMap::Create({{0, 0, kSentBytes}}, std::array{kSentBytes});
    buffer->flat = buffer->pieces;
    buffer->allocations = {target};
    buffer->target = target.target;
    for (int i = 0; i < wire::kPathCount; ++i) {
      buffer->paths.push_back({static_cast<wire::Path>(i), true, ""});
    }
    return std::vector<std::shared_ptr<const RemoteBuffer>>{buffer};
  }
  void Refresh(const std::string&, const std::vector<uint64_t>&, const Error&, TimePoint) override {
  }

  transport::RemoteAllocation target;
};

class RdmaNotificationTest : public EngineFixture {
 protected:
  void SetUp() override {
    auto rdma = std::make_unique<transport::RdmaTransport>(
        *world_.devices_, *events_of_devices_, world_.helpers_, [this] { pool_.WakeWaiter(); },
        [](const Error& why) { ADD_FAILURE() << why.message; });
    peer_ = rdma->AddPeer("peer", world_.exchange_);
    gateway_.target = {nullptr, std::make_shared<transport::RdmaRemoteBuffer>(
                                    peer_, world_.Describe(arrived_), transport::DeviceSet::All())};
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::move(rdma));
    engine_ = std::make_unique<TransferEngine>(engine_options_, pool_, copies_.hints(),
                                               std::move(transports), registry_, events_, metrics_);
    engine_->SetPeerGateway(&gateway_);
    notifications_.SetMessenger(&messenger_);
    engine_->SetMessaging(notifications_, hold_client_);
    registry_.SetNicRegistrar(&world_.registrar_);
    AddWorkload("writer");
    ASSERT_TRUE(Register("writer", {&sent_}, {{"src", {{0, 0, kSentBytes}}, std::nullopt}}));
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_TRUE(registry_.RemoveAll("writer", 0, In(milliseconds(1'000))));
  }
  Result<TransferStatus> Write(uint64_t number) {
    wire::TransferRequest request;
    request.workload = "writer";
    request.operation = wire::Operation::kWrite;
    request.local.push_back({"", "", "src", 0});
    request.remote.push_back({"peer", "owner", "dst", 0});
    request.ranges.push_back({0, 0, 0, 0, kSentBytes});
    request.notify = wire::NotificationContent{"owner", 0, std::to_string(number), "here"};
    return engine_->Submit(request, In(milliseconds(20'000)));
  }

  const TestArena sent_{kSentBytes, 1};
  const TestArena arrived_{kSentBytes, 2};
  transport::FakeRdmaPlace place_{{{"fake0"}, {"fake1"}}, Options()};
  transport::RdmaWorld& world_ = place_.world();
  const std::unique_ptr<transport::RdmaEvents> events_of_devices_ =
      *transport::RdmaEvents::Create();
  LookingMessenger messenger_{sent_, arrived_};
  NotificationCenter notifications_{workloads_, events_, metrics_};
  HoldTable holds_{workloads_, registry_, events_, metrics_};
  HoldClient hold_client_{holds_};
  OneBuffer gateway_;
  std::shared_ptr<transport::RdmaPeer> peer_;
};

TEST_F(RdmaNotificationTest, WhoIsToldOfAWriteFindsItsBytes) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    place_.fabric().Scramble(seed);
    std::memset(sent_.data(), static_cast<int>(seed), kSentBytes);
    const auto written = Write(seed);
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_EQ(written->state, TransferState::kSucceeded);
    ASSERT_EQ(written->path, wire::Path::kRdma);
    ASSERT_EQ(written->notified, true);
    ASSERT_EQ(messenger_.told(), static_cast<int>(seed));
    ASSERT_EQ(messenger_.complete(), static_cast<int>(seed)) << "it was told before its bytes";
  }
}

}  // namespace
}  // namespace gantry::engine
