// Whole transfers between two sidecars: engine, copies and peer API together.
#include <future>

#include "sidecar/copy/shm_transport.h"
#include "sidecar/transfer/transfer_engine.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::testing {
namespace {

using engine::TransferState;

class PeerTransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<transport::ShmTransport>(copies_));
    engine_ = std::make_unique<engine::TransferEngine>(Options(), pool_, copies_.hints(),
                                                       std::move(transports), here_.registry(),
                                                       events_, metrics_);
    here_.StopTransfersWith([this](const auto& buffer, Error why) {
      engine_->StopTransfersUsing(buffer, std::move(why));
    });
    engine_->SetPeerGateway(&here_.directory());
    owner_ = std::make_unique<TestSidecar>(node_, "prefill", owner_mapper_);
    owner_->StartServer();
    remote_ = owner_->Register(remote_arena_, "k.0");
    here_.Register(local_arena_, "k.0");
    here_.ConnectTo(node_, "prefill");
  }
  void TearDown() override { engine_.reset(); }

  static engine::EngineOptions Options() {
    engine::EngineOptions options;
    options.chunk_bytes_max = 4096;
    return options;
  }
  Result<engine::TransferStatus> Read(const std::string& id, int wait_ms) {
    wire::TransferRequest request;
    request.id = id;
    request.workload = "engine";
    request.local.push_back({"", "", "k.0", 0});
    request.remote.push_back({"prefill", "engine", "k.0", 0});
    request.ranges.push_back({0, 0, 0, 4096, 960 * 1024});
    return engine_->Submit(request, In(wait_ms));
  }

  NodeDir node_;
  CountingMapper owner_mapper_;
  // One segment a worker: a transfer that is held has most of its way to go.
  worker::FakeCopyPool pool_{2, 1};
  transport::CopyScheduler copies_{{}, pool_, pool_};
  TestArena remote_arena_{1 << 20, 1}, local_arena_{1 << 20, 2};
  engine::EventLog events_{1024};
  metrics::Metrics metrics_{"test"};
  TestSidecar here_{node_, "decode", pool_};
  std::unique_ptr<TestSidecar> owner_;
  std::shared_ptr<registry::Buffer> remote_;
  std::unique_ptr<engine::TransferEngine> engine_;
};

TEST_F(PeerTransferTest, ReadsThePeersBytes) {
  const auto status = Read("t-1", 5'000);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->state, TransferState::kSucceeded);
  EXPECT_EQ(std::memcmp(local_arena_.data(), remote_arena_.data() + 4096, 960 * 1024), 0);
}

TEST_F(PeerTransferTest, APeerThatIsLostFailsItsTransfersAndIsUnmappedWhenTheyAreQuiet) {
  ASSERT_TRUE(Read("warm", 5'000));
  const size_t with_peer = pool_.mapping_count();
  pool_.Hold();
  ASSERT_TRUE(Read("t-1", 0));
  owner_->StopServer();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(pool_.mapping_count(), with_peer) << "unmapped under a copy";
  pool_.Release();
  const auto status = engine_->Get("engine", "t-1", In(5'000));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, TransferState::kFailed);
  ASSERT_TRUE(status->error);
  EXPECT_EQ(status->error->code, ErrorCode::kPeerLost);
  EXPECT_TRUE(Eventually(1'000, [&] { return pool_.mapping_count() == with_peer - 1; }));
}

TEST_F(PeerTransferTest, ARevocationLetsATransferEndThatEndsInTime) {
  ASSERT_TRUE(Read("warm", 5'000));
  pool_.DelayCompletions(milliseconds(2));
  ASSERT_TRUE(Read("t-1", 0));
  EXPECT_TRUE(owner_->registry().Remove(remote_->description().id, In(8'000)));
  EXPECT_EQ(engine_->Get("engine", "t-1", In(5'000))->state, TransferState::kSucceeded);
  const auto refused = Read("t-2", 5'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnregistered);
}

TEST_F(PeerTransferTest, ARevocationStopsATransferThatDoesNotEndInTime) {
  ASSERT_TRUE(Read("warm", 5'000));
  pool_.DelayCompletions(milliseconds(100));
  ASSERT_TRUE(Read("t-1", 0));
  EXPECT_TRUE(owner_->registry().Remove(remote_->description().id, In(2'000)));
  const auto status = engine_->Get("engine", "t-1", In(5'000));
  EXPECT_EQ(status->state, TransferState::kFailed);
  EXPECT_EQ(status->error.value_or(Error()).code, ErrorCode::kDraining);
}

}  // namespace
}  // namespace gantry::testing
