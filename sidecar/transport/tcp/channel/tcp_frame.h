// What two sidecars say on a data connection: a header of 48 bytes, a control part, a payload.
// docs/decisions/0006-tcp.md has the picture. Encoding and decoding are pure; nothing is allocated
// before the sizes that it depends on are checked. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::transport {

// Since version 2 a request says its transfer's priority.
inline constexpr uint16_t kTcpVersion = 2;
inline constexpr uint16_t kTcpVersionMin = 1;
inline constexpr size_t kFrameHeaderBytes = 48;
inline constexpr uint32_t kFrameControlBytesMax = 96 << 10;
inline constexpr uint32_t kFramePayloadBytesMax = 4 << 20;
inline constexpr size_t kFrameRangesMax = 4096;
inline constexpr size_t kFrameSectionsMax = 256;
inline constexpr size_t kBufferIdBytesMax = 128;
inline constexpr size_t kTicketBytes = 32;  // hexadecimal digits of 128 random bits

enum class FrameType : uint8_t {
  kHello = 1,    // initiator: the ticket; the first frame
  kWelcome = 2,  // target: accepted, or why not
  kRead = 3,     // initiator: ranges
  kData = 4,     // target: their bytes
  kWrite = 5,    // initiator: ranges, and the bytes for them
  kDone = 6,     // target: a write was applied, or a request was refused
  kPing = 7,     // initiator, when nothing else is said
  kPong = 8,
};

enum class FrameStatus : uint16_t {
  kOk = 0,
  kRefused = 1,       // the control part has a problem; nothing was moved
  kLeaseExpired = 2,  // a write whose time was over: not, or only partly, applied
  kDamaged = 3,       // a write whose payload did not have its checksum
};

struct FrameHeader {
  FrameType type = FrameType::kPing;
  bool has_payload_crc = false;
  FrameStatus status = FrameStatus::kOk;
  uint32_t control_bytes = 0;
  uint32_t payload_bytes = 0;
  uint64_t request = 0;  // counts up in a connection; answers have it from their request
  // From the target: its monotonic clock, ns. In a write: when its lease ends, on that clock.
  uint64_t clock = 0;
  uint32_t payload_crc = 0;
  uint32_t control_crc = 0;

  bool operator==(const FrameHeader&) const = default;
};

// Who receives the frame: each side accepts only what the other one may say.
enum class FrameReader { kTarget, kInitiator };

void EncodeHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);
// Fails on everything that an honest sender does not say. Sizes are within the limits above.
Result<FrameHeader> DecodeHeader(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                 FrameReader reader);
Status CheckControl(const FrameHeader& header, std::span<const std::byte> control);

struct WireRange {
  uint64_t offset = 0;  // flat, within the buffer
  uint32_t length = 0;  // never 0
};
// A buffer by its id and generation, and `ranges` of RequestBody::ranges from `first_range` on.
struct RequestSection {
  std::string buffer;
  uint64_t generation = 0;
  uint32_t first_range = 0;
  uint32_t ranges = 0;
};
// The control part of a read or a write. The payload has the ranges' bytes in this order.
struct RequestBody {
  std::vector<RequestSection> sections;
  std::vector<WireRange> ranges;
  uint32_t bytes = 0;  // sum of the lengths, at most kFramePayloadBytesMax
  int priority = 0;    // of the transfer
};
// REQUIRES that the body is within the limits. `version`: of the connection.
std::string EncodeRequest(const RequestBody& body, uint16_t version = kTcpVersion);
Result<RequestBody> DecodeRequest(std::span<const std::byte> control);

struct HelloBody {
  uint16_t version_min = kTcpVersionMin;
  uint16_t version_max = kTcpVersion;
  std::string ticket;  // kTicketBytes long
};
std::string EncodeHello(const HelloBody& body);
Result<HelloBody> DecodeHello(std::span<const std::byte> control);

struct WelcomeBody {
  uint16_t version = kTcpVersion;
  uint16_t requests_max = 0;  // unanswered at the same time; more are not read
};
std::string EncodeWelcome(const WelcomeBody& body);
Result<WelcomeBody> DecodeWelcome(std::span<const std::byte> control);

// An error as a refusal carries it: its code and message, cut to a bounded length.
std::string EncodeProblem(const Error& error);
Result<Error> DecodeProblem(std::span<const std::byte> control);

}  // namespace gantry::transport
