#include "lib/http/http_interpreter.h"

#include <httplib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/http/error_response.h"
#include "lib/http/long_lines.h"

namespace gantry::http {
namespace {

// What httplib reads from and writes to in the place of a socket.
class ExchangeStream final : public httplib::Stream {
 public:
  // `shown`: of the head.
  ExchangeStream(const HttpInterpreter::Call& call, std::string_view shown, std::string* out)
      : call_(call), rest_(shown), out_(out) {}

  const HttpInterpreter::Call& call() const { return call_; }
  void StreamFromNowOn() { streams_ = true; }
  bool streams() const { return streams_; }

  bool is_readable() const override { return !rest_.empty(); }
  bool is_writable() const override { return !failed_; }
  ssize_t read(char* to, size_t size) override {
    const size_t taken = std::min(size, rest_.size());
    std::memcpy(to, rest_.data(), taken);
    rest_.remove_prefix(taken);
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* bytes, size_t size) override {
    if (!streams_) {
      out_->append(bytes, size);
    } else if (failed_ || !call_.channel->SendNow({bytes, size})) {
      failed_ = true;
      return -1;
    }
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  const HttpInterpreter::Call& call_;
  std::string_view rest_;
  std::string* const out_;
  bool streams_ = false;
  bool failed_ = false;
};

constexpr int kStreamsMax = 32;  // each holds a thread
constexpr const char* kUnhandled = "the request could not be handled";

// The stream of the request that this thread is in: httplib does not hand it to handlers.
thread_local ExchangeStream* current_stream = nullptr;

std::string_view HeaderOf(const httplib::Request& request, std::string_view head,
                          const char* name) {
  const auto found = request.headers.find(name);
  if (found != request.headers.end()) return found->second;
  return head.size() > kShortLineBytesMax ? LongValueOf(head, name) : std::string_view();
}

Request RequestOf(const httplib::Request& from, const HttpInterpreter::Call& call) {
  Request request;
  request.body = call.body;
  request.uid = call.uid;
  request.may_wait = call.may_wait;
  request.is_wanted = [channel = call.channel] {
    return channel == nullptr || channel->IsWanted();
  };
  request.method = from.method == "HEAD" ? std::string_view("GET") : from.method;
  request.path = from.path;
  request.content_type = HeaderOf(from, call.head, "Content-Type");
  request.accept = HeaderOf(from, call.head, "Accept");
  request.authorization = HeaderOf(from, call.head, "Authorization");
  request.last_event_id = HeaderOf(from, call.head, "Last-Event-ID");
  request.query = &from.params;
  return request;
}

void StreamBody(ExchangeStream* stream, Response from, httplib::Response* to) {
  stream->StreamFromNowOn();
  to->set_header("Cache-Control", "no-store");
  to->set_chunked_content_provider(from.content_type,
                                   [stream, next = std::move(from.stream), chunk = std::string()](
                                       size_t, httplib::DataSink& sink) mutable {
                                     if (!stream->call().channel->IsWanted()) return false;
                                     chunk.clear();
                                     if (!next(&chunk)) {
                                       sink.done();
                                     } else if (!chunk.empty()) {
                                       sink.write(chunk.data(), chunk.size());
                                     }
                                     return true;
                                   });
}

void Answer(ExchangeStream* stream, Response from, httplib::Response* to) {
  to->status = from.status;
  for (const auto& [name, value] : from.headers) to->set_header(name.c_str(), value.c_str());
  if (from.stream) {
    StreamBody(stream, std::move(from), to);
    return;
  }
  if (!from.content_type.empty()) to->set_header("Content-Type", from.content_type);
  to->body = std::move(from.body);
}

// What the system has run out of is no bug of the handler.
ErrorCode CodeOf(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) {
    return ErrorCode::kResourceExhausted;
  }
  const auto* const refused = dynamic_cast<const std::system_error*>(&failure);
  if (refused == nullptr || refused->code().category() != std::generic_category()) {
    return ErrorCode::kInternal;
  }
  switch (refused->code().value()) {
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kInternal;
  }
}

Response Unhandled(const Request& request, const std::exception& failure) {
  log::Error("a request handler failed", {{"path", request.path}, {"what", failure.what()}});
  if (CodeOf(failure) == ErrorCode::kInternal) {
    return ErrorResponse(Error(ErrorCode::kInternal, kUnhandled));
  }
  return ErrorResponse(Error(ErrorCode::kResourceExhausted,
                             std::string(kUnhandled) + ": " + failure.what(),
                             "memory, descriptors or threads of the sidecar's pod are used up"));
}

Response CallHandler(const Handler& handler, const Request& request) try {
  return handler(request);
} catch (const std::exception& failure) {
  return Unhandled(request, failure);
} catch (...) {
  log::Error("a request handler failed", {{"path", request.path}});
  return ErrorResponse(Error(ErrorCode::kInternal, kUnhandled));
}

}  // namespace

// Everything is answered before httplib looks for a body, a file or a route.
class HttpInterpreter::Dialect final : public httplib::Server {
 public:
  explicit Dialect(http::Handler handler) {
    set_keep_alive_max_count(1'000'000);
    set_pre_routing_handler(
        [this, handler = std::move(handler)](const httplib::Request& from, httplib::Response& to) {
          Response response = CallHandler(handler, RequestOf(from, current_stream->call()));
          if (response.stream && ++streams_ > kStreamsMax) {
            --streams_;
            response = ErrorResponse(
                Error(ErrorCode::kResourceExhausted, "too many streams are open", "close one"));
          }
          Answer(current_stream, std::move(response), &to);
          return httplib::Server::HandlerResponse::Handled;
        });
    // What httplib itself refuses: methods that it does not know, lines that it cannot read.
    set_error_handler(httplib::Server::Handler([](const httplib::Request&, httplib::Response& to) {
      if (to.body.empty()) Answer(current_stream, RefusalResponse(Refusal::kMalformed), &to);
    }));
    set_exception_handler(
        [](const httplib::Request&, httplib::Response& to, const std::exception_ptr&) {
          Answer(current_stream, ErrorResponse(Error(ErrorCode::kInternal, kUnhandled)), &to);
        });
    svr_sock_ = 0;  // "not shutting down": streams go on; nothing else reads it
  }

  bool Run(const Call& call, std::string* out) {
    const bool has_long = call.head.size() > kShortLineBytesMax;
    const std::string kept = has_long ? WithoutLongLines(call.head) : std::string();
    ExchangeStream stream(call, has_long ? std::string_view(kept) : call.head, out);
    current_stream = &stream;
    bool closed = call.close_after;
    const bool answered = process_request(stream, call.close_after, closed, [](auto&) {});
    if (stream.streams()) --streams_;
    return answered && !closed && !stream.streams();
  }
  void StopStreams() { svr_sock_ = INVALID_SOCKET; }

 private:
  std::atomic<int> streams_ = 0;
};

HttpInterpreter::HttpInterpreter(Handler handler)
    : dialect_(std::make_unique<Dialect>(std::move(handler))) {}
HttpInterpreter::~HttpInterpreter() = default;

bool HttpInterpreter::Run(const Call& call, std::string* out) try {
  return dialect_->Run(call, out);
} catch (const std::exception& failure) {
  log::Error("a request could not be read or answered", {{"what", failure.what()}});
  return false;
}
void HttpInterpreter::StopStreams() { dialect_->StopStreams(); }

}  // namespace gantry::http
