#include "lib/http/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lib/base/bounded_spin.h"
#include "lib/base/error.h"
#include "lib/base/poll_fd.h"
#include "lib/http/error_response.h"

namespace gantry::http {
namespace {

// What a connection may hold without being counted, and keeps between requests.
constexpr size_t kSmallBytesMax = 64 << 10;
// A request that names some hundred blocks comes whole.
constexpr size_t kHeadReadBytes = 16 << 10;
constexpr size_t kBodyReadBytesMin = 4096;
constexpr size_t kBodyReadBytesMax = 256 << 10;
// After the last response, the rest of what the client sends is read, so that the response is not
// lost to a reset.
constexpr size_t kDiscardBytesMax = 16 << 20;
constexpr milliseconds kLingerTime{2'000};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

void ClearKeepingLittle(std::string* text) {
  text->clear();
  if (text->capacity() > kSmallBytesMax) text->shrink_to_fit();
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

HttpConnection::HttpConnection(UniqueFd socket, std::optional<uid_t> uid, ConnectionShare* share)
    : socket_(std::move(socket)), uid_(uid), share_(share) {
  SetDeadline(share_->limits.request_time_max);
}

HttpConnection::~HttpConnection() { share_->large_bytes -= charged_; }

HttpConnection::State HttpConnection::Advance() {
  if (!Flush()) return State::kEnded;
  if (!output_.empty()) return State::kWantsOutput;
  return ends_ ? Linger() : Receive();
}

HttpConnection::State HttpConnection::Receive() {
  for (;;) {
    framing_ = FrameRequest(framing_, input_.data(), input_.size(), share_->limits.framing);
    if (framing_.state == Framing::State::kComplete) return State::kHasRequest;
    if (framing_.state == Framing::State::kRefused) {
      EndWith(LastResponse(RefusalResponse(framing_.refusal)));
      return Advance();
    }
    if (framing_.expects_continue && !continued_) {
      continued_ = true;
      if (!SendNow(kContinue)) return State::kEnded;
    }
    const bool begins = input_.empty();
    const ssize_t received = ReceiveSome();
    if (received == 0 || (received < 0 && !WouldBlock())) return State::kEnded;
    if (received < 0) return State::kWantsInput;
    if (begins) SetDeadline(share_->limits.request_time_max);
    if (!ChargeInput()) {
      EndWith(LastResponse(ErrorResponse(
          Error(ErrorCode::kResourceExhausted, "too many large requests at once", "try again"))));
      return Advance();
    }
  }
}

// Into the string itself only what is large: it would have to be zeroed first, each time.
ssize_t HttpConnection::ReceiveSome() {
  const size_t size = input_.size();
  const size_t total = framing_.head_bytes + framing_.body_bytes;
  const size_t more = framing_.head_bytes == 0
                          ? kHeadReadBytes
                          : std::clamp(total - size, kBodyReadBytesMin, kBodyReadBytesMax);
  std::array<char, kHeadReadBytes> few;
  const bool is_large = more > few.size();
  if (is_large) input_.resize(size + more);
  char* const to = is_large ? input_.data() + size : few.data();
  ssize_t received = 0;
  do {
    received = ::recv(socket_.get(), to, more, 0);
  } while (received < 0 && errno == EINTR);
  const int error_number = errno;
  const auto taken = static_cast<size_t>(std::max<ssize_t>(received, 0));
  if (is_large) {
    input_.resize(size + taken);
  } else {
    input_.append(few.data(), taken);
  }
  errno = error_number;
  return received;
}

bool HttpConnection::ChargeInput() {
  const size_t large = input_.capacity() > kSmallBytesMax ? input_.capacity() : 0;
  if (large == charged_) return true;
  share_->large_bytes += large - charged_;  // wraps around to a subtraction where it shrank
  charged_ = large;
  return charged_ == 0 || share_->large_bytes <= share_->limits.large_bytes_max;
}

HttpConnection::State HttpConnection::Linger() {
  if (!lingers_) {
    lingers_ = true;
    ::shutdown(socket_.get(), SHUT_WR);
    SetDeadline(kLingerTime);
  }
  char bytes[kHeadReadBytes];
  for (;;) {
    const ssize_t received = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && WouldBlock()) return State::kWantsInput;
    if (received <= 0) return State::kEnded;
    discarded_ += static_cast<size_t>(received);
    if (discarded_ > kDiscardBytesMax) return State::kEnded;
  }
}

HttpInterpreter::Call HttpConnection::request() {
  HttpInterpreter::Call call;
  call.head = std::string_view(input_).substr(0, framing_.head_bytes);
  call.body = std::string_view(input_).substr(framing_.head_bytes, framing_.body_bytes);
  call.uid = uid_;
  call.channel = this;
  return call;
}

void HttpConnection::EndRequest(bool keep_open) {
  const size_t used = framing_.head_bytes + framing_.body_bytes;
  if (used == input_.size()) {
    ClearKeepingLittle(&input_);
  } else {
    input_.erase(0, used);
  }
  ChargeInput();
  framing_ = {};
  continued_ = false;
  served_ = true;
  ends_ = !keep_open;
  SetDeadline(!input_.empty()   ? share_->limits.request_time_max
              : output_.empty() ? share_->limits.idle_time_max
                                : share_->limits.response_time_max);
}

void HttpConnection::EndWith(std::string last_response) {
  ClearKeepingLittle(&input_);
  ChargeInput();
  output_ = std::move(last_response);
  sent_ = 0;
  ends_ = true;
  SetDeadline(share_->limits.response_time_max);
}

bool HttpConnection::Flush() {
  if (output_.empty()) return true;
  while (sent_ < output_.size()) {
    const ssize_t sent =
        ::send(socket_.get(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return WouldBlock();
    sent_ += static_cast<size_t>(sent);
  }
  ClearKeepingLittle(&output_);
  sent_ = 0;
  if (input_.empty()) SetDeadline(share_->limits.idle_time_max);
  return true;
}

void HttpConnection::Drain(TimePoint deadline) {
  while (Flush() && !output_.empty()) {
    pollfd writable{socket_.get(), POLLOUT, 0};
    if (::poll(&writable, 1, MillisecondsUntil(deadline)) == 0) return;
  }
}

bool HttpConnection::SendNow(std::string_view bytes) {
  output_ += bytes;
  Drain(Clock::now() + share_->limits.request_time_max);
  return output_.empty();
}

bool HttpConnection::IsWanted() {
  if (share_->stopping) return false;
  char byte = 0;
  const ssize_t received = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return received > 0 || (received < 0 && (WouldBlock() || errno == EINTR));
}

// Of the client's end, too.
bool HttpConnection::HasInput() {
  char byte = 0;
  return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !WouldBlock();
}

bool HttpConnection::SpinForInput() {
  const BoundedSpin spin(share_->limits.input_spin);
  return spin.Until([this] { return share_->stopping || HasInput(); });
}

void HttpConnection::Cut() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace gantry::http
