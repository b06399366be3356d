// Feeds the client what a hostile server could answer, whole and in parts: both readings agree, and
// no reply makes the readers of its body do more than refuse it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "client/session/client_json.h"
#include "lib/http/http_reply_parser.h"
#include "lib/http/reply_problem.h"

namespace gantry::client {
namespace {

// The reply that `text` is, delivered in parts of `step` bytes.
std::optional<http::HttpReply> Read(std::string_view text, size_t step) {
  http::HttpReplyParser parser;
  for (size_t at = 0; at < text.size(); at += step) {
    const auto complete = parser.Take(text.substr(at, step));
    if (!complete) return std::nullopt;
    if (*complete) return parser.TakeReply();
  }
  const auto complete = parser.TakeEnd();
  if (!complete || !*complete) return std::nullopt;
  return parser.TakeReply();
}

void Check(std::string_view text) {
  const auto whole = Read(text, text.size() + 1);
  const auto parts = Read(text, 3);
  if (whole && parts && whole->body != parts->body) std::abort();
  const std::string body = whole ? whole->body : std::string(text);
  static_cast<void>(ReadLease(body));
  static_cast<void>(ReadBuffers(body));
  if (const auto transfer = ReadTransfer(body)) static_cast<void>(transfer->Json());
  static_cast<void>(http::BodyOrProblem(http::HttpReply{400, body}));
}

}  // namespace
}  // namespace gantry::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gantry::client::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
