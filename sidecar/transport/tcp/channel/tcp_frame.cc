#include "sidecar/transport/tcp/channel/tcp_frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "lib/wire/transfer_request.h"
#include "sidecar/transport/tcp/channel/crc32c.h"

namespace gantry::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers cross the wire as they are");

constexpr uint16_t kVersionOfPriorities = 2;
constexpr uint32_t kMagic = 0x31465447;  // "GTF1"
constexpr uint8_t kHasPayloadCrc = 1;
constexpr size_t kHeaderCrcOffset = kFrameHeaderBytes - sizeof(uint32_t);
constexpr size_t kProblemTextMax = 512;
constexpr size_t kHelloBytes = 2 * sizeof(uint16_t) + kTicketBytes;
constexpr size_t kRangeBytes = sizeof(uint64_t) + sizeof(uint32_t);

class Writer {
 public:
  explicit Writer(std::string* out) : out_(*out) {}
  template <typename Number>
  Writer& Put(Number number) {
    out_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  Writer& Text(std::string_view text) {
    out_.append(text);
    return *this;
  }

 private:
  std::string& out_;
};

// Reads past the end fail once and for all: check ok() before what was read is used.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <typename Number>
  Number Take() {
    Number number = 0;
    if (rest_.size() < sizeof(number)) return Miss<Number>();
    std::memcpy(&number, rest_.data(), sizeof(number));
    rest_ = rest_.subspan(sizeof(number));
    return number;
  }
  std::string_view Text(size_t bytes) {
    if (rest_.size() < bytes) return Miss<std::string_view>();
    const std::string_view text(reinterpret_cast<const char*>(rest_.data()), bytes);
    rest_ = rest_.subspan(bytes);
    return text;
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  template <typename Value>
  Value Miss() {
    ok_ = false;
    rest_ = {};
    return {};
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

tl::unexpected<Error> Malformed(std::string_view what) {
  return Fail(ErrorCode::kMalformedBody, "a frame is malformed: " + std::string(what));
}

bool MayCome(FrameType type, FrameReader reader) {
  switch (type) {
    case FrameType::kHello:
    case FrameType::kRead:
    case FrameType::kWrite:
    case FrameType::kPing:
      return reader == FrameReader::kTarget;
    case FrameType::kWelcome:
    case FrameType::kData:
    case FrameType::kDone:
    case FrameType::kPong:
      return reader == FrameReader::kInitiator;
  }
  return false;
}

bool HasPayload(FrameType type) { return type == FrameType::kData || type == FrameType::kWrite; }

bool HasControl(FrameType type) {
  return type != FrameType::kData && type != FrameType::kPing && type != FrameType::kPong;
}

}  // namespace

void EncodeHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out) {
  std::string text;
  text.reserve(kFrameHeaderBytes);
  Writer writer(&text);
  writer.Put(kMagic).Put(header.type);
  writer.Put(static_cast<uint8_t>(header.has_payload_crc ? kHasPayloadCrc : 0));
  writer.Put(header.status).Put(header.control_bytes).Put(header.payload_bytes);
  writer.Put(header.request).Put(header.clock).Put(header.payload_crc).Put(header.control_crc);
  writer.Put(uint32_t{0});
  writer.Put(Crc32c(0, text.data(), text.size()));
  std::memcpy(out.data(), text.data(), out.size());
}

Result<FrameHeader> DecodeHeader(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                 FrameReader reader_side) {
  Reader reader(bytes);
  if (reader.Take<uint32_t>() != kMagic) return Malformed("it does not begin like one");
  FrameHeader header;
  const auto type = reader.Take<uint8_t>();
  const auto flags = reader.Take<uint8_t>();
  const auto status = reader.Take<uint16_t>();
  header.control_bytes = reader.Take<uint32_t>();
  header.payload_bytes = reader.Take<uint32_t>();
  header.request = reader.Take<uint64_t>();
  header.clock = reader.Take<uint64_t>();
  header.payload_crc = reader.Take<uint32_t>();
  header.control_crc = reader.Take<uint32_t>();
  const auto reserved = reader.Take<uint32_t>();
  if (reader.Take<uint32_t>() != Crc32c(0, bytes.data(), kHeaderCrcOffset)) {
    return Malformed("its header does not have its checksum");
  }
  header.type = static_cast<FrameType>(type);
  header.status = static_cast<FrameStatus>(status);
  header.has_payload_crc = (flags & kHasPayloadCrc) != 0;
  if (!MayCome(header.type, reader_side)) return Malformed("its type is not expected here");
  if ((flags & ~kHasPayloadCrc) != 0 || reserved != 0) return Malformed("unknown flags");
  if (status > static_cast<uint16_t>(FrameStatus::kDamaged)) return Malformed("unknown status");
  if (header.type == FrameType::kHello && header.control_bytes != kHelloBytes) {
    return Malformed("a hello of " + std::to_string(header.control_bytes) + " bytes");
  }
  if (header.control_bytes > kFrameControlBytesMax ||
      (header.control_bytes > 0 && !HasControl(header.type))) {
    return Malformed("a control part of " + std::to_string(header.control_bytes) + " bytes");
  }
  if (header.payload_bytes > kFramePayloadBytesMax ||
      HasPayload(header.type) != (header.payload_bytes > 0)) {
    return Malformed("a payload of " + std::to_string(header.payload_bytes) + " bytes");
  }
  return header;
}

Status CheckControl(const FrameHeader& header, std::span<const std::byte> control) {
  if (Crc32c(0, control.data(), control.size()) == header.control_crc) return {};
  return Malformed("its control part does not have its checksum");
}

std::string EncodeRequest(const RequestBody& body, uint16_t version) {
  std::string text;
  text.reserve(4 + body.sections.size() * (12 + 32) + body.ranges.size() * kRangeBytes);
  Writer writer(&text);
  writer.Put(static_cast<uint16_t>(body.sections.size()));
  writer.Put(static_cast<int16_t>(version < kVersionOfPriorities ? 0 : body.priority));
  for (const RequestSection& section : body.sections) {
    writer.Put(section.generation).Put(static_cast<uint16_t>(section.buffer.size()));
    writer.Put(static_cast<uint16_t>(section.ranges)).Text(section.buffer);
    for (uint32_t i = 0; i < section.ranges; ++i) {
      const WireRange& range = body.ranges[section.first_range + i];
      writer.Put(range.offset).Put(range.length);
    }
  }
  return text;
}

Result<RequestBody> DecodeRequest(std::span<const std::byte> control) {
  Reader reader(control);
  const size_t sections = reader.Take<uint16_t>();
  const int priority = reader.Take<int16_t>();
  if (priority < -wire::kPriorityMax || priority > wire::kPriorityMax) {
    return Malformed("a priority of " + std::to_string(priority));
  }
  if (sections == 0 || sections > kFrameSectionsMax) {
    return Malformed(std::to_string(sections) + " sections");
  }
  RequestBody body;
  body.priority = priority;
  body.sections.reserve(sections);
  body.ranges.reserve(std::min(kFrameRangesMax, reader.left() / kRangeBytes));
  for (size_t i = 0; i < sections; ++i) {
    RequestSection section;
    section.generation = reader.Take<uint64_t>();
    const size_t id_bytes = reader.Take<uint16_t>();
    section.ranges = reader.Take<uint16_t>();
    if (id_bytes == 0 || id_bytes > kBufferIdBytesMax) return Malformed("a buffer id's length");
    section.buffer = reader.Text(id_bytes);
    section.first_range = static_cast<uint32_t>(body.ranges.size());
    if (section.ranges == 0 || section.ranges > kFrameRangesMax - body.ranges.size() ||
        section.ranges > reader.left() / kRangeBytes) {
      return Malformed(std::to_string(section.ranges) + " ranges");
    }
    for (uint32_t j = 0; j < section.ranges; ++j) {
      WireRange range;
      range.offset = reader.Take<uint64_t>();
      range.length = reader.Take<uint32_t>();
      if (range.length == 0 || range.length > kFramePayloadBytesMax - body.bytes) {
        return Malformed("a range of " + std::to_string(range.length) + " bytes");
      }
      body.bytes += range.length;
      body.ranges.push_back(range);
    }
    body.sections.push_back(std::move(section));
  }
  if (!reader.AtEnd()) return Malformed("its sections do not fill it");
  return body;
}

std::string EncodeHello(const HelloBody& body) {
  std::string text;
  Writer(&text).Put(body.version_min).Put(body.version_max).Text(body.ticket);
  return text;
}

Result<HelloBody> DecodeHello(std::span<const std::byte> control) {
  Reader reader(control);
  HelloBody body;
  body.version_min = reader.Take<uint16_t>();
  body.version_max = reader.Take<uint16_t>();
  body.ticket = reader.Text(kTicketBytes);
  if (!reader.AtEnd() || body.version_min > body.version_max) return Malformed("a hello");
  return body;
}

std::string EncodeWelcome(const WelcomeBody& body) {
  std::string text;
  Writer(&text).Put(body.version).Put(body.requests_max);
  return text;
}

Result<WelcomeBody> DecodeWelcome(std::span<const std::byte> control) {
  Reader reader(control);
  WelcomeBody body;
  body.version = reader.Take<uint16_t>();
  body.requests_max = reader.Take<uint16_t>();
  if (!reader.AtEnd() || body.requests_max == 0) return Malformed("a welcome");
  return body;
}

std::string EncodeProblem(const Error& error) {
  const std::string_view name = InfoOf(error.code).name;
  const std::string_view message = std::string_view(error.message).substr(0, kProblemTextMax);
  std::string text;
  Writer(&text).Put(static_cast<uint16_t>(name.size())).Text(name).Text(message);
  return text;
}

Result<Error> DecodeProblem(std::span<const std::byte> control) {
  Reader reader(control);
  const std::string_view name = reader.Text(reader.Take<uint16_t>());
  if (!reader.ok() || name.empty() || reader.left() > kProblemTextMax) return Malformed("an error");
  const ErrorCode code = ErrorCodeByName(name);
  return Error(code, std::string(reader.Text(reader.left())));
}

}  // namespace gantry::transport
