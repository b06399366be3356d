// Finds where an HTTP/1.1 request ends in the bytes that came so far, and refuses what the library
// behind it reads too kindly: chunked or repeated lengths, endless lines, control characters.
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::http {

// What docs/rest_api.yaml says of every head; nothing else decides.
inline constexpr size_t kHeadBytesMax = 16 << 10;
inline constexpr size_t kTargetBytesMax = 2 << 10;
inline constexpr size_t kHeadersMax = 100;

struct FramingLimits {
  size_t head_bytes_max = kHeadBytesMax;
  size_t target_bytes_max = kTargetBytesMax;
  size_t headers_max = kHeadersMax;
  size_t body_bytes_max = 8 << 20;
};

// Why a request is refused before anyone reads it; error_response.h says how that is answered.
enum class Refusal {
  kMalformed,
  kTimeout,
  kLengthRequired,  // Transfer-Encoding
  kBodyTooLarge,
  kTargetTooLong,
  kEncoding,  // Content-Encoding
  kHeadTooLarge,
  kVersion,  // not HTTP/1.0 or 1.1
};

struct Framing {
  enum class State { kIncomplete, kComplete, kRefused };
  State state = State::kIncomplete;
  Refusal refusal = Refusal::kMalformed;  // of kRefused
  size_t head_bytes = 0;                  // with the empty line; 0: not all there yet
  size_t body_bytes = 0;                  // as the head says; may be more than is there
  bool expects_continue = false;          // waits for "100 Continue" before it sends the body
  size_t scanned = 0;                     // no end of the head before this
};

// Goes on where `so_far` ended, now that there are `size` bytes from the same start. As soon as the
// head is complete it is checked, and headers that the library must not act on are renamed in
// place.
Framing FrameRequest(const Framing& so_far, char* bytes, size_t size, const FramingLimits& limits);

}  // namespace gantry::http
