// The frames of a data connection: a header of 48 bytes, a control part, a payload.
// docs/decisions/0006-tcp.md shows the layout. Encoding and decoding are pure. Sizes are checked
// before anything is allocated by them. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace gantry::transport {

// Version 2 added the transfer's priority to requests.
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
  kPing = 7,     // initiator, on an idle connection
  kPong = 8,
};

enum class FrameStatus : uint16_t {
  kOk = 0,
  kRefused = 1,       // the control part has the error; nothing was moved
  kLeaseExpired = 2,  // a write past its deadline: not or partly applied
  kDamaged = 3,       // a write whose payload did not match its checksum
};

struct FrameHeader {
  FrameType type = FrameType::kPing;
  bool has_payload_crc = false;
  FrameStatus status = FrameStatus::kOk;
  uint32_t control_bytes = 0;
  uint32_t payload_bytes = 0;
  uint64_t request = 0;  // increases within a connection; answers repeat it
  // In nanoseconds of the target's monotonic clock. From the target: its time. In a write: the end
  // of its lease.
  uint64_t clock = 0;
  uint32_t payload_crc = 0;
  uint32_t control_crc = 0;

  bool operator==(const FrameHeader&) const = default;
};

// The side that receives the frame; it accepts only frames of the other side.
enum class FrameReader { kTarget, kInitiator };

void EncodeHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);
// Fails on everything that an honest sender does not send. Sizes are within the limits above.
Result<FrameHeader> DecodeHeader(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                 FrameReader reader);
Status CheckControl(const FrameHeader& header, std::span<const std::byte> control);

struct WireRange {
  uint64_t offset = 0;  // within the flat buffer
  uint32_t length = 0;  // never 0
};
// A buffer by id and generation, with RequestBody::ranges [first_range, first_range + ranges).
struct RequestSection {
  std::string buffer;
  uint64_t generation = 0;
  uint32_t first_range = 0;
  uint32_t ranges = 0;
};
// The control part of a read or a write. The payload holds the ranges' bytes in this order.
struct RequestBody {
  std::vector<RequestSection> sections;
  std::vector<WireRange> ranges;
  uint32_t bytes = 0;  // sum of the lengths; at most kFramePayloadBytesMax
  int priority = 0;    // the transfer's
};
// REQUIRES that the body is within the limits. `version` is the connection's.
std::string EncodeRequest(const RequestBody& body, uint16_t version = kTcpVersion);
Result<RequestBody> DecodeRequest(std::span<const std::byte> control);

struct HelloBody {
  uint16_t version_min = kTcpVersionMin;
  uint16_t version_max = kTcpVersion;
  std::string ticket;  // kTicketBytes characters
};
std::string EncodeHello(const HelloBody& body);
Result<HelloBody> DecodeHello(std::span<const std::byte> control);

struct WelcomeBody {
  uint16_t version = kTcpVersion;
  uint16_t requests_max = 0;  // unanswered requests; the target reads no more
};
std::string EncodeWelcome(const WelcomeBody& body);
Result<WelcomeBody> DecodeWelcome(std::span<const std::byte> control);

// An error as refusals carry it: its code and its message, cut to a bounded length.
std::string EncodeProblem(const Error& error);
Result<Error> DecodeProblem(std::span<const std::byte> control);

}  // namespace gantry::transport
