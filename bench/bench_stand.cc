#include "bench/bench_stand.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "gantryctl/json_field.h"
#include "lib/base/clock.h"

namespace gantry::bench {
namespace {

using gantryctl::TextOf;

constexpr milliseconds kPeerUpMax{10'000};
constexpr std::byte kLocalCanary{0xA5};
constexpr std::byte kRemoteCanary{0x5A};

Status AwaitPeer(BenchWorkload& workload, const std::string& name, const std::string& address) {
  const nlohmann::json body = {{"address", address}};
  RETURN_IF_ERROR(workload.Request("PUT", "/v1/peers/" + name, body.dump()));
  const TimePoint deadline = Clock::now() + kPeerUpMax;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string answer, workload.Request("GET", "/v1/peers/" + name, ""));
    const auto peer = nlohmann::json::parse(answer, nullptr, false);
    if (TextOf(peer, "state") == "up") return {};
    if (Clock::now() >= deadline) {
      return Fail(ErrorCode::kDeadlineExceeded, "the sidecars do not find each other: " + answer);
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
}

}  // namespace

std::string BenchStand::RemoteName() {
  return std::string(BenchSidecars::kNames[1]) + "/" + kRemoteWorkload + "/" +
         BenchWorkload::kBufferName;
}

Result<BenchStand> BenchStand::Build(const BenchOptions& options, uint64_t bytes,
                                     uint64_t block_bytes) {
  BenchStand stand;
  ASSIGN_OR_RETURN(stand.sidecars, BenchSidecars::Start(options));
  using Memory = BenchWorkload::Memory;
  const bool on_gpus = options.on_gpus();
  std::optional<uint64_t> piece_bytes;
  if (options.is_virtual()) piece_bytes = options.piece_bytes;
  ASSIGN_OR_RETURN(
      stand.local,
      BenchWorkload::Open(stand.sidecars->ApiSocket(0), kLocalWorkload, bytes, kLocalCanary,
                          on_gpus ? Memory::kFirstGpu : Memory::kHost, piece_bytes));
  ASSIGN_OR_RETURN(
      stand.remote,
      BenchWorkload::Open(stand.sidecars->ApiSocket(1), kRemoteWorkload, bytes, kRemoteCanary,
                          on_gpus ? Memory::kLastGpu : Memory::kHost, piece_bytes));
  RETURN_IF_ERROR(stand.local->Register(block_bytes, options.buffers));
  RETURN_IF_ERROR(stand.remote->Register(block_bytes, options.buffers));
  ASSIGN_OR_RETURN(const std::string address, stand.sidecars->PeerAddress(1));
  RETURN_IF_ERROR(AwaitPeer(*stand.local, BenchSidecars::kNames[1], address));
  if (options.peer_executes) {
    ASSIGN_OR_RETURN(const std::string back, stand.sidecars->PeerAddress(0));
    RETURN_IF_ERROR(AwaitPeer(*stand.remote, BenchSidecars::kNames[0], back));
  }
  if (options.buffers > 1) {
    RETURN_IF_ERROR(stand.local->PairWith(BenchSidecars::kNames[1], kRemoteWorkload));
  }
  return stand;
}

Status BenchStand::SetBlockSize(uint64_t block_bytes) {
  RETURN_IF_ERROR(local->Register(block_bytes));
  return remote->Register(block_bytes);
}

}  // namespace gantry::bench
