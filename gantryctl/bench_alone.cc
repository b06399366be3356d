#include "gantryctl/bench_alone.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/clock.h"

namespace gantry::gantryctl {
namespace {

constexpr milliseconds kEchoMax{10'000};

// False: the other end is gone.
bool SendAll(int fd, const char* bytes, size_t count) {
  for (size_t sent = 0; sent < count;) {
    const ssize_t now = ::send(fd, bytes + sent, count - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

void EchoUntilTheEnd(int fd) {
  std::array<char, 4096> bytes;
  for (;;) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || !SendAll(fd, bytes.data(), static_cast<size_t>(got))) return;
  }
}

}  // namespace

BenchAlone::BenchAlone(UniqueFd here, UniqueFd there, size_t bytes)
    : here_(std::move(here)),
      there_(std::move(there)),
      bytes_(bytes),
      thread_([fd = there_.get()] { EchoUntilTheEnd(fd); }) {}

BenchAlone::~BenchAlone() {
  ::shutdown(here_.get(), SHUT_RDWR);
  thread_.join();
}

Result<std::unique_ptr<BenchAlone>> BenchAlone::Start(size_t bytes) {
  std::array<int, 2> fds;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "making a pair of sockets", errno));
  }
  return std::unique_ptr<BenchAlone>(new BenchAlone(UniqueFd(fds[0]), UniqueFd(fds[1]), bytes));
}

Result<double> BenchAlone::Echo() {
  std::vector<char> bytes(bytes_, 'x');
  const TimePoint start = Clock::now();
  if (!SendAll(here_.get(), bytes.data(), bytes.size())) {
    return Fail(SystemError(ErrorCode::kInternal, "sending to the echo", errno));
  }
  for (size_t back = 0; back < bytes.size();) {
    if (!wait_.Await(here_.get(), start + kEchoMax)) {
      return Fail(ErrorCode::kDeadlineExceeded, "the echo does not come back");
    }
    const ssize_t got = ::recv(here_.get(), bytes.data(), bytes.size() - back, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Fail(SystemError(ErrorCode::kInternal, "awaiting the echo", errno));
    back += static_cast<size_t>(got);
  }
  return 1e6 * SecondsBetween(start, Clock::now());
}

Result<double> BenchAlone::Copy(const BenchStand& stand, const BenchOptions& options,
                                uint64_t local, uint64_t remote, uint64_t block_bytes) {
  const bool read = options.operation == BenchOptions::Operation::kRead;
  BenchGpuMemory& to = *stand.destination(options.operation).gpu();
  const BenchGpuMemory& from = *stand.source(options.operation).gpu();
  const uint64_t to_block = read ? local : remote;
  const uint64_t from_block = read ? remote : local;
  ASSIGN_OR_RETURN(const double seconds,
                   to.CopyBlocks(from, {&to_block, 1}, {&from_block, 1}, BenchWorkload::offset(),
                                 block_bytes, /*rounds=*/1));
  return 1e6 * seconds;
}

}  // namespace gantry::gantryctl
