#include "lib/rpc/grpc_threads.h"

#include <grpc/support/cpu.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "lib/host/control_group.h"

namespace gantry::rpc {
namespace {

// gRPC 1.51 has two executors, two timer managers, and a pool that grows by one at its start.
size_t BaseThreads() { return 5 + std::clamp<size_t>(gpr_cpu_num_cores(), 2, 32); }

std::optional<size_t> NumberIn(const std::filesystem::path& file) {
  const std::string line = host::FirstLine(file);
  size_t number = 0;
  const auto read = std::from_chars(line.data(), line.data() + line.size(), number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;  // "max": none
}

// Which limit leaves less than `count`, as far as this process can see them.
std::string LimitBelow(size_t count) {
  for (const auto& folder : host::ControlGroupOf("pids").folders) {
    const auto max = NumberIn(folder / "pids.max");
    const auto used = NumberIn(folder / "pids.current");
    if (max && used && *used + count > *max) {
      return "pids.max of the pod is " + std::to_string(*max) + ", and " + std::to_string(*used) +
             " are in use";
    }
  }
  rlimit user = {};
  if (::getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY) {
    return "RLIMIT_NPROC (ulimit -u) is " + std::to_string(user.rlim_cur) +
           " for all processes of this user, and pids.max of the pod may be lower";
  }
  return "no limit that is visible here is reached: pids.max of the pod, or the kernel's, may be";
}

}  // namespace

size_t HealthServerThreads() { return std::clamp<size_t>(gpr_cpu_num_cores() / 2, 2, 16); }

Status RoomForThreads(std::string_view what, size_t count) {
  std::latch tried(1);
  std::vector<std::jthread> threads;  // ends before the latch
  threads.reserve(count);
  std::optional<Error> refused;
  while (!refused && threads.size() < count) {
    auto thread = StartThread("gantry-room", [&tried] { tried.wait(); });
    if (thread) {
      threads.push_back(*std::move(thread));
    } else {
      refused = std::move(thread).error();
    }
  }
  tried.count_down();
  if (!refused) return {};
  const size_t made = threads.size();
  threads.clear();
  return Fail(ErrorCode::kResourceExhausted,
              std::string(what) + " needs " + std::to_string(count) + " threads at once, and " +
                  std::to_string(made) + " can be made: " + LimitBelow(count),
              refused->hint);
}

Result<std::unique_ptr<grpc::Server>> StartServer(std::string_view what, size_t count,
                                                  grpc::ServerBuilder* builder) {
  static Mutex one_at_a_time;
  const MutexLock lock(one_at_a_time);
  RETURN_IF_ERROR(RoomForThreads(what, count));
  auto server = builder->BuildAndStart();
  if (server == nullptr) return Fail(ErrorCode::kInternal, "gRPC could not start its server");
  return server;
}

Status KeepGrpc() {
  RETURN_IF_ERROR(RoomForThreads("gRPC", BaseThreads()));
  // Connects to nothing. gRPC's pool ends with the last channel or server: this one stays. The
  // attribute keeps the pointer that nobody reads, so that no leak checker takes this for one.
  [[gnu::used]] static const auto* const kept = new std::shared_ptr<grpc::Channel>(
      grpc::CreateChannel("unix:///dev/null", grpc::InsecureChannelCredentials()));
  return {};
}

}  // namespace gantry::rpc
