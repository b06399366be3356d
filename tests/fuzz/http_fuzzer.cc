// Any bytes on a REST connection: framed as a whole and in pieces with the same result, and what is
// complete is read, asked and answered.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lib/http/http_interpreter.h"
#include "lib/http/request_framing.h"

namespace gantry::http {
namespace {

void Demand(bool holds) {
  if (!holds) std::abort();
}

FramingLimits Limits() {
  FramingLimits limits;
  limits.head_bytes_max = 4096;
  limits.target_bytes_max = 512;
  limits.headers_max = 20;
  limits.body_bytes_max = 8192;
  return limits;
}

// Answers with what it sees and the body.
Response Echo(const Request& request) {
  Demand(request.path.starts_with('/') && !request.method.empty());
  Response response;
  response.content_type = "text/plain";
  for (const std::string_view text :
       {request.method, request.path, request.name, request.content_type, request.accept,
        request.authorization, request.last_event_id, request.body}) {
    response.body.append(text).append("\n");
  }
  for (const auto& [name, value] : *request.query) {
    Demand(name.size() + value.size() < 2048);
    response.body.append(name).append("=").append(value).append("\n");
  }
  return response;
}

void Answer(std::string_view head, std::string_view body) {
  static HttpInterpreter* const interpreter = new HttpInterpreter(Echo);
  HttpInterpreter::Call call;
  call.head = head;
  call.body = body;
  std::string out;
  interpreter->Run(call, &out);
  Demand(out.starts_with("HTTP/1.1 ") && out.find("\r\n\r\n") != std::string::npos);
}

Framing FrameInPieces(std::string bytes, size_t step) {
  Framing framing;
  for (size_t size = 0; size < bytes.size() && framing.state == Framing::State::kIncomplete;) {
    size = std::min(bytes.size(), size + step);
    framing = FrameRequest(framing, bytes.data(), size, Limits());
  }
  return framing;
}

void Fuzz(std::string bytes) {
  const size_t step = bytes.empty() ? 1 : 1 + static_cast<uint8_t>(bytes.back()) % 97;
  const Framing in_pieces = FrameInPieces(bytes, step);
  const Framing framing = FrameRequest({}, bytes.data(), bytes.size(), Limits());
  if (framing.state == Framing::State::kComplete) {
    Demand(in_pieces.state == framing.state && in_pieces.head_bytes == framing.head_bytes &&
           in_pieces.body_bytes == framing.body_bytes);
  }
  if (framing.state != Framing::State::kComplete) return;
  Demand(framing.head_bytes + framing.body_bytes <= bytes.size());
  Answer(std::string_view(bytes).substr(0, framing.head_bytes),
         std::string_view(bytes).substr(framing.head_bytes, framing.body_bytes));
}

}  // namespace
}  // namespace gantry::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gantry::http::Fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
