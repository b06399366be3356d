#include "lib/net/tcp_connect.h"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/poll_fd.h"

namespace gantry::net {
namespace {

constexpr milliseconds kStagger{250};
constexpr milliseconds kLookForCancel{20};

// The attempts of one ConnectAny.
class ConnectRace {
 public:
  explicit ConnectRace(std::span<const SocketAddress> addresses) : addresses_(addresses) {}

  bool untried() const { return next_ < addresses_.size(); }
  bool waiting() const { return !attempts_.empty(); }
  size_t failed() const { return failed_; }

  // Begins with the next address; answers when that connected at once.
  std::optional<Connected> BeginNext() {
    const SocketAddress& address = addresses_[next_++];
    UniqueFd socket(
        ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!socket.valid()) {
      NoteFailure(SystemError(
          errno == EAFNOSUPPORT ? ErrorCode::kPeerUnavailable : ErrorCode::kResourceExhausted,
          address.Text(), errno));
    } else if (::connect(socket.get(), address.get(), address.bytes) == 0) {
      return Connected{std::move(socket), address};
    } else if (errno == EINPROGRESS) {
      polls_.push_back({socket.get(), POLLOUT, 0});
      attempts_.push_back({std::move(socket), address});
    } else {
      NoteFailure(SystemError(ErrorCode::kPeerUnavailable, address.Text(), errno));
    }
    return std::nullopt;
  }

  // Waits until then for an attempt to end. Answers with one that connected; an attempt that
  // failed is dropped.
  std::optional<Connected> Await(TimePoint until) {
    if (::poll(polls_.data(), polls_.size(), MillisecondsUntil(until)) <= 0) return std::nullopt;
    for (size_t i = 0; i < polls_.size(); ++i) {
      if (polls_[i].revents == 0) continue;
      Connected attempt = std::move(attempts_[i]);
      attempts_.erase(attempts_.begin() + static_cast<ptrdiff_t>(i));
      polls_.erase(polls_.begin() + static_cast<ptrdiff_t>(i));
      int error = 0;
      socklen_t bytes = sizeof(error);
      ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      if (error == 0) return attempt;
      NoteFailure(SystemError(ErrorCode::kPeerUnavailable, attempt.address.Text(), error));
      return std::nullopt;  // the next one may begin
    }
    return std::nullopt;
  }

  // Why there is no connection; `waiting` ones did not answer.
  Error Failure(TimePoint began) const {
    Error failure = failure_.value_or(Error(ErrorCode::kPeerUnavailable, ""));
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
    for (const Connected& attempt : attempts_) {
      failure.code = ErrorCode::kDeadlineExceeded;
      failure.message += (failure.message.empty() ? "" : "; ") + attempt.address.Text() +
                         ": no answer within " + std::to_string(waited.count()) + " ms";
    }
    return std::move(failure).WithContext("connecting");
  }

 private:
  void NoteFailure(Error error) {
    ++failed_;
    if (failure_) error.message = failure_->message + "; " + error.message;
    failure_ = std::move(error);
  }

  const std::span<const SocketAddress> addresses_;
  size_t next_ = 0;
  std::vector<Connected> attempts_;
  std::vector<pollfd> polls_;  // of the attempts, in their order
  size_t failed_ = 0;
  std::optional<Error> failure_;  // of those that failed, one after the other
};

}  // namespace

Result<Connected> ConnectAny(std::span<const SocketAddress> addresses, TimePoint deadline,
                             const Cancelled& cancelled) {
  const TimePoint began = Clock::now();
  const auto share = std::max<nanoseconds>(deadline - began, nanoseconds(0)) /
                     (2 * std::max<size_t>(addresses.size(), 1));
  const nanoseconds stagger = std::min<nanoseconds>(kStagger, share);
  ConnectRace race(addresses);
  while (race.untried() || race.waiting()) {
    const size_t failed_before = race.failed();  // the next attempt may fail at once
    if (race.untried()) {
      if (auto connected = race.BeginNext()) return *std::move(connected);
    }
    const TimePoint turn = race.untried() ? std::min(deadline, Clock::now() + stagger) : deadline;
    while (race.waiting() && race.failed() == failed_before && Clock::now() < turn) {
      if (cancelled && cancelled()) return Fail(ErrorCode::kCancelled, "connecting was stopped");
      const TimePoint look = cancelled ? Clock::now() + kLookForCancel : turn;
      if (auto connected = race.Await(std::min(look, turn))) return *std::move(connected);
    }
    if (Clock::now() >= deadline) break;
  }
  return Fail(race.Failure(began));
}

}  // namespace gantry::net
