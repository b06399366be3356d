// An engine over a peer whose buffers, and a transport whose operations, answer as a test says.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "sidecar/transfer/transfer_engine.h"
#include "tests/fakes/engine_fixture.h"
#include "tests/fakes/willing_transport.h"

namespace gantry::engine {

using ::gantry::testing::EngineFixture;
using ::gantry::testing::In;
using ::gantry::testing::TestArena;

inline constexpr uint64_t kRetriedBytes = 64 << 10;
inline constexpr wire::BlockLayout kRetriedLayout = {4 << 10, 4 << 10, 16};

struct Target final : transport::RemoteTarget {
  explicit Target(uint64_t generation_in) : generation(generation_in) {}
  uint64_t length() const override { return kRetriedBytes; }
  const uint64_t generation;
};

// An attempt as a test lets the peer answer it.
struct Script {
  std::optional<Error> refusal;  // none: everything is moved
  bool moving = false;           // bytes may still move
};

class ScriptedOperation final : public transport::Operation {
 public:
  ScriptedOperation(std::shared_ptr<std::atomic<bool>> moving, std::optional<Error> error,
                    bool is_counted)
      : moving_(std::move(moving)), error_(std::move(error)) {
    progress_.error_is_counted = is_counted;
    progress_.chunks_total = 1;
    progress_.chunks = error_ ? 0 : 1;
    progress_.first_posted = Clock::now();
  }
  void Stop() override {}
  void Abort() override {}
  bool finished() const override { return !*moving_; }
  const std::optional<Error>& error() const override { return error_; }
  const transport::Progress& progress() const override { return progress_; }
  std::vector<uint32_t> UnfinishedItems() const override { return {0}; }

 private:
  const std::shared_ptr<std::atomic<bool>> moving_;
  const std::optional<Error> error_;
  transport::Progress progress_;
};

class ScriptedTransport final : public testing::WillingTransport {
 public:
  explicit ScriptedTransport(wire::Path path = wire::Path::kTcp)
      : WillingTransport({.path = path, .addresses_buffers = true}) {}
  std::unique_ptr<transport::Operation> Start(std::shared_ptr<const transport::MovePlan> plan, int,
                                              uint64_t token) override {
    const auto& target = static_cast<const Target&>(*plan->remote.front().target);
    const Script script = answer(target.generation);
    ++starts;
    moving->store(script.moving);
    token_ = token;
    return std::make_unique<ScriptedOperation>(moving, script.refusal, counts_errors);
  }
  transport::PollOutcome Poll(std::vector<uint64_t>* ready_tokens) override {
    ready_tokens->push_back(token_);
    return {.poll_interval = milliseconds(1)};
  }

  std::function<Script(uint64_t generation)> answer;
  std::atomic<bool> counts_errors{false};
  std::atomic<int> starts{0};
  const std::shared_ptr<std::atomic<bool>> moving = std::make_shared<std::atomic<bool>>(false);

 private:
  uint64_t token_ = 0;  // of the newest
};

// The buffer has a generation more after each refresh.
class FakeGateway final : public PeerGateway {
 public:
  Result<std::vector<std::shared_ptr<const RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references,
      engine::RemoteUse, TimePoint) override {
    if (gone) return Fail(ErrorCode::kUnregistered, "there is no such buffer any more");
    if (stale_descriptions-- > 0) return Fail(ErrorCode::kStaleGeneration, "it was described anew");
    const uint64_t wanted = references.front().generation;
    if (wanted != 0 && wanted != generation) {
      return Fail(ErrorCode::kStaleGeneration, "it was registered anew");
    }
    auto buffer = std::make_shared<RemoteBuffer>();
    buffer->layout = kRetriedLayout;
    buffer->reference = {peer, "owner", references.front().buffer, generation};
    buffer->peer_registration_id = peer_registration_id;
    buffer->length = kRetriedBytes;
    buffer->access = {true, true};
    buffer->pieces = *memory::PieceMap::Create({{0, 0, kRetriedBytes}}, std::array{kRetriedBytes});
    buffer->flat = buffer->pieces;
    buffer->allocations = {{}};
    buffer->target = std::make_shared<Target>(generation);
    for (int i = 0; i < wire::kPathCount; ++i) {
      buffer->paths.push_back({static_cast<wire::Path>(i), true, ""});
    }
    last = buffer;
    return std::vector<std::shared_ptr<const RemoteBuffer>>{buffer};
  }
  void Refresh(const std::string&, const std::vector<uint64_t>& stale, const Error&,
               TimePoint) override {
    refreshed = stale;
    ++refreshes;
    ++generation;
    while (hold) std::this_thread::sleep_for(milliseconds(1));
  }

  std::atomic<uint64_t> generation{1};
  std::atomic<int> refreshes{0};
  std::atomic<bool> hold{false}, gone{false};
  std::atomic<int> stale_descriptions{0};
  std::atomic<uint64_t> peer_registration_id{1};
  std::vector<uint64_t> refreshed;
  std::shared_ptr<const RemoteBuffer> last;  // handed out
};

class StaleRetryTest : public EngineFixture {
 protected:
  void SetUp() override {
    auto faster = std::make_unique<ScriptedTransport>(wire::Path::kBounce);
    auto transport = std::make_unique<ScriptedTransport>();
    faster_ = faster.get();
    transport_ = transport.get();
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::move(faster));
    transports.push_back(std::move(transport));
    engine_ = std::make_unique<TransferEngine>(engine_options_, pool_, copies_.hints(),
                                               std::move(transports), registry_, events_, metrics_);
    engine_->SetPeerGateway(&gateway_);
    AddWorkload("w");
    const auto registered = Register(
        "w", {&arena_},
        {{"k", {{0, 0, kRetriedBytes}}, {}}, {"blocks", {{0, 0, kRetriedBytes}}, kRetriedLayout}});
    ASSERT_TRUE(registered);
    buffer_id_ = registered->front()->description().id;
    transport_->answer = [](uint64_t generation) {
      return generation == 1 ? Script{Stale(), false} : Script{};
    };
  }
  void TearDown() override {
    gateway_.hold = false;
    transport_->moving->store(false);
    engine_.reset();
  }

  static Error Stale() { return {ErrorCode::kStaleGeneration, "the buffer was registered anew"}; }
  static wire::TransferRequest Write(uint64_t generation = 0) {
    wire::TransferRequest request;
    request.id = "t";
    request.workload = "w";
    request.operation = wire::Operation::kWrite;
    request.local.push_back({"", "", "k", 0});
    request.remote.push_back({"peer", "owner", "k", generation});
    request.ranges.push_back({0, 0, 0, 0, kRetriedBytes});
    request.deadline_ms = 3'000;
    request.require_path = {wire::Path::kTcp};
    return request;
  }
  bool HasMetric(const std::string& line) {
    return HasLine("gantry_transfer_retries_total{reason=" + line);
  }
  bool HasLine(const std::string& line) {
    return metrics_.Text().find(line + "\n") != std::string::npos;
  }

  TestArena arena_{kRetriedBytes};
  std::string buffer_id_;
  FakeGateway gateway_;
  ScriptedTransport* transport_ = nullptr;
  ScriptedTransport* faster_ = nullptr;  // taken by those that do not say which
};

}  // namespace gantry::engine
