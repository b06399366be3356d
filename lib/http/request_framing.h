// Finds the end of an HTTP/1.1 request in the bytes received so far. Refuses input that the HTTP
// library would accept too leniently: chunked or repeated lengths, endless lines, control
// characters. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::http {

// Limits of every head, as docs/rest_api.yaml states them.
inline constexpr size_t kHeadBytesMax = 16 << 10;
inline constexpr size_t kTargetBytesMax = 2 << 10;
inline constexpr size_t kHeadersMax = 100;

struct FramingLimits {
  size_t head_bytes_max = kHeadBytesMax;
  size_t target_bytes_max = kTargetBytesMax;
  size_t headers_max = kHeadersMax;
  size_t body_bytes_max = 8 << 20;
};

// Why a request is refused before it is parsed. error_response.h maps these to responses.
enum class Refusal {
  kMalformed,
  kTimeout,
  kLengthRequired,  // Transfer-Encoding
  kBodyTooLarge,
  kTargetTooLong,
  kEncoding,  // Content-Encoding
  kHeadTooLarge,
  kVersion,  // neither HTTP/1.0 nor 1.1
};

struct Framing {
  enum class State { kIncomplete, kComplete, kRefused };
  State state = State::kIncomplete;
  Refusal refusal = Refusal::kMalformed;  // valid for kRefused
  size_t head_bytes = 0;                  // includes the empty line; 0: incomplete
  size_t body_bytes = 0;                  // as the head states; may exceed the bytes received
  bool expects_continue = false;  // the client waits for "100 Continue" before it sends the body
  size_t scanned = 0;             // the head does not end before this
};

// Continues `so_far` now that `size` bytes from the same start are there. Checks the head once it
// is complete. Renames headers in place that the library must not act on.
Framing FrameRequest(const Framing& so_far, char* bytes, size_t size, const FramingLimits& limits);

}  // namespace gantry::http
