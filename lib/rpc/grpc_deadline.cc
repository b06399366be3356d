#include "lib/rpc/grpc_deadline.h"

#include <algorithm>

namespace gantry::rpc {
namespace {

constexpr milliseconds kFarAway{24 * 3600 * 1000};

}  // namespace

std::chrono::system_clock::time_point GrpcDeadline(TimePoint deadline) {
  const auto left = std::min<nanoseconds>(deadline - Clock::now(), kFarAway);
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
}

}  // namespace gantry::rpc
