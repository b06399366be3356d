#include "bench/bench_echo.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/fd_passing.h"
#include "lib/base/poll_fd.h"
#include "lib/base/thread.h"

namespace gantry::bench {
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

BenchEcho::BenchEcho(UniqueFd here, UniqueFd there)
    : here_(std::move(here)), there_(std::move(there)) {}

BenchEcho::~BenchEcho() {
  ::shutdown(here_.get(), SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<BenchEcho>> BenchEcho::Start() {
  ASSIGN_OR_RETURN(auto ends, SocketPair(SOCK_STREAM));
  std::unique_ptr<BenchEcho> echo(new BenchEcho(std::move(ends[0]), std::move(ends[1])));
  ASSIGN_OR_RETURN(echo->thread_,
                   StartThread("gantry-echo", [fd = echo->there_.get()] { EchoUntilTheEnd(fd); }));
  return echo;
}

Status BenchEcho::Call(size_t bytes) {
  std::vector<char> buffer(bytes, 'x');
  const TimePoint deadline = Clock::now() + kEchoMax;
  if (!SendAll(here_.get(), buffer.data(), bytes)) {
    return Fail(SystemError(ErrorCode::kInternal, "sending to the echo", errno));
  }
  for (size_t back = 0; back < bytes;) {
    if (!AwaitInputSoon(here_.get(), deadline)) {  // as libgantry
      return Fail(ErrorCode::kDeadlineExceeded, "the echo does not come back");
    }
    const ssize_t got = ::recv(here_.get(), buffer.data(), bytes - back, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Fail(SystemError(ErrorCode::kInternal, "awaiting the echo", errno));
    back += static_cast<size_t>(got);
  }
  return {};
}

}  // namespace gantry::bench
