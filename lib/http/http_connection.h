// One client's connection: bounded buffers around a non-blocking socket, and its state within a
// request or response. Used by one thread at a time.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/clock.h"
#include "lib/base/unique_fd.h"
#include "lib/http/http_interpreter.h"
#include "lib/http/request_framing.h"

namespace gantry::http {

struct ConnectionLimits {
  FramingLimits framing;
  milliseconds request_time_max{10'000};   // from its first byte to its last
  milliseconds response_time_max{30'000};  // until the client has received all of it
  milliseconds idle_time_max{300'000};     // between requests
  // Polling for the next request before the connection is parked. Engines call in a loop, so the
  // next request often follows the response at once.
  microseconds input_spin{400};
  size_t large_bytes_max = 256 << 20;  // total of the bodies being received
};

// Shared by all connections of a server.
struct ConnectionShare {
  const ConnectionLimits limits;
  std::atomic<size_t> large_bytes = 0;
  std::atomic<bool> stopping = false;
};

class HttpConnection final : public ResponseChannel {
 public:
  HttpConnection(UniqueFd socket, std::optional<uid_t> uid, ConnectionShare* share);
  ~HttpConnection() override;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  enum class State { kHasRequest, kWantsInput, kWantsOutput, kEnded };
  // Sends and receives as much as possible without blocking.
  State Advance();

  // After kHasRequest: returns the request, valid until EndRequest. Write the response to
  // response().
  HttpInterpreter::Call request();
  std::string* response() { return &output_; }
  // `keep_open` false ends the connection after the response.
  void EndRequest(bool keep_open);

  // Sends these bytes as the last response, whatever was received.
  void EndWith(std::string last_response);

  // Sends the rest of the response; blocks until `deadline` at most.
  void Drain(TimePoint deadline);
  // True between requests: nothing received, nothing left to send.
  bool is_idle() const { return input_.empty() && output_.empty() && !ends_; }
  // True once a request was answered.
  bool has_served() const { return served_; }
  // True when a request was begun but is incomplete.
  bool is_in_request() const { return !input_.empty() && output_.empty() && !ends_; }
  // Looks for input for limits.input_spin. REQUIRES is_idle().
  bool SpinForInput();
  // End of the current state's time limit.
  TimePoint deadline() const { return deadline_; }
  // Start of the current state.
  TimePoint since() const { return since_; }
  int socket() const { return socket_.get(); }
  // Ends waits for this client, from another thread, while the connection is in use.
  void Cut();

  bool SendNow(std::string_view bytes) override;
  bool IsWanted() override;

 private:
  bool Flush();
  bool HasInput();
  State Receive();
  State Linger();
  ssize_t ReceiveSome();
  bool ChargeInput();
  void SetDeadline(milliseconds after) {
    since_ = Clock::now();
    deadline_ = since_ + after;
  }

  const UniqueFd socket_;
  const std::optional<uid_t> uid_;
  ConnectionShare* const share_;

  std::string input_;
  Framing framing_;
  bool continued_ = false;  // "100 Continue" was sent
  std::string output_;
  size_t sent_ = 0;       // bytes of output_
  size_t charged_ = 0;    // bytes of share_->large_bytes
  size_t discarded_ = 0;  // bytes received after the last response
  bool ends_ = false;     // closes after output_
  bool served_ = false;   // at least one request
  bool lingers_ = false;  // all is sent; waiting for the client to close
  TimePoint since_;
  TimePoint deadline_;
};

}  // namespace gantry::http
