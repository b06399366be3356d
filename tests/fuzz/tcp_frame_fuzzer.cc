// Feeds both ends of a data connection what a hostile other end could send, in parts of any size:
// nothing may be placed outside of what was given, and nothing decoded may exceed its limits.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "sidecar/transport/tcp/channel/crc32c.h"
#include "sidecar/transport/tcp/channel/frame_receiver.h"

namespace gantry::transport {
namespace {

constexpr size_t kPlaceBytes = 64 * 1024;
constexpr size_t kControlCrcAt = 36;
constexpr size_t kHeaderCrcAt = 44;

void Require(bool condition) {
  if (!condition) std::abort();
}

class FuzzChannel final : public SocketChannel {
 public:
  FuzzChannel(std::vector<uint8_t> bytes, size_t step) : bytes_(std::move(bytes)), step_(step) {}
  IoState Fetch() override { return IoState::kMoved; }
  IoResult Receive(const iovec* parts, int count) override {
    Require(count > 0);
    size_t room = std::min(step_, bytes_.size() - at_);
    if (room == 0) return {IoState::kEnded, 0};
    size_t moved = 0;
    for (int i = 0; i < count && room > 0; ++i) {
      const size_t bytes = std::min(parts[i].iov_len, room);
      std::memcpy(parts[i].iov_base, bytes_.data() + at_, bytes);
      at_ += bytes;
      moved += bytes;
      room -= bytes;
    }
    Require(moved > 0);  // a receiver without room would spin
    return {IoState::kMoved, moved};
  }
  IoResult Send(const iovec*, int) override { return {IoState::kEnded, 0}; }
  IoResult Handshake() override { return {IoState::kMoved, 0}; }
  bool HasReceived() const override { return false; }
  bool ReceiveWantsSend() const override { return false; }
  std::string Why() const override { return "the input is over"; }
  int fd() const override { return -1; }

 private:
  const std::vector<uint8_t> bytes_;
  const size_t step_;
  size_t at_ = 0;
};

class FuzzSink final : public FrameSink {
 public:
  Status OnHeader(const FrameHeader& header) override {
    Require(header.control_bytes <= kFrameControlBytesMax);
    Require(header.payload_bytes <= kFramePayloadBytesMax);
    return {};
  }
  Result<ScatterList*> OnControl(const FrameHeader& header,
                                 std::span<const std::byte> control) override {
    Require(control.size() == header.control_bytes);
    switch (header.type) {
      case FrameType::kHello:
        RETURN_IF_ERROR(DecodeHello(control));
        break;
      case FrameType::kWelcome:
        RETURN_IF_ERROR(DecodeWelcome(control));
        break;
      case FrameType::kDone:
        RETURN_IF_ERROR(DecodeProblem(control));
        break;
      case FrameType::kRead:
      case FrameType::kWrite: {
        ASSIGN_OR_RETURN(const RequestBody body, DecodeRequest(control));
        CheckRequest(body);
        break;
      }
      default:
        break;
    }
    if (header.payload_bytes == 0 || header.payload_bytes > kPlaceBytes) return nullptr;
    place_ = std::make_unique<std::byte[]>(header.payload_bytes);
    list_.Clear();
    const size_t half = header.payload_bytes / 2;
    list_.Add(place_.get() + half, header.payload_bytes - half);
    if (half > 0) list_.Add(place_.get(), half);
    return &list_;
  }
  bool MayPlace() override { return ++steps_ % 17 != 0; }
  Status OnFrame(const FrameHeader&, Outcome outcome) override {
    Require(!outcome.placed || list_.done());
    return {};
  }
  bool Full() const override { return false; }

 private:
  static void CheckRequest(const RequestBody& body) {
    Require(!body.sections.empty() && body.sections.size() <= kFrameSectionsMax);
    Require(body.ranges.size() <= kFrameRangesMax);
    Require(body.bytes > 0 && body.bytes <= kFramePayloadBytesMax);
    uint64_t bytes = 0;
    size_t ranges = 0;
    for (const RequestSection& section : body.sections) {
      Require(section.first_range == ranges && section.ranges > 0);
      ranges += section.ranges;
      Require(section.buffer.size() <= kBufferIdBytesMax);
    }
    for (const WireRange& range : body.ranges) bytes += range.length;
    Require(ranges == body.ranges.size() && bytes == body.bytes);
    // What is decoded says the same again.
    const std::string again = EncodeRequest(body);
    Require(DecodeRequest(std::as_bytes(std::span(again))).has_value());
  }

  std::unique_ptr<std::byte[]> place_;
  ScatterList list_;
  uint64_t steps_ = 0;
};

// A fuzzer does not find checksums by itself.
void SetChecksums(std::vector<uint8_t>* bytes) {
  size_t at = 0;
  while (bytes->size() - at >= kFrameHeaderBytes) {
    uint8_t* header = bytes->data() + at;
    uint32_t control = 0;
    uint32_t payload = 0;
    std::memcpy(&control, header + 8, sizeof(control));
    std::memcpy(&payload, header + 12, sizeof(payload));
    const size_t left = bytes->size() - at - kFrameHeaderBytes;
    if (control <= left) {
      const uint32_t crc = Crc32c(0, header + kFrameHeaderBytes, control);
      std::memcpy(header + kControlCrcAt, &crc, sizeof(crc));
    }
    const uint32_t crc = Crc32c(0, header, kHeaderCrcAt);
    std::memcpy(header + kHeaderCrcAt, &crc, sizeof(crc));
    const uint64_t frame = uint64_t{control} + payload;
    if (frame > left) return;
    at += kFrameHeaderBytes + frame;
  }
}

}  // namespace
}  // namespace gantry::transport

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gantry::transport;
  if (size < 2) return 0;
  const auto side = (data[0] & 1) != 0 ? FrameReader::kTarget : FrameReader::kInitiator;
  std::vector<uint8_t> bytes(data + 2, data + size);
  if ((data[0] & 2) != 0) SetChecksums(&bytes);
  FuzzChannel channel(std::move(bytes), size_t{data[1]} * data[1] + 1);
  FuzzSink sink;
  FrameReceiver receiver(side, sink);
  while (receiver.Pump(channel, 1 << 20)) {
  }
  return 0;
}
