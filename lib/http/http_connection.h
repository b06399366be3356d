// One client's connection: bounded buffers around a socket that never blocks, and where in a
// request or response it is. Used by one thread at a time.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/adaptive_spin.h"
#include "lib/base/clock.h"
#include "lib/base/unique_fd.h"
#include "lib/http/http_interpreter.h"
#include "lib/http/request_framing.h"

namespace gantry::http {

struct ConnectionLimits {
  FramingLimits framing;
  milliseconds request_time_max{10'000};   // from its first byte to its last
  milliseconds response_time_max{30'000};  // until the client has taken all of it
  milliseconds idle_time_max{300'000};     // between requests
  // Looked for the next request before it is waited for: engines ask in a loop, and the next one
  // often comes as soon as they have read the response.
  microseconds input_spin{400};
  size_t large_bytes_max = 256 << 20;  // of all bodies that are being received, together
};

// What all connections of a server share.
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
  // Sends and receives what can be without waiting.
  State Advance();

  // After kHasRequest: the request, valid until EndRequest. The response goes to response().
  HttpInterpreter::Call request();
  std::string* response() { return &output_; }
  // False: the connection ends with the response.
  void EndRequest(bool keep_open);

  // Answers with these bytes, whatever was received, and ends.
  void EndWith(std::string last_response);

  // Sends the rest of the response, waiting for the client until `deadline`.
  void Drain(TimePoint deadline);
  // No byte of a request has come, and none of a response is left.
  bool is_idle() const { return input_.empty() && output_.empty() && !ends_; }
  // A request was answered.
  bool has_served() const { return served_; }
  // The client began a request and has not finished it.
  bool is_in_request() const { return !input_.empty() && output_.empty() && !ends_; }
  // Whether the next request comes so soon that waiting for it is better than to be woken for it.
  // REQUIRES is_idle().
  bool SpinForInput();
  // When the state it is in has lasted too long.
  TimePoint deadline() const { return deadline_; }
  // Since when it is in that state.
  TimePoint since() const { return since_; }
  int socket() const { return socket_.get(); }
  // Wakes whoever waits for this client; for other threads, while the connection is in use.
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
  size_t sent_ = 0;       // of output_
  size_t charged_ = 0;    // of share_->large_bytes
  size_t discarded_ = 0;  // bytes received after the last response
  bool ends_ = false;     // after output_
  bool served_ = false;   // a request
  bool lingers_ = false;  // all is sent; waits for the client to close
  TimePoint since_;
  TimePoint deadline_;
  AdaptiveSpin spin_;
  std::optional<TimePoint> spun_in_vain_;
};

}  // namespace gantry::http
