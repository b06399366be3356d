#include "bench/bench_tcp_ceiling.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/thread.h"
#include "lib/base/unique_fd.h"
#include "lib/process/shell_output.h"

namespace gantry::bench {
namespace {

struct Connection {
  UniqueFd sender;
  UniqueFd receiver;
};

Result<Connection> MakeConnection() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  Connection connection;
  connection.sender.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool made = ::bind(listener.get(), any, length) == 0 && ::listen(listener.get(), 1) == 0 &&
                    ::getsockname(listener.get(), any, &length) == 0 &&
                    ::connect(connection.sender.get(), any, length) == 0;
  if (made) connection.receiver.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.receiver.valid()) return connection;
  return Fail(SystemError(ErrorCode::kInternal, "a connection over loopback", errno));
}

struct Share {
  const CopyWork& work;
  size_t first = 0;
  size_t last = 0;
};

bool Send(int socket, const Share& share) {
  const bool read = share.work.to_local;
  const std::byte* base = read ? share.work.remote : share.work.local;
  const auto& blocks = read ? share.work.pairs->remote : share.work.pairs->local;
  for (size_t i = share.first; i < share.last; ++i) {
    const std::byte* block = base + blocks[i] * share.work.block_bytes;
    for (size_t sent = 0; sent < share.work.block_bytes;) {
      const ssize_t now = ::send(socket, block + sent, share.work.block_bytes - sent, MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += static_cast<size_t>(now);
    }
  }
  return true;
}

bool Receive(int socket, const Share& share) {
  const bool read = share.work.to_local;
  std::byte* base = read ? share.work.local : share.work.remote;
  const auto& blocks = read ? share.work.pairs->local : share.work.pairs->remote;
  for (size_t i = share.first; i < share.last; ++i) {
    const auto length = static_cast<ssize_t>(share.work.block_bytes);
    std::byte* block = base + blocks[i] * share.work.block_bytes;
    if (::recv(socket, block, share.work.block_bytes, MSG_WAITALL) != length) return false;
  }
  return true;
}

constexpr const char* kIperfPort = "47451";

}  // namespace

Result<double> SendWithStreams(const CopyWork& work, int streams) {
  std::vector<Connection> connections;
  for (int i = 0; i < streams; ++i) {
    ASSIGN_OR_RETURN(Connection connection, MakeConnection());
    connections.push_back(std::move(connection));
  }
  const size_t blocks = work.pairs->local.size();
  const auto count = static_cast<size_t>(streams);
  std::atomic<bool> failed = false;
  std::barrier<> line(2 * streams + 1);
  Status complete;  // set before the others pass the line
  std::vector<std::jthread> team;
  for (size_t i = 0; i < count; ++i) {
    const Share share{work, blocks * i / count, blocks * (i + 1) / count};
    for (const bool sends : {true, false}) {
      auto thread = StartThread("gantry-ceiling", [&, share, sends, i] {
        line.arrive_and_wait();
        if (!complete) return line.arrive_and_drop();
        const Connection& connection = connections[i];
        const bool moved = sends ? Send(connection.sender.get(), share)
                                 : Receive(connection.receiver.get(), share);
        if (!moved) failed = true;
        line.arrive_and_wait();
      });
      if (thread) {
        team.push_back(*std::move(thread));
      } else {
        complete = Fail(std::move(thread).error());
        line.arrive_and_drop();
      }
    }
  }
  line.arrive_and_wait();
  const TimePoint start = Clock::now();
  line.arrive_and_wait();
  const double seconds = SecondsBetween(start, Clock::now());
  RETURN_IF_ERROR(complete);
  if (failed) return Fail(ErrorCode::kInternal, "a plain connection over loopback broke");
  return seconds;
}

std::optional<double> IperfGigabytes(int streams) {
  const std::string port = std::string(" -p ") + kIperfPort;
  const std::string report = OutputOf(
      "command -v iperf3 >/dev/null || exit 1; "
      "iperf3 -s -1 -B 127.0.0.1" +
      port +
      " >/dev/null 2>&1 & sleep 0.3; "
      "iperf3 -c 127.0.0.1 -t 2 -J -P " +
      std::to_string(streams) + port + " 2>/dev/null");
  const auto parsed = nlohmann::json::parse(report, nullptr, false);
  if (!parsed.is_object()) return std::nullopt;
  const nlohmann::json::json_pointer at("/end/sum_received/bits_per_second");
  if (!parsed.contains(at) || !parsed[at].is_number()) return std::nullopt;
  return parsed[at].get<double>() / 8e9;
}

}  // namespace gantry::bench
